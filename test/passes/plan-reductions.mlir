// RUN: symshape-opt %s --split-input-file --plan-reductions | filecheck %s

// Rows of any size: short ones many to a program, long ones shared among programs where they are few.
// CHECK-LABEL: func.func private @any(
// CHECK-SAME:    %[[X:.*]]: tensor<?x?xf32>, %{{.*}}: tensor<?xf32>, %[[N:.*]]: index, %[[M:.*]]: index
// CHECK:         %[[C2:.*]] = arith.constant 2 : index
// CHECK:         %[[TINY:.*]] = arith.cmpi sge, %[[C2]], %[[M]] : index
// CHECK:         "symshape.variant"(%[[TINY]]) {{{.*}} form = "persistent", {{.*}} name = "persistent2", num_stages = 1 : i64, num_warps = 4 : i64, one_launch = false, rblock = 2 : i64, xblock = 512 : i64
// CHECK:         name = "persistent8"
// CHECK:         name = "persistent32"
// CHECK:         %[[C128:.*]] = arith.constant 128 : index
// CHECK:         %[[SHORT:.*]] = arith.cmpi sge, %[[C128]], %[[M]] : index
// CHECK:         "symshape.variant"(%[[SHORT]]) {{{.*}} name = "persistent128", num_stages = 1 : i64, num_warps = 4 : i64, one_launch = false, rblock = 128 : i64, xblock = 8 : i64
// CHECK:         name = "persistent256"
// CHECK:         name = "persistent512"
// CHECK:         name = "persistent1024"
// CHECK:         name = "headed6144"
// CHECK:         %[[SHARE:.*]] = arith.constant 16384 : index
// CHECK:         name = "headed16384"
// CHECK:         %[[P:.*]] = "symshape.processors"
// CHECK:         %[[WORK:.*]] = arith.muli %[[N]], %[[M]] : index
// CHECK:         %[[ROUNDED:.*]] = arith.addi %[[WORK]], %{{.*}} : index
// CHECK:         %[[SHARES:.*]] = arith.muli %[[P]], %[[SHARE]] : index
// CHECK:         %[[WAVES:.*]] = arith.floordivsi %[[ROUNDED]], %[[SHARES]] : index
// CHECK:         %[[FEW:.*]] = arith.minsi %{{.*}}, %[[WAVES]] : index
// CHECK:         %[[SOME:.*]] = arith.maxsi %{{.*}}, %[[FEW]] : index
// CHECK:         %[[PROGRAMS:.*]] = arith.muli %[[P]], %[[SOME]] : index
// CHECK:         %[[STEP:.*]] = arith.constant 49152 : index
// CHECK:         %[[LONG:.*]] = arith.cmpi sge, %[[M]], %[[STEP]] : index
// CHECK:         %[[HELD:.*]] = arith.andi %[[LONG]], %{{.*}} : i1
// CHECK:         "symshape.variant"(%[[HELD]]) {{{.*}} form = "split_persistent", {{.*}} name = "split_persistent", num_stages = 1 : i64, num_warps = 16 : i64, one_launch = false, rblock = 8192 : i64, xblock = 1 : i64, yblock = 2048 : i64
// CHECK:         name = "split_persistent_many", num_stages = 1 : i64, num_warps = 16 : i64, one_launch = false, rblock = 8192 : i64, xblock = 1 : i64, yblock = 16384 : i64
// CHECK:         %[[SPLIT:.*]] = arith.andi %[[LONG]], %{{.*}} : i1
// CHECK:         %[[EACH:.*]] = arith.floordivsi %[[PROGRAMS]], %[[N]] : index
// CHECK:         %[[LEAST:.*]] = arith.minsi %{{.*}}, %[[EACH]] : index
// CHECK:         %[[SPLITS:.*]] = arith.maxsi %{{.*}}, %[[LEAST]] : index
// CHECK:         "symshape.variant"(%[[SPLIT]], %[[SPLITS]]) {{{.*}} form = "split", {{.*}} name = "split", {{.*}} rblock = 2048 : i64, xblock = 1 : i64
// CHECK:         %[[TRUE:.*]] = arith.constant true
// CHECK:         "symshape.variant"(%[[TRUE]]) {{{.*}} form = "looped", {{.*}} name = "looped"
// CHECK-NOT:     symshape.variant
func.func private @any(%x: tensor<?x?xf32>, %dest: tensor<?xf32>, %s0: index, %s1: index) -> tensor<?xf32>
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

// -----

