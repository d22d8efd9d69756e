// RUN: symshape-opt %s --fold-layers --lower-aten --fuse-kernels --unfold-layers | filecheck %s

// What became of the fourth layer is there again for the fifth and the sixth.
// CHECK-LABEL: func.func @main(
// CHECK-SAME:    %[[W3:[^:]*]]: tensor<4x4xf32>, %[[W4:[^:]*]]: tensor<4x4xf32>, %[[W5:[^:]*]]: tensor<4x4xf32>, %[[W6:[^:]*]]: tensor<4x4xf32>) ->
// CHECK-NOT:     symshape.folded_layers
// CHECK:         %[[P3:.*]] = "host.call"(%[[X3:.*]], %[[W3]]) {{.*}}aten.mm.default
// CHECK:         %[[X4:.*]] = "host.launch"({{.*}}%[[P3]]{{.*}}) {callee = @[[K:kernel_[0-9]+]]}
// CHECK:         %[[P4:.*]] = "host.call"(%[[X4]], %[[W4]]) {{.*}}aten.mm.default
// CHECK:         %[[X5:.*]] = "host.launch"({{.*}}%[[P4]]{{.*}}) {callee = @[[K]]}
// CHECK:         %[[P5:.*]] = "host.call"(%[[X5]], %[[W5]]) {{.*}}aten.mm.default
// CHECK:         %[[X6:.*]] = "host.launch"({{.*}}%[[P5]]{{.*}}) {callee = @[[K]]}
// CHECK:         %[[P6:.*]] = "host.call"(%[[X6]], %[[W6]]) {{.*}}aten.mm.default
// CHECK:         %[[X7:.*]] = "host.launch"({{.*}}%[[P6]]{{.*}}) {callee = @[[K]]}
// CHECK:         return {{.*}}%[[X7]] :
func.func @main(%x: tensor<?x4xf32>, %w0: tensor<4x4xf32>, %w1: tensor<4x4xf32>, %w2: tensor<4x4xf32>, %w3: tensor<4x4xf32>, %w4: tensor<4x4xf32>, %w5: tensor<4x4xf32>, %w6: tensor<4x4xf32>) -> tensor<?x4xf32> {
  %s0 = "symshape.symbol"() {name = "s0", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  "symshape.bind"(%x, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%w0, %c4, %c4, %c4, %c1, %c0) : (tensor<4x4xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%w1, %c4, %c4, %c4, %c1, %c0) : (tensor<4x4xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%w2, %c4, %c4, %c4, %c1, %c0) : (tensor<4x4xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%w3, %c4, %c4, %c4, %c1, %c0) : (tensor<4x4xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%w4, %c4, %c4, %c4, %c1, %c0) : (tensor<4x4xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%w5, %c4, %c4, %c4, %c1, %c0) : (tensor<4x4xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%w6, %c4, %c4, %c4, %c1, %c0) : (tensor<4x4xf32>, index, index, index, index, index) -> ()
  %p0 = "host.call"(%x, %w0) {arguments = "($0, $1)", fresh, target = "aten.mm.default"} : (tensor<?x4xf32>, tensor<4x4xf32>) -> tensor<?x4xf32> loc("mm_0")
  "symshape.bind"(%p0, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> () loc("mm_0")
  %r0 = "host.call"(%p0) {arguments = "($0,)", fresh, target = "aten.relu.default"} : (tensor<?x4xf32>) -> tensor<?x4xf32> loc("relu_0")
  "symshape.bind"(%r0, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> () loc("relu_0")
  %e0 = "host.call"(%r0) {arguments = "($0, 2)", fresh, target = "aten.mul.Tensor"} : (tensor<?x4xf32>) -> tensor<?x4xf32> loc("mul_0")
  "symshape.bind"(%e0, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> () loc("mul_0")
  %y0 = "host.call"(%x, %e0) {arguments = "($0, $1)", fresh, target = "aten.add.Tensor"} : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32> loc("add_0")
  "symshape.bind"(%y0, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> () loc("add_0")
  %p1 = "host.call"(%y0, %w1) {arguments = "($0, $1)", fresh, target = "aten.mm.default"} : (tensor<?x4xf32>, tensor<4x4xf32>) -> tensor<?x4xf32> loc("mm_1")
  "symshape.bind"(%p1, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> () loc("mm_1")
  %r1 = "host.call"(%p1) {arguments = "($0,)", fresh, target = "aten.relu.default"} : (tensor<?x4xf32>) -> tensor<?x4xf32> loc("relu_1")
  "symshape.bind"(%r1, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> () loc("relu_1")
  %e1 = "host.call"(%r1) {arguments = "($0, 2)", fresh, target = "aten.mul.Tensor"} : (tensor<?x4xf32>) -> tensor<?x4xf32> loc("mul_1")
  "symshape.bind"(%e1, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> () loc("mul_1")
  %y1 = "host.call"(%y0, %e1) {arguments = "($0, $1)", fresh, target = "aten.add.Tensor"} : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32> loc("add_1")
  "symshape.bind"(%y1, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> () loc("add_1")
  %p2 = "host.call"(%y1, %w2) {arguments = "($0, $1)", fresh, target = "aten.mm.default"} : (tensor<?x4xf32>, tensor<4x4xf32>) -> tensor<?x4xf32> loc("mm_2")
  "symshape.bind"(%p2, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> () loc("mm_2")
  %r2 = "host.call"(%p2) {arguments = "($0,)", fresh, target = "aten.relu.default"} : (tensor<?x4xf32>) -> tensor<?x4xf32> loc("relu_2")
  "symshape.bind"(%r2, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> () loc("relu_2")
  %e2 = "host.call"(%r2) {arguments = "($0, 2)", fresh, target = "aten.mul.Tensor"} : (tensor<?x4xf32>) -> tensor<?x4xf32> loc("mul_2")
  "symshape.bind"(%e2, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> () loc("mul_2")
  %y2 = "host.call"(%y1, %e2) {arguments = "($0, $1)", fresh, target = "aten.add.Tensor"} : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32> loc("add_2")
  "symshape.bind"(%y2, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> () loc("add_2")
  %p3 = "host.call"(%y2, %w3) {arguments = "($0, $1)", fresh, target = "aten.mm.default"} : (tensor<?x4xf32>, tensor<4x4xf32>) -> tensor<?x4xf32> loc("mm_3")
  "symshape.bind"(%p3, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> () loc("mm_3")
  %r3 = "host.call"(%p3) {arguments = "($0,)", fresh, target = "aten.relu.default"} : (tensor<?x4xf32>) -> tensor<?x4xf32> loc("relu_3")
  "symshape.bind"(%r3, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> () loc("relu_3")
  %e3 = "host.call"(%r3) {arguments = "($0, 2)", fresh, target = "aten.mul.Tensor"} : (tensor<?x4xf32>) -> tensor<?x4xf32> loc("mul_3")
  "symshape.bind"(%e3, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> () loc("mul_3")
  %y3 = "host.call"(%y2, %e3) {arguments = "($0, $1)", fresh, target = "aten.add.Tensor"} : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32> loc("add_3")
  "symshape.bind"(%y3, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> () loc("add_3")
  %p4 = "host.call"(%y3, %w4) {arguments = "($0, $1)", fresh, target = "aten.mm.default"} : (tensor<?x4xf32>, tensor<4x4xf32>) -> tensor<?x4xf32> loc("mm_4")
  "symshape.bind"(%p4, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> () loc("mm_4")
  %r4 = "host.call"(%p4) {arguments = "($0,)", fresh, target = "aten.relu.default"} : (tensor<?x4xf32>) -> tensor<?x4xf32> loc("relu_4")
  "symshape.bind"(%r4, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> () loc("relu_4")
  %e4 = "host.call"(%r4) {arguments = "($0, 2)", fresh, target = "aten.mul.Tensor"} : (tensor<?x4xf32>) -> tensor<?x4xf32> loc("mul_4")
  "symshape.bind"(%e4, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> () loc("mul_4")
  %y4 = "host.call"(%y3, %e4) {arguments = "($0, $1)", fresh, target = "aten.add.Tensor"} : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32> loc("add_4")
  "symshape.bind"(%y4, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> () loc("add_4")
  %p5 = "host.call"(%y4, %w5) {arguments = "($0, $1)", fresh, target = "aten.mm.default"} : (tensor<?x4xf32>, tensor<4x4xf32>) -> tensor<?x4xf32> loc("mm_5")
  "symshape.bind"(%p5, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> () loc("mm_5")
  %r5 = "host.call"(%p5) {arguments = "($0,)", fresh, target = "aten.relu.default"} : (tensor<?x4xf32>) -> tensor<?x4xf32> loc("relu_5")
  "symshape.bind"(%r5, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> () loc("relu_5")
  %e5 = "host.call"(%r5) {arguments = "($0, 2)", fresh, target = "aten.mul.Tensor"} : (tensor<?x4xf32>) -> tensor<?x4xf32> loc("mul_5")
  "symshape.bind"(%e5, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> () loc("mul_5")
  %y5 = "host.call"(%y4, %e5) {arguments = "($0, $1)", fresh, target = "aten.add.Tensor"} : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32> loc("add_5")
  "symshape.bind"(%y5, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> () loc("add_5")
  %p6 = "host.call"(%y5, %w6) {arguments = "($0, $1)", fresh, target = "aten.mm.default"} : (tensor<?x4xf32>, tensor<4x4xf32>) -> tensor<?x4xf32> loc("mm_6")
  "symshape.bind"(%p6, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> () loc("mm_6")
  %r6 = "host.call"(%p6) {arguments = "($0,)", fresh, target = "aten.relu.default"} : (tensor<?x4xf32>) -> tensor<?x4xf32> loc("relu_6")
  "symshape.bind"(%r6, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> () loc("relu_6")
  %e6 = "host.call"(%r6) {arguments = "($0, 2)", fresh, target = "aten.mul.Tensor"} : (tensor<?x4xf32>) -> tensor<?x4xf32> loc("mul_6")
  "symshape.bind"(%e6, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> () loc("mul_6")
  %y6 = "host.call"(%y5, %e6) {arguments = "($0, $1)", fresh, target = "aten.add.Tensor"} : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32> loc("add_6")
  "symshape.bind"(%y6, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> () loc("add_6")
  return {symshape.outputs = "($0,)"} %y6 : tensor<?x4xf32>
}
