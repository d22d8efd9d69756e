// RUN: symshape-opt %s --split-input-file --unroll-reductions | filecheck %s

// Two elements are added in pointwise code, which starts from the reduction's own start.
// CHECK-DAG:   #[[MAP0:.*]] = affine_map<(d0) -> (d0, 0)>
// CHECK-DAG:   #[[MAP1:.*]] = affine_map<(d0) -> (d0, 1)>
// CHECK-LABEL: func.func @pairs(
// CHECK-SAME:    %[[X:.*]]: tensor<?x2xf32>)
// CHECK-DAG:     %[[A:.*]] = "symshape.view"(%[[X]], %[[S0:.*]]) {map = #[[MAP0]]}
// CHECK-DAG:     %[[B:.*]] = "symshape.view"(%[[X]], %[[S0]]) {map = #[[MAP1]]}
// CHECK:         %[[R:.*]] = linalg.generic {{.*}}iterator_types = ["parallel"]} ins(%[[A]], %[[B]] : tensor<?xf32>, tensor<?xf32>)
// CHECK-NEXT:    ^bb0(%[[IN0:.*]]: f32, %[[IN1:.*]]: f32,
// CHECK-NEXT:      %[[ZERO:.*]] = arith.constant 0
// CHECK-NEXT:      %[[FIRST:.*]] = arith.addf %[[ZERO]], %[[IN0]]
// CHECK-NEXT:      %[[BOTH:.*]] = arith.addf %[[FIRST]], %[[IN1]]
// CHECK-NEXT:      linalg.yield %[[BOTH]]
// CHECK:         return %[[R]]
#all = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @pairs(%x: tensor<?x2xf32>) -> tensor<?xf32> {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  "symshape.bind"(%x, %s0, %c2, %c2, %c1, %c0) : (tensor<?x2xf32>, index, index, index, index, index) -> ()
  %zero = arith.constant 0.0 : f32
  %init = tensor.splat %zero[%s0] : tensor<?xf32>
  %sum = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
    ins(%x : tensor<?x2xf32>) outs(%init : tensor<?xf32>) attrs = {symshape.combiner = "add"} {
    ^bb0(%in: f32, %total: f32):
      %0 = arith.addf %total, %in : f32
      linalg.yield %0 : f32
  } -> tensor<?xf32>
  "symshape.bind"(%sum, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  return %sum : tensor<?xf32>
}

// -----

// Not where the number is not known, nor where the result meets the larger tensor again: one pass over a row is better.
// CHECK-LABEL: func.func @kept(
// CHECK-COUNT-2: iterator_types = ["parallel", "reduction"]
#all = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @kept(%x: tensor<?x?xf32>, %y: tensor<?x4xf32>) -> (tensor<?xf32>, tensor<?x4xf32>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 2 : i64, max = 4 : i64, divisor = 1 : i64, hint = 4 : i64, source = "", binding = "arg0.size(1)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  "symshape.bind"(%x, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%y, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> ()
  %low = arith.constant 0xFF800000 : f32
  %init = tensor.splat %low[%s0] : tensor<?xf32>
  %a = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
    ins(%x : tensor<?x?xf32>) outs(%init : tensor<?xf32>) attrs = {symshape.combiner = "max"} {
    ^bb0(%in: f32, %total: f32):
      %0 = arith.maximumf %total, %in : f32
      linalg.yield %0 : f32
  } -> tensor<?xf32>
  "symshape.bind"(%a, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %b = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
    ins(%y : tensor<?x4xf32>) outs(%init : tensor<?xf32>) attrs = {symshape.combiner = "max"} {
    ^bb0(%in: f32, %total: f32):
      %0 = arith.maximumf %total, %in : f32
      linalg.yield %0 : f32
  } -> tensor<?xf32>
  %wide = "symshape.view"(%b, %s0, %c4) {map = affine_map<(d0, d1) -> (d0)>} : (tensor<?xf32>, index, index) -> tensor<?x4xf32>
  %dest = tensor.empty(%s0) : tensor<?x4xf32>
  %c = linalg.generic {indexing_maps = [#all, #all, #all], iterator_types = ["parallel", "parallel"]}
    ins(%y, %wide : tensor<?x4xf32>, tensor<?x4xf32>) outs(%dest : tensor<?x4xf32>) {
    ^bb0(%in0: f32, %in1: f32, %out: f32):
      %0 = arith.subf %in0, %in1 : f32
      linalg.yield %0 : f32
  } -> tensor<?x4xf32>
  "symshape.bind"(%c, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> ()
  return %a, %c : tensor<?xf32>, tensor<?x4xf32>
}
