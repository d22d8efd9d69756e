// RUN: symshape-opt %s --write-slices --reuse-buffers | filecheck %s

// The first stack is written by the step. The second result of the step is a value that is carried as well, and the third
// is a library call's: those are copied. Nobody reads the fourth stack.
// CHECK-LABEL: func.func @main(
// CHECK:         "host.scan"({{.*}}) {body = @step, carried = 1 : i64, sliced = 1 : i64, written = array<i64: 1>}
func.func @main(%c: tensor<8xf32>, %xs: tensor<?x8xf32>) -> (tensor<8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg1.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  "symshape.bind"(%c, %c8, %c1, %c0) : (tensor<8xf32>, index, index, index) -> ()
  "symshape.bind"(%xs, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %r:5 = "host.scan"(%c, %xs) {body = @step, carried = 1 : i64, sliced = 1 : i64}
       : (tensor<8xf32>, tensor<?x8xf32>) -> (tensor<8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>)
  "symshape.bind"(%r#1, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%r#2, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%r#3, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%r#4, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  return %r#0, %r#1, %r#2, %r#3 : tensor<8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>
}

// CHECK-LABEL: func.func @step(
// CHECK-SAME:    %[[C:.*]]: tensor<8xf32>, %[[X:.*]]: tensor<8xf32>, %[[SLICE:.*]]: tensor<8xf32>) ->
// CHECK:         %[[D:.*]] = tensor.empty() : tensor<8xf32>
// CHECK:         %[[A:.*]] = "host.launch"(%[[C]], %[[D]]) {callee = @own}
// CHECK:         %[[B:.*]] = "host.launch"(%[[A]], %[[SLICE]]) {callee = @own}
// CHECK:         return %[[A]], %[[B]], %[[A]]
func.func @step(%c: tensor<8xf32>, %x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>)
    attributes {symshape.subgraph} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  "symshape.bind"(%c, %c8, %c1, %c0) : (tensor<8xf32>, index, index, index) -> ()
  "symshape.bind"(%x, %c8, %c1, %c0) : (tensor<8xf32>, index, index, index) -> ()
  %e0 = tensor.empty() : tensor<8xf32>
  %a = "host.launch"(%c, %e0) {callee = @own} : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  "symshape.bind"(%a, %c8, %c1, %c0) : (tensor<8xf32>, index, index, index) -> ()
  %e1 = tensor.empty() : tensor<8xf32>
  %b = "host.launch"(%a, %e1) {callee = @own} : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  "symshape.bind"(%b, %c8, %c1, %c0) : (tensor<8xf32>, index, index, index) -> ()
  %d = "host.call"(%x) {target = "aten.flip.default", arguments = "($0, [0])", fresh} : (tensor<8xf32>) -> tensor<8xf32>
  "symshape.bind"(%d, %c8, %c1, %c0) : (tensor<8xf32>, index, index, index) -> ()
  %e3 = tensor.empty() : tensor<8xf32>
  %f = "host.launch"(%d, %e3) {callee = @own} : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  "symshape.bind"(%f, %c8, %c1, %c0) : (tensor<8xf32>, index, index, index) -> ()
  return %a, %b, %a, %d, %f : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}
func.func private @own(%x: tensor<8xf32>, %dest: tensor<8xf32>) -> tensor<8xf32>
    attributes {symshape.kernel, symshape.kind = "pointwise", symshape.num_inputs = 1 : i64, symshape.num_outputs = 1 : i64} {
  return %dest : tensor<8xf32>
}