// At most 1000 points: neither looped nor split, and the last variant has just the points that there can be.
// CHECK-LABEL: func.func private @bounded(
// CHECK:         name = "persistent2"
// CHECK:         name = "persistent512"
// CHECK:         %[[TRUE:.*]] = arith.constant true
// CHECK:         "symshape.variant"(%[[TRUE]]) {{{.*}} name = "persistent1024"
// CHECK-NOT:     symshape.variant
// CHECK-NOT:     symshape.processors
func.func private @bounded(%x: tensor<?x?xf32>, %dest: tensor<?xf32>, %s0: index, %s1: index) -> tensor<?xf32>
    attributes {symshape.kernel, symshape.kind = "reduction", symshape.num_inputs = 1 : i64, symshape.num_outputs = 1 : i64} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %k0 = arith.constant 1000 : index
  %h0 = arith.cmpi sle, %s1, %k0 : index
  "symshape.assume"(%h0) : (i1) -> ()
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

// -----

// At least 129 points: no variant for shorter ones. At least 10000 rows on at most 1024 processors: none is split.
// CHECK-LABEL: func.func private @many_long(
// CHECK-NOT:     name = "persistent128"
// CHECK:         name = "persistent256"
// CHECK:         name = "persistent1024"
// CHECK-NOT:     symshape.processors
// CHECK:         name = "looped"
// CHECK-NOT:     symshape.variant
func.func private @many_long(%x: tensor<?x?xf32>, %dest: tensor<?xf32>, %s0: index, %s1: index) -> tensor<?xf32>
    attributes {symshape.kernel, symshape.kind = "reduction", symshape.num_inputs = 1 : i64, symshape.num_outputs = 1 : i64} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %k0 = arith.constant 129 : index
  %h0 = arith.cmpi sge, %s1, %k0 : index
  "symshape.assume"(%h0) : (i1) -> ()
  %k1 = arith.constant 10000 : index
  %h1 = arith.cmpi sge, %s0, %k1 : index
  "symshape.assume"(%h1) : (i1) -> ()
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

// -----

// A constant number of points: one variant.
// CHECK-LABEL: func.func private @constant(
// CHECK:         "symshape.variant"(%{{.*}}) {{{.*}} name = "persistent1024"
// CHECK-NOT:     symshape.variant
func.func private @constant(%x: tensor<?x?xf32>, %dest: tensor<?xf32>, %s0: index) -> tensor<?xf32>
    attributes {symshape.kernel, symshape.kind = "reduction", symshape.num_inputs = 1 : i64, symshape.num_outputs = 1 : i64} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r0 = arith.constant 768 : index
  "symshape.bind"(%x, %s0, %r0, %r0, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%dest, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  "symshape.space"(%s0, %r0) {iterators = ["parallel", "reduction"]} : (index, index) -> ()
  %v = "symshape.view"(%x, %s0, %r0) {map = affine_map<(d0, d1) -> (d0, d1)>} : (tensor<?x?xf32>, index, index) -> tensor<?x?xf32>
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

// -----

// Rows lie next to each other: 64 of them in a program, more where they are short or many.
// CHECK-LABEL: func.func private @column(
// CHECK:         name = "persistent4", num_stages = 1 : i64, num_warps = 4 : i64, one_launch = false, rblock = 4 : i64, xblock = 512 : i64
// CHECK:         %[[P:.*]] = "symshape.processors"
// CHECK:         %[[WIDE:.*]] = arith.muli %[[P]], %{{.*}} : index
// CHECK:         %[[MANY:.*]] = arith.cmpi sge, %{{.*}}, %[[WIDE]] : index
// CHECK:         "symshape.variant"(%[[MANY]]) {{{.*}} form = "looped", {{.*}} name = "columns", num_stages = 1 : i64, num_warps = 8 : i64, one_launch = false, rblock = 4 : i64, xblock = 1024 : i64
// CHECK:         name = "persistent16", num_stages = 1 : i64, num_warps = 4 : i64, one_launch = false, rblock = 16 : i64, xblock = 64 : i64
// CHECK:         name = "persistent64", num_stages = 1 : i64, num_warps = 16 : i64, one_launch = false, rblock = 64 : i64, xblock = 64 : i64
// CHECK:         name = "split_persistent2", num_stages = 1 : i64, num_warps = 16 : i64, one_launch = false, rblock = 4096 : i64, xblock = 2 : i64, yblock = 4096 : i64
// CHECK:         name = "split_persistent8", num_stages = 1 : i64, num_warps = 16 : i64, one_launch = false, rblock = 1024 : i64, xblock = 8 : i64
// CHECK:         name = "split_persistent32", num_stages = 1 : i64, num_warps = 16 : i64, one_launch = false, rblock = 256 : i64, xblock = 32 : i64
// CHECK:         name = "split_persistent", num_stages = 1 : i64, num_warps = 16 : i64, one_launch = false, rblock = 256 : i64, xblock = 32 : i64, yblock = 512 : i64
// CHECK:         name = "split", num_stages = 1 : i64, num_warps = 8 : i64, one_launch = false, rblock = 64 : i64, xblock = 64 : i64
// CHECK:         name = "looped", num_stages = 1 : i64, num_warps = 8 : i64, one_launch = false, rblock = 32 : i64, xblock = 64 : i64
func.func private @column(%x: tensor<?x?xf32>, %dest: tensor<?xf32>, %s0: index, %s1: index) -> tensor<?xf32>
    attributes {symshape.kernel, symshape.kind = "reduction", symshape.num_inputs = 1 : i64, symshape.num_outputs = 1 : i64} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%dest, %s1, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  "symshape.space"(%s1, %s0) {iterators = ["parallel", "reduction"]} : (index, index) -> ()
  %v = "symshape.view"(%x, %s1, %s0) {map = affine_map<(d0, d1) -> (d1, d0)>} : (tensor<?x?xf32>, index, index) -> tensor<?x?xf32>
  %zero = arith.constant 0.0 : f32
  %i = tensor.splat %zero[%s1] : tensor<?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>],
    iterator_types = ["parallel", "reduction"]} ins(%v : tensor<?x?xf32>) outs(%i : tensor<?xf32>) attrs = {symshape.combiner = "add"} {
    ^bb0(%a: f32, %b: f32):
      %s = arith.addf %a, %b : f32
      linalg.yield %s : f32
  } -> tensor<?xf32>
  %o = "symshape.store"(%r, %dest) {map = affine_map<(d0) -> (d0)>} : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  return %o : tensor<?xf32>
}

