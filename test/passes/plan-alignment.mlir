// RUN: symshape-opt %s --split-input-file --plan-alignment | filecheck %s

// A contiguous kernel is flat: both addresses in one test. Whole blocks have no mask, whatever the number of points.
// CHECK-LABEL: func.func private @flat(
// CHECK-SAME:    %[[X:.*]]: tensor<?x?xf32>, %[[D:.*]]: tensor<?x?xf32>, %{{.*}}: index, %{{[^:]*}}: index)
// CHECK:         %[[A:.*]] = "symshape.address"(%[[X]])
// CHECK:         %[[B:.*]] = "symshape.address"(%[[D]])
// CHECK:         %[[AB:.*]] = arith.ori %[[A]], %[[B]] : index
// CHECK:         %[[C15:.*]] = arith.constant 15 : index
// CHECK:         %[[LOW:.*]] = arith.andi %[[AB]], %[[C15]] : index
// CHECK:         %[[TEST:.*]] = arith.cmpi eq, %[[LOW]], %{{.*}} : index
// CHECK:         "symshape.variant"(%[[TEST]]) {aligned = ["in0", "out0"], {{.*}} name = "block512_aligned"
// CHECK:         "symshape.variant"(%{{.*}}) {aligned = [], {{.*}} name = "block512"
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

// What is proven is not tested, and every variant may rely on it.
// CHECK-LABEL: func.func private @divisor(
// CHECK-SAME:    %[[X:.*]]: tensor<?x?xf32>, %{{.*}}: tensor<?xf32>
// CHECK:         %[[A:.*]] = "symshape.address"(%[[X]])
// CHECK-NOT:     arith.ori
// CHECK:         %[[LOW:.*]] = arith.andi %[[A]], %{{.*}} : index
// CHECK:         %[[TEST:.*]] = arith.cmpi eq, %[[LOW]]
// CHECK:         "symshape.variant"(%[[TEST]]) {aligned = ["in0", "s1"], {{.*}} name = "looped_aligned"
// CHECK:         {aligned = ["s1"], {{.*}} name = "looped"
func.func private @divisor(%x: tensor<?x?xf32>, %dest: tensor<?xf32>, %s0: index, %s1: index) -> tensor<?xf32>
    attributes {symshape.kernel, symshape.kind = "reduction", symshape.num_inputs = 1 : i64, symshape.num_outputs = 1 : i64} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %k0 = arith.constant 16 : index
  %m0 = arith.remsi %s1, %k0 : index
  %h0 = arith.cmpi eq, %m0, %c0 : index
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

// 770 is no multiple of the 4 elements in 16 bytes: rows cannot be aligned.
// CHECK-LABEL: func.func private @odd(
// CHECK-NOT:     symshape.address
// CHECK:         aligned = [], {{.*}} name = "looped"
// CHECK-NOT:     symshape.variant
func.func private @odd(%x: tensor<?x?xf32>, %dest: tensor<?xf32>, %s0: index) -> tensor<?xf32>
    attributes {symshape.kernel, symshape.kind = "reduction", symshape.num_inputs = 1 : i64, symshape.num_outputs = 1 : i64} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r0 = arith.constant 770 : index
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

// The kernel reads a buffer of the host program at every launch: there is nothing to test.
// CHECK-LABEL: func.func private @allocated(
// CHECK-NOT:     symshape.address
// CHECK:         aligned = ["in0"], {{.*}} name = "looped"
// CHECK-NOT:     symshape.variant
func.func private @allocated(%x: tensor<?x?xf32>, %dest: tensor<?xf32>, %s0: index) -> tensor<?xf32>
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
func.func @main(%arg: tensor<?x768xf32>) -> tensor<?xf32> {
  %n = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %m = arith.constant 768 : index
  %x = tensor.empty(%n, %m) : tensor<?x?xf32>
  %d = tensor.empty(%n) : tensor<?xf32>
  %r = "host.launch"(%x, %d, %n) {callee = @allocated} : (tensor<?x?xf32>, tensor<?xf32>, index) -> tensor<?xf32>
  return %r : tensor<?xf32>
}

// -----

// Fast as well: a table that is read over and over, what is read at some rows only, and at indices that are known.
// CHECK-LABEL: func.func private @seen(
// CHECK:         aligned = ["in0", "in1", "in2", "out0"], {{.*}} name = "block512_aligned"
// CHECK:         aligned = [], {{.*}} name = "block512"
func.func private @seen(%table: tensor<32xf32>, %y: tensor<?x64xf32>, %x: tensor<64xf32>, %dest: tensor<?x64xf32>, %s0: index)
    -> tensor<?x64xf32>
    attributes {symshape.kernel, symshape.kind = "pointwise", symshape.num_inputs = 3 : i64, symshape.num_outputs = 1 : i64} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  "symshape.bind"(%table, %c32, %c1, %c0) : (tensor<32xf32>, index, index, index) -> ()
  "symshape.bind"(%y, %s0, %c64, %c64, %c1, %c0) : (tensor<?x64xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%x, %c64, %c1, %c0) : (tensor<64xf32>, index, index, index) -> ()
  "symshape.bind"(%dest, %s0, %c64, %c64, %c1, %c0) : (tensor<?x64xf32>, index, index, index, index, index) -> ()
  "symshape.space"(%s0, %c64) {iterators = ["parallel", "parallel"]} : (index, index) -> ()
  %t = "symshape.view"(%table, %s0, %c64) {map = affine_map<(d0, d1) -> (d1 mod 32)>}
    : (tensor<32xf32>, index, index) -> tensor<?x64xf32>
  %v = "symshape.view"(%y, %s0, %c64) {map = affine_map<(d0, d1) -> (d0 - 1, d1)>, domain = affine_set<(d0, d1) : (d0 - 1 >= 0)>}
    : (tensor<?x64xf32>, index, index) -> tensor<?x64xf32>
  %e = tensor.empty(%s0) : tensor<?x64xf32>
  %g = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
    iterator_types = ["parallel", "parallel"]} ins(%t, %v : tensor<?x64xf32>, tensor<?x64xf32>) outs(%e : tensor<?x64xf32>) {
    ^bb0(%a: f32, %b: f32, %out: f32):
      %i = linalg.index 1 : index
      %w = arith.index_cast %i : index to i64
      %zero = arith.constant 0 : i64
      %n = arith.constant 64 : i64
      %negative = arith.cmpi slt, %w, %zero : i64
      %moved = arith.addi %w, %n : i64
      %at = arith.select %negative, %moved, %w : i64
      %j = arith.index_cast %at : i64 to index
      %k = "symshape.check_index"(%j, %c64) {message = "index out of range"} : (index, index) -> index
      %c = tensor.extract %x[%k] : tensor<64xf32>
      %s = arith.addf %a, %b : f32
      %r = arith.addf %s, %c : f32
      linalg.yield %r : f32
  } -> tensor<?x64xf32>
  %o = "symshape.store"(%g, %dest) {map = affine_map<(d0, d1) -> (d0, d1)>} : (tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64xf32>
  return %o : tensor<?x64xf32>
}
