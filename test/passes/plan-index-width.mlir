// RUN: symshape-opt %s --split-input-file --plan-index-width | filecheck %s

// Every address is less than the number of points, of which no dim is 0 where anything is launched.
// CHECK-LABEL: func.func private @any(
// CHECK-SAME:    %[[N:[^:]*]]: index, %[[M:[^:]*]]: index)
// CHECK:         %[[LIMIT:.*]] = arith.constant 2147352576 : index
// CHECK:         %[[POINTS:.*]] = arith.muli %[[N]], %[[M]] : index
// CHECK:         %[[FITS:.*]] = arith.cmpi sge, %[[LIMIT]], %[[POINTS]] : index
// CHECK:         "symshape.variant"(%[[FITS]]) {{{.*}} index_bits = 32 : i64, name = "block512"
// CHECK:         "symshape.variant"(%{{.*}}) {{{.*}} index_bits = 64 : i64, name = "block512_wide"
// CHECK-NOT:     symshape.variant
func.func private @any(%x: tensor<?x?xf32>, %dest: tensor<?x?xf32>, %s0: index, %s1: index) -> tensor<?x?xf32>
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

// Provably small.
// CHECK-LABEL: func.func private @small(
// CHECK:         %[[TRUE:.*]] = arith.constant true
// CHECK:         "symshape.variant"(%[[TRUE]]) {{{.*}} index_bits = 32 : i64, name = "block512"
// CHECK-NOT:     symshape.variant
func.func private @small(%x: tensor<?x?xf32>, %dest: tensor<?x?xf32>, %s0: index, %s1: index) -> tensor<?x?xf32>
    attributes {symshape.kernel, symshape.kind = "pointwise", symshape.num_inputs = 1 : i64, symshape.num_outputs = 1 : i64} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %k0 = arith.constant 4096 : index
  %h0 = arith.cmpi sle, %s0, %k0 : index
  "symshape.assume"(%h0) : (i1) -> ()
  %k1 = arith.constant 4096 : index
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

// -----

// A reduced dim may be 0: then its product with the rows says nothing of the rows.
// CHECK-LABEL: func.func private @rows(
// CHECK-SAME:    %[[N:[^:]*]]: index, %[[M:[^:]*]]: index)
// CHECK-DAG:     %[[LIMIT:.*]] = arith.constant 2147352576 : index
// CHECK-DAG:     %[[POINTS:.*]] = arith.muli %[[N]], %[[M]] : index
// CHECK-DAG:     arith.cmpi sge, %[[LIMIT]], %[[POINTS]] : index
// CHECK-DAG:     arith.cmpi sge, %[[LIMIT]], %[[N]] : index
// CHECK:         index_bits = 32 : i64, name = "looped"
// CHECK:         index_bits = 64 : i64, name = "looped_wide"
func.func private @rows(%x: tensor<?x?xf32>, %dest: tensor<?xf32>, %s0: index, %s1: index) -> tensor<?xf32>
    attributes {symshape.kernel, symshape.kind = "reduction", symshape.num_inputs = 1 : i64, symshape.num_outputs = 1 : i64} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%dest, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  "symshape.space"(%s0, %s1) {iterators = ["parallel", "reduction"]} : (index, index) -> ()
  %v = "symshape.view"(%x, %s0, %s1) {map = affine_map<(d0, d1) -> (d0, d1)>} : (tensor<?x?xf32>, index, index) -> tensor<?x?xf32>
  %zero = arith.constant 0.0 : f32
  %i = tensor.splat %zero[%s0] : tensor<?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>],
    iterator_types = ["parallel", "reduction"]} ins(%v : tensor<?x?xf32>) outs(%i : tensor<?xf32>) attrs = {symshape.combiner = "add"} {
    ^bb0(%a: f32, %b: f32):
      %s = arith.addf %a, %b : f32
      linalg.yield %s : f32
  } -> tensor<?xf32>
  %o = "symshape.store"(%r, %dest) {map = affine_map<(d0) -> (d0)>} : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  return %o : tensor<?xf32>
}
