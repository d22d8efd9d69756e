// RUN: symshape-opt %s --split-input-file --outline-layers | filecheck %s

// Three layers: calls of one function, which takes what differs, and the symbols.
// CHECK-LABEL: func.func private @layer_0(
// CHECK-SAME:    %[[X:.*]]: tensor<?x8xf32>, %[[W:.*]]: tensor<8x8xf32>, %{{.*}}: index) -> tensor<?x8xf32> attributes {symshape.layer}
// CHECK:         %[[S:.*]] = "symshape.symbol"() {binding = "arg2", {{.*}}name = "s0"
// CHECK:         "symshape.bind"(%[[X]], %[[S]],
// CHECK:         %[[M:.*]] = "host.call"(%[[X]], %[[W]]) {{.*}}target = "aten.mm.default"
// CHECK:         %[[E:.*]] = "host.call"(%[[M]]) {{.*}}target = "aten.exp.default"
// CHECK:         "host.call"(%[[E]], %[[X]]) {{.*}}target = "aten.add.Tensor"
// CHECK:         %[[T:.*]] = "host.call"({{.*}}target = "aten.tanh.default"
// CHECK:         return %[[T]]
// CHECK-LABEL: func.func @main(
// CHECK-SAME:    %[[X:.*]]: tensor<?x8xf32>, %[[W0:.*]]: tensor<8x8xf32>, %[[W1:.*]]: tensor<8x8xf32>, %[[W2:.*]]: tensor<8x8xf32>)
// CHECK:         %[[S0:.*]] = "symshape.symbol"() {binding = "arg0.size(0)"
// CHECK-NOT:     "host.call"
// CHECK:         %[[A:.*]] = "host.layer"(%[[X]], %[[W0]], %[[S0]]) {callee = @layer_0}
// CHECK:         "symshape.bind"(%[[A]], %[[S0]],
// CHECK:         %[[B:.*]] = "host.layer"(%[[A]], %[[W1]], %[[S0]]) {callee = @layer_0}
// CHECK:         %[[C:.*]] = "host.layer"(%[[B]], %[[W2]], %[[S0]]) {callee = @layer_0}
// CHECK-NOT:     "host.call"
// CHECK:         return %[[C]]
func.func @main(%x: tensor<?x8xf32>, %w0: tensor<8x8xf32>, %w1: tensor<8x8xf32>, %w2: tensor<8x8xf32>) -> tensor<?x8xf32> {
  %s0 = "symshape.symbol"() {name = "s0", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 4 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  "symshape.bind"(%x, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%w0, %c8, %c8, %c8, %c1, %c0) : (tensor<8x8xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%w1, %c8, %c8, %c8, %c1, %c0) : (tensor<8x8xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%w2, %c8, %c8, %c8, %c1, %c0) : (tensor<8x8xf32>, index, index, index, index, index) -> ()
  %m0 = "host.call"(%x, %w0) {target = "aten.mm.default", arguments = "($0, $1)", fresh} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  "symshape.bind"(%m0, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %e0 = "host.call"(%m0) {target = "aten.exp.default", arguments = "($0,)", fresh} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  "symshape.bind"(%e0, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %a0 = "host.call"(%e0, %x) {target = "aten.add.Tensor", arguments = "($0, $1)", fresh} : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  "symshape.bind"(%a0, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %r0 = "host.call"(%a0) {target = "aten.relu.default", arguments = "($0,)", fresh} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  "symshape.bind"(%r0, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %n0 = "host.call"(%r0, %w0) {target = "aten.mm.default", arguments = "($0, $1)", fresh} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  "symshape.bind"(%n0, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %t0 = "host.call"(%n0) {target = "aten.tanh.default", arguments = "($0,)", fresh} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  "symshape.bind"(%t0, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %m1 = "host.call"(%t0, %w1) {target = "aten.mm.default", arguments = "($0, $1)", fresh} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  "symshape.bind"(%m1, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %e1 = "host.call"(%m1) {target = "aten.exp.default", arguments = "($0,)", fresh} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  "symshape.bind"(%e1, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %a1 = "host.call"(%e1, %t0) {target = "aten.add.Tensor", arguments = "($0, $1)", fresh} : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  "symshape.bind"(%a1, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %r1 = "host.call"(%a1) {target = "aten.relu.default", arguments = "($0,)", fresh} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  "symshape.bind"(%r1, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %n1 = "host.call"(%r1, %w1) {target = "aten.mm.default", arguments = "($0, $1)", fresh} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  "symshape.bind"(%n1, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %t1 = "host.call"(%n1) {target = "aten.tanh.default", arguments = "($0,)", fresh} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  "symshape.bind"(%t1, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %m2 = "host.call"(%t1, %w2) {target = "aten.mm.default", arguments = "($0, $1)", fresh} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  "symshape.bind"(%m2, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %e2 = "host.call"(%m2) {target = "aten.exp.default", arguments = "($0,)", fresh} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  "symshape.bind"(%e2, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %a2 = "host.call"(%e2, %t1) {target = "aten.add.Tensor", arguments = "($0, $1)", fresh} : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  "symshape.bind"(%a2, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %r2 = "host.call"(%a2) {target = "aten.relu.default", arguments = "($0,)", fresh} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  "symshape.bind"(%r2, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %n2 = "host.call"(%r2, %w2) {target = "aten.mm.default", arguments = "($0, $1)", fresh} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  "symshape.bind"(%n2, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %t2 = "host.call"(%n2) {target = "aten.tanh.default", arguments = "($0,)", fresh} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  "symshape.bind"(%t2, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  return %t2 : tensor<?x8xf32>
}

// -----

// The second of three is another one: no two in a row are equal.
// CHECK-LABEL: func.func @other(
// CHECK-NOT:     host.layer
// CHECK-NOT:     symshape.layer
// CHECK:         return
func.func @other(%x: tensor<?x8xf32>, %w0: tensor<8x8xf32>, %w1: tensor<8x8xf32>, %w2: tensor<8x8xf32>) -> tensor<?x8xf32> {
  %s0 = "symshape.symbol"() {name = "s0", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 4 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  "symshape.bind"(%x, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%w0, %c8, %c8, %c8, %c1, %c0) : (tensor<8x8xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%w1, %c8, %c8, %c8, %c1, %c0) : (tensor<8x8xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%w2, %c8, %c8, %c8, %c1, %c0) : (tensor<8x8xf32>, index, index, index, index, index) -> ()
  %m0 = "host.call"(%x, %w0) {target = "aten.mm.default", arguments = "($0, $1)", fresh} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  "symshape.bind"(%m0, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %e0 = "host.call"(%m0) {target = "aten.exp.default", arguments = "($0,)", fresh} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  "symshape.bind"(%e0, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %a0 = "host.call"(%e0, %x) {target = "aten.add.Tensor", arguments = "($0, $1)", fresh} : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  "symshape.bind"(%a0, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %r0 = "host.call"(%a0) {target = "aten.relu.default", arguments = "($0,)", fresh} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  "symshape.bind"(%r0, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %n0 = "host.call"(%r0, %w0) {target = "aten.mm.default", arguments = "($0, $1)", fresh} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  "symshape.bind"(%n0, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %t0 = "host.call"(%n0) {target = "aten.tanh.default", arguments = "($0,)", fresh} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  "symshape.bind"(%t0, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %m1 = "host.call"(%t0, %w1) {target = "aten.mm.default", arguments = "($0, $1)", fresh} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  "symshape.bind"(%m1, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %e1 = "host.call"(%m1) {target = "aten.exp.default", arguments = "($0,)", fresh} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  "symshape.bind"(%e1, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %a1 = "host.call"(%e1, %t0) {target = "aten.add.Tensor", arguments = "($0, $1)", fresh} : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  "symshape.bind"(%a1, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %r1 = "host.call"(%a1) {target = "aten.relu.default", arguments = "($0,)", fresh} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  "symshape.bind"(%r1, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %n1 = "host.call"(%r1, %w1) {target = "aten.mm.default", arguments = "($0, $1)", fresh} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  "symshape.bind"(%n1, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %t1 = "host.call"(%n1) {target = "aten.sin.default", arguments = "($0,)", fresh} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  "symshape.bind"(%t1, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %m2 = "host.call"(%t1, %w2) {target = "aten.mm.default", arguments = "($0, $1)", fresh} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  "symshape.bind"(%m2, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %e2 = "host.call"(%m2) {target = "aten.exp.default", arguments = "($0,)", fresh} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  "symshape.bind"(%e2, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %a2 = "host.call"(%e2, %t1) {target = "aten.add.Tensor", arguments = "($0, $1)", fresh} : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  "symshape.bind"(%a2, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %r2 = "host.call"(%a2) {target = "aten.relu.default", arguments = "($0,)", fresh} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  "symshape.bind"(%r2, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %n2 = "host.call"(%r2, %w2) {target = "aten.mm.default", arguments = "($0, $1)", fresh} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  "symshape.bind"(%n2, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %t2 = "host.call"(%n2) {target = "aten.tanh.default", arguments = "($0,)", fresh} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  "symshape.bind"(%t2, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  return %t2 : tensor<?x8xf32>
}
