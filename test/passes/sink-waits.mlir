// RUN: symshape-opt %s --split-input-file --sink-waits | filecheck %s

// The kernel that needs the result not runs before the wait; the collectives stay where they are. A view of the result
// moves with it.
// CHECK-LABEL: func.func @overlap(
// CHECK:         collective = 0
// CHECK:         collective = 1
// CHECK:         host.launch
// CHECK-NEXT:    symshape.bind
// CHECK-NEXT:    wait_tensor
// CHECK-NEXT:    symshape.bind
// CHECK-NEXT:    symshape.view
// CHECK-NEXT:    symshape.bind
// CHECK-NEXT:    aten.mm.default
// CHECK-NEXT:    symshape.bind
// CHECK-NEXT:    wait_tensor
// CHECK-NEXT:    return
func.func @overlap(%x: tensor<4x4xf32>, %y: tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %r = "host.call"(%y) {target = "_c10d_functional.all_reduce.default", arguments = "($0, 'sum', '0')", checked, collective = 0 : i64} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %w = "host.call"(%r) {target = "_c10d_functional.wait_tensor.default", arguments = "($0)", checked} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  "symshape.bind"(%w, %c4, %c4, %c4, %c1, %c0) : (tensor<4x4xf32>, index, index, index, index, index) -> ()
  %v = "symshape.view"(%w, %c4, %c4) {map = affine_map<(d0, d1) -> (d1, d0)>} : (tensor<4x4xf32>, index, index) -> tensor<4x4xf32>
  "symshape.bind"(%v, %c4, %c4, %c1, %c4, %c0) : (tensor<4x4xf32>, index, index, index, index, index) -> ()
  %s = "host.call"(%x) {target = "_c10d_functional.all_reduce.default", arguments = "($0, 'sum', '0')", checked, collective = 1 : i64} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %u = "host.call"(%s) {target = "_c10d_functional.wait_tensor.default", arguments = "($0)", checked} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %e = tensor.empty() : tensor<4x4xf32>
  %k = "host.launch"(%x, %e) {callee = @kernel_0} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  "symshape.bind"(%k, %c4, %c4, %c4, %c1, %c0) : (tensor<4x4xf32>, index, index, index, index, index) -> ()
  %m = "host.call"(%k, %v) {target = "aten.mm.default", arguments = "($0, $1)", fresh} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  "symshape.bind"(%m, %c4, %c4, %c4, %c1, %c0) : (tensor<4x4xf32>, index, index, index, index, index) -> ()
  return %m, %u : tensor<4x4xf32>, tensor<4x4xf32>
}
func.func private @kernel_0(%x: tensor<4x4xf32>, %dest: tensor<4x4xf32>) -> tensor<4x4xf32>
    attributes {symshape.kernel, symshape.kind = "pointwise", symshape.num_inputs = 1 : i64, symshape.num_outputs = 1 : i64} {
  return %dest : tensor<4x4xf32>
}

// -----

// A call that may write to what the collective reads stays behind the wait, though it does not use the result.
// CHECK-LABEL: func.func @written(
// CHECK:         all_gather_into_tensor
// CHECK:         host.launch
// CHECK-NEXT:    wait_tensor
// CHECK-NEXT:    custom.fill_.default
// CHECK-NEXT:    return
func.func @written(%x: tensor<4xf32>) -> tensor<8xf32> {
  %r = "host.call"(%x) {target = "_c10d_functional.all_gather_into_tensor.default", arguments = "($0, 2, '0')", checked, collective = 0 : i64} : (tensor<4xf32>) -> tensor<8xf32>
  %w = "host.call"(%r) {target = "_c10d_functional.wait_tensor.default", arguments = "($0)", checked} : (tensor<8xf32>) -> tensor<8xf32>
  %e = tensor.empty() : tensor<4xf32>
  %k = "host.launch"(%x, %e) {callee = @kernel_0} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  "host.call"(%x) {target = "custom.fill_.default", arguments = "($0)"} : (tensor<4xf32>) -> ()
  return %w : tensor<8xf32>
}
func.func private @kernel_0(%x: tensor<4xf32>, %dest: tensor<4xf32>) -> tensor<4xf32>
    attributes {symshape.kernel, symshape.kind = "pointwise", symshape.num_inputs = 1 : i64, symshape.num_outputs = 1 : i64} {
  return %dest : tensor<4xf32>
}
