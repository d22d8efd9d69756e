// RUN: symshape-opt %s --split-input-file --fuse-kernels='vertical=false siblings=false' | filecheck %s

// Each stored or reduced value has a kernel of its own; what floats is computed where it is read.
// CHECK-LABEL: func.func @softmax(
// CHECK-SAME:    %[[X:.*]]: tensor<?x?xf32>)
// CHECK:         %[[M:.*]] = "host.launch"(%[[X]], %{{.*}}) {callee = @kernel_0}
// CHECK:         %[[E:.*]] = "host.launch"(%[[X]], %[[M]], %{{.*}}) {callee = @kernel_1}
// CHECK:         %[[T:.*]] = "host.launch"(%[[E]], %{{.*}}) {callee = @kernel_2}
// CHECK:         %[[R:.*]] = "host.launch"(%[[E]], %[[T]], %{{.*}}) {callee = @kernel_3}
// CHECK:         return %[[R]]
#all = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @softmax(%x: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(1)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  %low_value = arith.constant 0xFF800000 : f32
  %low = tensor.splat %low_value[%s0] : tensor<?xf32>
  %m = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
    ins(%x : tensor<?x?xf32>) outs(%low : tensor<?xf32>) attrs = {symshape.combiner = "max"} {
    ^bb0(%in0: f32, %out: f32):
      %0 = arith.maximumf %out, %in0 : f32
      linalg.yield %0 : f32
  } -> tensor<?xf32>
  %mb = "symshape.view"(%m, %s0, %s1) {map = #row} : (tensor<?xf32>, index, index) -> tensor<?x?xf32>
  %i = tensor.empty(%s0, %s1) : tensor<?x?xf32>
  %e = linalg.generic {indexing_maps = [#all, #all, #all], iterator_types = ["parallel", "parallel"]}
    ins(%x, %mb : tensor<?x?xf32>, tensor<?x?xf32>) outs(%i : tensor<?x?xf32>) {
    ^bb0(%in0: f32, %in1: f32, %out: f32):
      %0 = arith.subf %in0, %in1 : f32
      %1 = math.exp %0 : f32
      linalg.yield %1 : f32
  } -> tensor<?x?xf32>
  %zero_value = arith.constant 0.0 : f32
  %zero = tensor.splat %zero_value[%s0] : tensor<?xf32>
  %t = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
    ins(%e : tensor<?x?xf32>) outs(%zero : tensor<?xf32>) attrs = {symshape.combiner = "add"} {
    ^bb0(%in0: f32, %out: f32):
      %0 = arith.addf %out, %in0 : f32
      linalg.yield %0 : f32
  } -> tensor<?xf32>
  %tb = "symshape.view"(%t, %s0, %s1) {map = #row} : (tensor<?xf32>, index, index) -> tensor<?x?xf32>
  %r = linalg.generic {indexing_maps = [#all, #all, #all], iterator_types = ["parallel", "parallel"]}
    ins(%e, %tb : tensor<?x?xf32>, tensor<?x?xf32>) outs(%i : tensor<?x?xf32>) {
    ^bb0(%in0: f32, %in1: f32, %out: f32):
      %0 = arith.divf %in0, %in1 : f32
      linalg.yield %0 : f32
  } -> tensor<?x?xf32>
  "symshape.bind"(%r, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  return %r : tensor<?x?xf32>
}

// -----

// CHECK-LABEL: func.func @siblings(
// CHECK-SAME:    %[[X:.*]]: tensor<?x?xf32>)
// CHECK-DAG:     %[[M:.*]] = "host.launch"(%[[X]], %{{.*}}) {callee = @kernel_0}
// CHECK-DAG:     %[[T:.*]] = "host.launch"(%[[X]], %{{.*}}) {callee = @kernel_1}
// CHECK:         return %[[M]], %[[T]]
#all = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @siblings(%x: tensor<?x?xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(1)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  %low_value = arith.constant 0xFF800000 : f32
  %low = tensor.splat %low_value[%s0] : tensor<?xf32>
  %zero_value = arith.constant 0.0 : f32
  %zero = tensor.splat %zero_value[%s0] : tensor<?xf32>
  %m = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
    ins(%x : tensor<?x?xf32>) outs(%low : tensor<?xf32>) attrs = {symshape.combiner = "max"} {
    ^bb0(%in0: f32, %out: f32):
      %0 = arith.maximumf %out, %in0 : f32
      linalg.yield %0 : f32
  } -> tensor<?xf32>
  "symshape.bind"(%m, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %t = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
    ins(%x : tensor<?x?xf32>) outs(%zero : tensor<?xf32>) attrs = {symshape.combiner = "add"} {
    ^bb0(%in0: f32, %out: f32):
      %0 = arith.addf %out, %in0 : f32
      linalg.yield %0 : f32
  } -> tensor<?xf32>
  "symshape.bind"(%t, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  return %m, %t : tensor<?xf32>, tensor<?xf32>
}
