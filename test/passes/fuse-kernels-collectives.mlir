// RUN: symshape-opt %s --fuse-kernels | filecheck %s

// The second collective needs nothing that is computed here, and comes second all the same: ranks meet in order.
// CHECK-LABEL: func.func @main(
// CHECK:         %[[Y:.*]] = "host.launch"
// CHECK:         all_reduce.default
// CHECK-NEXT:    all_gather_into_tensor.default
// CHECK-NEXT:    wait_tensor.default
// CHECK-NEXT:    wait_tensor.default
// CHECK-NEXT:    return
#all = affine_map<(d0) -> (d0)>
func.func @main(%x: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %i = tensor.empty(%s0) : tensor<?xf32>
  %y = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel"]}
    ins(%x : tensor<?xf32>) outs(%i : tensor<?xf32>) {
    ^bb0(%in0: f32, %out: f32):
      %0 = math.exp %in0 : f32
      linalg.yield %0 : f32
  } -> tensor<?xf32>
  "symshape.bind"(%y, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %r = "host.call"(%y) {target = "_c10d_functional.all_reduce.default", arguments = "($0, 'sum', '0')", checked, collective = 0 : i64} : (tensor<?xf32>) -> tensor<?xf32>
  %g = "host.call"(%x) {target = "_c10d_functional.all_gather_into_tensor.default", arguments = "($0, 1, '0')", checked, collective = 1 : i64} : (tensor<?xf32>) -> tensor<?xf32>
  %v = "host.call"(%r) {target = "_c10d_functional.wait_tensor.default", arguments = "($0)", checked} : (tensor<?xf32>) -> tensor<?xf32>
  %w = "host.call"(%g) {target = "_c10d_functional.wait_tensor.default", arguments = "($0)", checked} : (tensor<?xf32>) -> tensor<?xf32>
  return %v, %w : tensor<?xf32>, tensor<?xf32>
}