// -----

// A row that is read twice is held, in two blocks from 1024 points on: the first is full, the second has the others.
// CHECK-LABEL: func.func private @held(
// CHECK-SAME:    %{{.*}}: tensor<?x?xf32>, %{{.*}}: tensor<?x?xf32>, %{{.*}}: index, %[[M:.*]]: index
// CHECK:         name = "persistent1024"
// CHECK:         %[[MOST:.*]] = arith.cmpi sge, %{{.*}}, %[[M]] : index
// CHECK:         %[[LEAST:.*]] = arith.cmpi sge, %[[M]], %{{.*}} : index
// CHECK:         %[[FITS:.*]] = arith.andi %[[LEAST]], %[[MOST]] : i1
// CHECK:         "symshape.variant"(%[[FITS]]) {{{.*}} form = "headed", {{.*}} name = "headed1536", num_stages = 1 : i64, num_warps = 4 : i64, one_launch = false, rblock = 1024 : i64, xblock = 1 : i64, yblock = 512 : i64
// CHECK:         name = "headed2048", num_stages = 1 : i64, num_warps = 4 : i64, one_launch = false, rblock = 1024 : i64, xblock = 1 : i64, yblock = 1024 : i64
// CHECK:         name = "headed10240", num_stages = 1 : i64, num_warps = 8 : i64, one_launch = false, rblock = 8192 : i64, xblock = 1 : i64, yblock = 2048 : i64
// CHECK:         name = "headed16384", num_stages = 1 : i64, num_warps = 8 : i64, one_launch = false, rblock = 8192 : i64, xblock = 1 : i64, yblock = 8192 : i64
// CHECK:         name = "split", num_stages = 1 : i64, num_warps = 8
// CHECK:         name = "looped", num_stages = 1 : i64, num_warps = 16
func.func private @held(%x: tensor<?x?xf32>, %dest: tensor<?x?xf32>, %s0: index, %s1: index) -> tensor<?x?xf32>
    attributes {symshape.kernel, symshape.kind = "reduction", symshape.num_inputs = 1 : i64, symshape.num_outputs = 1 : i64} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%dest, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
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
  %e = tensor.empty(%s0, %s1) : tensor<?x?xf32>
  %q = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>],
    iterator_types = ["parallel", "parallel"]} ins(%v, %r : tensor<?x?xf32>, tensor<?xf32>) outs(%e : tensor<?x?xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %s = arith.divf %a, %b : f32
      linalg.yield %s : f32
  } -> tensor<?x?xf32>
  %o = "symshape.store"(%q, %dest) {map = affine_map<(d0, d1) -> (d0, d1)>} : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  return %o : tensor<?x?xf32>
}
