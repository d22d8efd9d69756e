// RUN: symshape-opt %s --outline-scatters --reuse-buffers | filecheck %s

// The rows of %v are added to rows of %x: the rows one after the other, the columns side by side. %x dies with the
// scatter, which takes over its memory.
// CHECK-LABEL: func.func @rows(
// CHECK-SAME:    %[[X:[^:]*]]: tensor<?x8xf32>, %[[V:[^:]*]]: tensor<?x8xf32>, %[[I:[^:]*]]: tensor<?xi64>)
// CHECK:         %[[A:.*]] = "host.launch"(%[[X]]
// CHECK:         %[[D:.*]] = "symshape.reuse"(%[[A]])
// CHECK-NEXT:    %[[R:.*]] = "host.launch"(%[[A]], %[[V]], %[[I]], %[[D]], %[[S0:.*]], %[[S1:.*]]) {callee = @kernel_1}
// CHECK:         return %[[R]]
// CHECK-LABEL: func.func private @kernel_1(
// CHECK-SAME:    symshape.in_place = array<i64: 0, 0>, symshape.kernel, symshape.kind = "scatter"
// CHECK:         "symshape.space"(%{{.*}}, %c8) {iterators = ["reduction", "parallel"]}
// CHECK:         arith.select
// CHECK:         "symshape.check_index"
// CHECK:         "symshape.scatter"(%{{.*}}, %arg0, %arg3, %{{.*}}) {combiner = "add", dims = [-1, 1]}
func.func @rows(%x: tensor<?x8xf32>, %v: tensor<?x8xf32>, %i: tensor<?xi64>) -> tensor<?x8xf32> {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg1.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  "symshape.bind"(%x, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%v, %s1, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%i, %s1, %c1, %c0) : (tensor<?xi64>, index, index, index) -> ()
  %e = tensor.empty(%s0) : tensor<?x8xf32>
  %a = "host.launch"(%x, %e, %s0) {callee = @kernel_0} : (tensor<?x8xf32>, tensor<?x8xf32>, index) -> tensor<?x8xf32>
  "symshape.bind"(%a, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %r = "host.call"(%a, %v, %s1, %c8, %i) {target = "symshape.scatter.default", arguments = "($0, $1, (0, 1), True, ($2, $3, ), (-1, 1), [$4], (0,), 'add', True)", fresh} : (tensor<?x8xf32>, tensor<?x8xf32>, index, index, tensor<?xi64>) -> tensor<?x8xf32>
  "symshape.bind"(%r, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  return %r : tensor<?x8xf32>
}
func.func private @kernel_0(%x: tensor<?x8xf32>, %dest: tensor<?x8xf32>, %s0: index) -> tensor<?x8xf32>
    attributes {symshape.kernel, symshape.kind = "pointwise", symshape.num_inputs = 1 : i64, symshape.num_outputs = 1 : i64} {
  return %dest : tensor<?x8xf32>
}
