// RUN: symshape-opt %s --split-input-file --plan-tiles | filecheck %s

// Few points get small blocks, on as many processors as there are.
// CHECK-LABEL: func.func private @flat(
// CHECK-SAME:    %[[N:[^:]*]]: index, %[[M:[^:]*]]: index)
// CHECK:         %[[P:.*]] = "symshape.processors"
// CHECK:         %[[C1024:.*]] = arith.constant 1024 : index
// CHECK:         %[[ALL:.*]] = arith.muli %[[P]], %[[C1024]] : index
// CHECK:         %[[POINTS:.*]] = arith.muli %[[N]], %[[M]] : index
// CHECK:         %[[FEW:.*]] = arith.cmpi sge, %[[ALL]], %[[POINTS]] : index
// CHECK:         "symshape.variant"(%[[FEW]]) {{{.*}} form = "pointwise", {{.*}} name = "block256", num_stages = 1 : i64, num_warps = 2 : i64, one_launch = false, rblock = 0 : i64, xblock = 256 : i64
// CHECK:         %[[TRUE:.*]] = arith.constant true
// CHECK:         "symshape.variant"(%[[TRUE]]) {{{.*}} name = "block1024", num_stages = 1 : i64, num_warps = 4 : i64, one_launch = false, rblock = 0 : i64, xblock = 1024 : i64
// CHECK-NOT:     symshape.variant
func.func private @flat(%x: tensor<?x?xf32>, %dest: tensor<?x?xf32>, %s0: index, %s1: index) -> tensor<?x?xf32>
    attributes {symshape.kernel, symshape.kind = "pointwise", symshape.num_inputs = 1 : i64, symshape.num_outputs = 1 : i64} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%dest, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  "symshape.space"(%s0, %s1) {iterators = ["parallel", "parallel"]} : (index, index) -> ()
  %v = "symshape.view"(%x, %s0, %s1) {map = affine_map<(d0, d1) -> (d0, d1)>} : (tensor<?x?xf32>, index, index) -> tensor<?x?xf32>
  %i = tensor.empty(%s0, %s1) : tensor<?x?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
    iterator_types = ["parallel", "parallel"]} ins(%v : tensor<?x?xf32>) outs(%i : tensor<?x?xf32>) {
    ^bb0(%a: f32, %b: f32):
      %s = math.exp %a : f32
      linalg.yield %s : f32
  } -> tensor<?x?xf32>
  %o = "symshape.store"(%r, %dest) {map = affine_map<(d0, d1) -> (d0, d1)>} : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  return %o : tensor<?x?xf32>
}

// -----

// A transpose: tiles of both dims, the fast one of the stores second; thin ones where one of them is short,
// flat where that does not pay.
// CHECK-LABEL: func.func private @transpose(
// CHECK:         name = "tile8x256", num_stages = 1 : i64, num_warps = 4 : i64, one_launch = false, rblock = 0 : i64, xblock = 256 : i64, yblock = 8 : i64
// CHECK:         name = "tile256x8", num_stages = 1 : i64, num_warps = 4 : i64, one_launch = false, rblock = 0 : i64, xblock = 8 : i64, yblock = 256 : i64
// CHECK:         name = "tile32x64", num_stages = 1 : i64, num_warps = 4 : i64, one_launch = false, rblock = 0 : i64, xblock = 64 : i64, yblock = 32 : i64
// CHECK:         name = "tile64x32", num_stages = 1 : i64, num_warps = 4 : i64, one_launch = false, rblock = 0 : i64, xblock = 32 : i64, yblock = 64 : i64
// CHECK:         name = "tile32", num_stages = 1 : i64, num_warps = 4 : i64, one_launch = false, rblock = 0 : i64, xblock = 32 : i64, yblock = 32 : i64
// CHECK:         dims = ["d0", "d1"], form = "tile", {{.*}} name = "tile64", num_stages = 1 : i64, num_warps = 8 : i64, one_launch = false, rblock = 0 : i64, xblock = 64 : i64, yblock = 64 : i64
// CHECK:         name = "block1024"
// CHECK-NOT:     symshape.variant
func.func private @transpose(%x: tensor<?x?xf32>, %dest: tensor<?x?xf32>, %s0: index, %s1: index) -> tensor<?x?xf32>
    attributes {symshape.kernel, symshape.kind = "pointwise", symshape.num_inputs = 1 : i64, symshape.num_outputs = 1 : i64} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s1, %s0, %s0, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%dest, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  "symshape.space"(%s0, %s1) {iterators = ["parallel", "parallel"]} : (index, index) -> ()
  %v = "symshape.view"(%x, %s0, %s1) {map = affine_map<(d0, d1) -> (d1, d0)>} : (tensor<?x?xf32>, index, index) -> tensor<?x?xf32>
  %i = tensor.empty(%s0, %s1) : tensor<?x?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
    iterator_types = ["parallel", "parallel"]} ins(%v : tensor<?x?xf32>) outs(%i : tensor<?x?xf32>) {
    ^bb0(%a: f32, %b: f32):
      %s = math.exp %a : f32
      linalg.yield %s : f32
  } -> tensor<?x?xf32>
  %o = "symshape.store"(%r, %dest) {map = affine_map<(d0, d1) -> (d0, d1)>} : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  return %o : tensor<?x?xf32>
}

