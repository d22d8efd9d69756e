// RUN: symshape-opt %s --inline-layers | filecheck %s

// The operations of the layer in the place of each call, over main's symbol; what is known of a result is said once.
// CHECK-LABEL: func.func @main(
// CHECK-SAME:    %[[X:.*]]: tensor<?x8xf32>, %[[W0:.*]]: tensor<8x8xf32>, %[[W1:.*]]: tensor<8x8xf32>)
// CHECK:         %[[S0:.*]] = "symshape.symbol"() {{.*}}binding = "arg0.size(0)"
// CHECK-NOT:     symshape.symbol
// CHECK-NOT:     symshape.assume
// CHECK:         %[[M0:.*]] = "host.call"(%[[X]], %[[W0]]) {{.*}}target = "aten.mm.default"
// CHECK:         "symshape.bind"(%[[M0]], %[[S0]],
// CHECK:         %[[D0:.*]] = tensor.empty(%[[S0]])
// CHECK:         %[[A:.*]] = "host.launch"(%[[M0]], %[[D0]], %[[S0]]) {callee = @kernel_0}
// CHECK:         "symshape.bind"(%[[A]],
// CHECK-NOT:     "symshape.bind"(%[[A]],
// CHECK:         %[[M1:.*]] = "host.call"(%[[A]], %[[W1]]) {{.*}}target = "aten.mm.default"
// CHECK:         %[[D1:.*]] = tensor.empty(%[[S0]])
// CHECK:         %[[B:.*]] = "host.launch"(%[[M1]], %[[D1]], %[[S0]]) {callee = @kernel_0}
// CHECK:         return %[[B]]
// CHECK-NOT:   @layer_0
func.func private @kernel_0(%in: tensor<?x8xf32>, %out: tensor<?x8xf32>, %n: index) -> tensor<?x8xf32>
  attributes {symshape.kernel, symshape.kind = "pointwise", symshape.num_inputs = 1 : i64, symshape.num_outputs = 1 : i64} {
  %c8 = arith.constant 8 : index
  "symshape.space"(%n, %c8) {iterators = ["parallel", "parallel"]} : (index, index) -> ()
  %v = "symshape.view"(%in, %n, %c8) {map = affine_map<(d0, d1) -> (d0, d1)>} : (tensor<?x8xf32>, index, index) -> tensor<?x8xf32>
  %r = "symshape.store"(%v, %out) {map = affine_map<(d0, d1) -> (d0, d1)>} : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %r : tensor<?x8xf32>
}
func.func private @layer_0(%x: tensor<?x8xf32>, %w: tensor<8x8xf32>, %n: index) -> tensor<?x8xf32> attributes {symshape.layer} {
  %s0 = "symshape.symbol"() {name = "s0", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 4 : i64, source = "", binding = "arg2"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %some = arith.cmpi ne, %s0, %c0 : index
  "symshape.assume"(%some) : (i1) -> ()
  "symshape.bind"(%x, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%w, %c8, %c8, %c8, %c1, %c0) : (tensor<8x8xf32>, index, index, index, index, index) -> ()
  %m = "host.call"(%x, %w) {target = "aten.mm.default", arguments = "($0, $1)", fresh} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  "symshape.bind"(%m, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %d = tensor.empty(%s0) : tensor<?x8xf32>
  %r = "host.launch"(%m, %d, %s0) {callee = @kernel_0} : (tensor<?x8xf32>, tensor<?x8xf32>, index) -> tensor<?x8xf32>
  "symshape.bind"(%r, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  return %r : tensor<?x8xf32>
}
func.func @main(%x: tensor<?x8xf32>, %w0: tensor<8x8xf32>, %w1: tensor<8x8xf32>) -> tensor<?x8xf32> {
  %s0 = "symshape.symbol"() {name = "s0", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 4 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  "symshape.bind"(%x, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%w0, %c8, %c8, %c8, %c1, %c0) : (tensor<8x8xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%w1, %c8, %c8, %c8, %c1, %c0) : (tensor<8x8xf32>, index, index, index, index, index) -> ()
  %a = "host.layer"(%x, %w0, %s0) {callee = @layer_0} : (tensor<?x8xf32>, tensor<8x8xf32>, index) -> tensor<?x8xf32>
  "symshape.bind"(%a, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %b = "host.layer"(%a, %w1, %s0) {callee = @layer_0} : (tensor<?x8xf32>, tensor<8x8xf32>, index) -> tensor<?x8xf32>
  "symshape.bind"(%b, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  return %b : tensor<?x8xf32>
}
