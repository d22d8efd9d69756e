// RUN: symshape-opt %s --split-input-file --mix-reductions | filecheck %s

// The sum of columns reads what the rows are computed of and what they become: one launch, before the product between
// them. Its destination is allocated there.
// CHECK-LABEL: func.func @main(
// CHECK:         %[[D0:.*]] = tensor.empty(%{{.*}}, %{{.*}}) : tensor<?x?xf32>
// CHECK-NEXT:    %[[D1:.*]] = tensor.empty(%{{.*}}) : tensor<?xf32>
// CHECK-NEXT:    %[[R:.*]]:2 = "host.launch"(%[[X:.*]], %[[D0]], %[[D1]], %[[N:.*]], %[[M:.*]]) {callee = @[[MIXED:kernel_.*]]}
// CHECK-NEXT:    %[[P:.*]] = "host.call"(%[[R]]#0, %[[X]])
// CHECK-NEXT:    return %[[P]], %[[R]]#1
// CHECK:       func.func private @[[MIXED]](%[[A:.*]]: tensor<?x?xf32>, %[[B:.*]]: tensor<?x?xf32>, %[[C:.*]]: tensor<?xf32>, %[[S0:.*]]: index, %[[S1:.*]]: index)
// CHECK-SAME:    symshape.kind = "mixed", symshape.num_inputs = 1 : i64, symshape.num_outputs = 2 : i64
// CHECK-NEXT:    %[[Y:.*]] = "host.launch"(%[[A]], %[[B]], %[[S0]], %[[S1]]) {callee = @rows}
// CHECK-NEXT:    %[[Z:.*]] = "host.launch"(%[[Y]], %[[A]], %[[C]], %[[S0]], %[[S1]]) {callee = @columns}
// CHECK:         %[[C4096:.*]] = arith.constant 4096 : index
// CHECK:         %[[MANY:.*]] = arith.cmpi sge, %[[S0]], %[[C4096]] : index
// CHECK:         %[[C32:.*]] = arith.constant 32 : index
// CHECK:         %[[SHORT:.*]] = arith.cmpi sge, %[[C32]], %[[S1]] : index
// CHECK:         "symshape.variant"(%{{.*}}, %{{.*}}) {{{.*}} form = "mixed", {{.*}} name = "mixed32", num_stages = 1 : i64, num_warps = 16 : i64, one_launch = false, rblock = 32 : i64, xblock = 64 : i64
// CHECK:         name = "mixed4096", num_stages = 1 : i64, num_warps = 4 : i64, one_launch = false, rblock = 4096 : i64, xblock = 1 : i64
// CHECK:         "symshape.variant"(%{{.*}}) {{{.*}} form = "mixed_split", {{.*}} name = "split", num_stages = 1 : i64, num_warps = 4 : i64, one_launch = false, rblock = 1024 : i64, xblock = 1 : i64
// CHECK:         %[[TRUE:.*]] = arith.constant true
// CHECK:         "symshape.variant"(%[[TRUE]]) {{{.*}} form = "separate"
// CHECK-NOT:     symshape.variant
// CHECK:         return %[[Y]], %[[Z]]
func.func @main(%x: tensor<?x?xf32>) -> (tensor<?x?xf32>, tensor<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %s0 = "symshape.symbol"() {binding = "arg0.size(0)", divisor = 1 : i64, hint = 5 : i64, max = 9223372036854775807 : i64, min = 0 : i64, name = "s0", source = "x.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {binding = "arg0.size(1)", divisor = 1 : i64, hint = 7 : i64, max = 9223372036854775807 : i64, min = 0 : i64, name = "s1", source = "x.size(1)"} : () -> index
  "symshape.bind"(%x, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  %d0 = tensor.empty(%s0, %s1) : tensor<?x?xf32>
  %y = "host.launch"(%x, %d0, %s0, %s1) {callee = @rows} : (tensor<?x?xf32>, tensor<?x?xf32>, index, index) -> tensor<?x?xf32>
  %p = "host.call"(%y, %x) {target = "aten.mm.default", arguments = "($0, $1)", fresh} : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  %d1 = tensor.empty(%s1) : tensor<?xf32>
  %z = "host.launch"(%y, %x, %d1, %s0, %s1) {callee = @columns} : (tensor<?x?xf32>, tensor<?x?xf32>, tensor<?xf32>, index, index) -> tensor<?xf32>
  return %p, %z : tensor<?x?xf32>, tensor<?xf32>
}
func.func private @rows(%x: tensor<?x?xf32>, %dest: tensor<?x?xf32>, %s0: index, %s1: index) -> tensor<?x?xf32>
    attributes {symshape.kernel, symshape.kind = "reduction", symshape.num_inputs = 1 : i64, symshape.num_outputs = 1 : i64} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%dest, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  "symshape.space"(%s0, %s1) {iterators = ["parallel", "reduction"]} : (index, index) -> ()
  %v = "symshape.view"(%x, %s0, %s1) {map = affine_map<(d0, d1) -> (d0, d1)>} : (tensor<?x?xf32>, index, index) -> tensor<?x?xf32>
  %zero = arith.constant 0.0 : f32
  %i = tensor.splat %zero[%s0] : tensor<?xf32>
  %sum = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>],
    iterator_types = ["parallel", "reduction"]} ins(%v : tensor<?x?xf32>) outs(%i : tensor<?xf32>) attrs = {symshape.combiner = "add"} {
    ^bb0(%a: f32, %b: f32):
      %s = arith.addf %a, %b : f32
      linalg.yield %s : f32
  } -> tensor<?xf32>
  %e = tensor.empty(%s0, %s1) : tensor<?x?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>],
    iterator_types = ["parallel", "parallel"]} ins(%v, %sum : tensor<?x?xf32>, tensor<?xf32>) outs(%e : tensor<?x?xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %s = arith.subf %a, %b : f32
      linalg.yield %s : f32
  } -> tensor<?x?xf32>
  %o = "symshape.store"(%r, %dest) {map = affine_map<(d0, d1) -> (d0, d1)>} : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  return %o : tensor<?x?xf32>
}
func.func private @columns(%y: tensor<?x?xf32>, %x: tensor<?x?xf32>, %dest: tensor<?xf32>, %s0: index, %s1: index) -> tensor<?xf32>
    attributes {symshape.kernel, symshape.kind = "reduction", symshape.num_inputs = 2 : i64, symshape.num_outputs = 1 : i64} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%y, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%x, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%dest, %s1, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  "symshape.space"(%s0, %s1) {iterators = ["reduction", "parallel"]} : (index, index) -> ()
  %v = "symshape.view"(%y, %s0, %s1) {map = affine_map<(d0, d1) -> (d0, d1)>} : (tensor<?x?xf32>, index, index) -> tensor<?x?xf32>
  %w = "symshape.view"(%x, %s0, %s1) {map = affine_map<(d0, d1) -> (d0, d1)>} : (tensor<?x?xf32>, index, index) -> tensor<?x?xf32>
  %e = tensor.empty(%s0, %s1) : tensor<?x?xf32>
  %m = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
    iterator_types = ["parallel", "parallel"]} ins(%v, %w : tensor<?x?xf32>, tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %s = arith.mulf %a, %b : f32
      linalg.yield %s : f32
  } -> tensor<?x?xf32>
  %zero = arith.constant 0.0 : f32
  %i = tensor.splat %zero[%s1] : tensor<?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>],
    iterator_types = ["reduction", "parallel"]} ins(%m : tensor<?x?xf32>) outs(%i : tensor<?xf32>) attrs = {symshape.combiner = "add"} {
    ^bb0(%a: f32, %b: f32):
      %s = arith.addf %a, %b : f32
      linalg.yield %s : f32
  } -> tensor<?xf32>
  %o = "symshape.store"(%r, %dest) {map = affine_map<(d0) -> (d0)>} : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  return %o : tensor<?xf32>
}