// -----

// Both dims are long at every launch: no flat variant.
// CHECK-LABEL: func.func private @long(
// CHECK:         name = "tile32"
// CHECK:         %[[TRUE:.*]] = arith.constant true
// CHECK:         "symshape.variant"(%[[TRUE]]) {{{.*}} name = "tile64"
// CHECK-NOT:     symshape.variant
func.func private @long(%x: tensor<?x?xf32>, %dest: tensor<?x?xf32>, %s0: index, %s1: index) -> tensor<?x?xf32>
    attributes {symshape.kernel, symshape.kind = "pointwise", symshape.num_inputs = 1 : i64, symshape.num_outputs = 1 : i64} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %k0 = arith.constant 16 : index
  %h0 = arith.cmpi sge, %s0, %k0 : index
  "symshape.assume"(%h0) : (i1) -> ()
  %k1 = arith.constant 100 : index
  %h1 = arith.cmpi sge, %s1, %k1 : index
  "symshape.assume"(%h1) : (i1) -> ()
  "symshape.bind"(%x, %s1, %s0, %s0, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%dest, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  "symshape.space"(%s0, %s1) {iterators = ["parallel", "parallel"]} : (index, index) -> ()
  %v = "symshape.view"(%x, %s0, %s1) {map = affine_map<(d0, d1) -> (d1, d0)>} : (tensor<?x?xf32>, index, index) -> tensor<?x?xf32>
  %i = tensor.empty(%s0, %s1) : tensor<?x?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
    iterator_types = ["parallel", "parallel"]} ins(%v : tensor<?x?xf32>) outs(%i : tensor<?x?xf32>) {
    ^bb0(%a: f32, %b: f32):
      %s = math.exp %a : f32
      linalg.yield %s : f32
  } -> tensor<?x?xf32>
  %o = "symshape.store"(%r, %dest) {map = affine_map<(d0, d1) -> (d0, d1)>} : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  return %o : tensor<?x?xf32>
}

// -----

// At most 100 points: small blocks always.
// CHECK-LABEL: func.func private @small(
// CHECK:         %[[TRUE:.*]] = arith.constant true
// CHECK:         "symshape.variant"(%[[TRUE]]) {{{.*}} name = "block256"
// CHECK-NOT:     symshape.variant
func.func private @small(%x: tensor<?x?xf32>, %dest: tensor<?x?xf32>, %s0: index, %s1: index) -> tensor<?x?xf32>
    attributes {symshape.kernel, symshape.kind = "pointwise", symshape.num_inputs = 1 : i64, symshape.num_outputs = 1 : i64} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %k0 = arith.constant 10 : index
  %h0 = arith.cmpi sle, %s0, %k0 : index
  "symshape.assume"(%h0) : (i1) -> ()
  %k1 = arith.constant 10 : index
  %h1 = arith.cmpi sle, %s1, %k1 : index
  "symshape.assume"(%h1) : (i1) -> ()
  "symshape.bind"(%x, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%dest, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  "symshape.space"(%s0, %s1) {iterators = ["parallel", "parallel"]} : (index, index) -> ()
  %v = "symshape.view"(%x, %s0, %s1) {map = affine_map<(d0, d1) -> (d0, d1)>} : (tensor<?x?xf32>, index, index) -> tensor<?x?xf32>
  %i = tensor.empty(%s0, %s1) : tensor<?x?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
    iterator_types = ["parallel", "parallel"]} ins(%v : tensor<?x?xf32>) outs(%i : tensor<?x?xf32>) {
    ^bb0(%a: f32, %b: f32):
      %s = math.exp %a : f32
      linalg.yield %s : f32
  } -> tensor<?x?xf32>
  %o = "symshape.store"(%r, %dest) {map = affine_map<(d0, d1) -> (d0, d1)>} : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  return %o : tensor<?x?xf32>
}
