// RUN: symshape-opt %s --fuse-kernels | filecheck %s

// A scan and what is around it are one kernel, which goes along the columns in order. The sum of its results needs all
// of them: a kernel of its own.
// CHECK-LABEL: func.func @scan_then_sum(
// CHECK:         %[[Y:.*]] = "host.launch"(%{{.*}}) {callee = @kernel_0}
// CHECK:         "host.launch"(%[[Y]], {{.*}}) {callee = @kernel_1}
// CHECK-LABEL: func.func private @kernel_0(
// CHECK-SAME:    symshape.kind = "scan"
// CHECK:         "symshape.space"(%{{.*}}, %{{.*}}) {iterators = ["parallel", "reduction"]}
// CHECK:         %[[E:.*]] = linalg.generic
// CHECK:           math.exp
// CHECK:         %[[Z:.*]] = tensor.splat
// CHECK:         %[[S:.*]]:2 = linalg.generic {{{.*}}iterator_types = ["parallel", "reduction"]} ins(%[[E]] : tensor<?x?xf32>) outs(%[[Z]], %{{.*}} : tensor<?xf32>, tensor<?x?xf32>) attrs = {symshape.combiner = "scan"}
// CHECK:         %[[R:.*]] = linalg.generic {{.*}} ins(%[[S]]#1 :
// CHECK:           math.sqrt
// CHECK:         "symshape.store"(%[[R]],
// CHECK-LABEL: func.func private @kernel_1(
// CHECK-SAME:    symshape.kind = "reduction"
#all = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @scan_then_sum(%x: tensor<?x?xf32>) -> (tensor<?x?xf32>, tensor<?xf32>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(1)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  "symshape.bind"(%x, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  %e = tensor.empty(%s0, %s1) : tensor<?x?xf32>
  %exp = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
    ins(%x : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) {
    ^bb0(%in: f32, %out: f32):
      %0 = math.exp %in : f32
      linalg.yield %0 : f32
  } -> tensor<?x?xf32>
  %start = tensor.splat %zero[%s0] : tensor<?xf32>
  %scan:2 = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "reduction"], symshape.combiner = "scan"}
    ins(%exp : tensor<?x?xf32>) outs(%start, %e : tensor<?xf32>, tensor<?x?xf32>) {
    ^bb0(%in: f32, %before: f32, %out: f32):
      %0 = arith.addf %before, %in : f32
      linalg.yield %0, %0 : f32, f32
  } -> (tensor<?xf32>, tensor<?x?xf32>)
  %root = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
    ins(%scan#1 : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) {
    ^bb0(%in: f32, %out: f32):
      %0 = math.sqrt %in : f32
      linalg.yield %0 : f32
  } -> tensor<?x?xf32>
  %sum = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"], symshape.combiner = "add"}
    ins(%root : tensor<?x?xf32>) outs(%start : tensor<?xf32>) {
    ^bb0(%in: f32, %out: f32):
      %0 = arith.addf %out, %in : f32
      linalg.yield %0 : f32
  } -> tensor<?xf32>
  "symshape.bind"(%root, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%sum, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  return %root, %sum : tensor<?x?xf32>, tensor<?xf32>
}
