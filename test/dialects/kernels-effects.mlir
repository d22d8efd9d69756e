// RUN: symshape-opt %s --cse --canonicalize | filecheck %s

// Pure ops are merged and, unused, removed; the space stays.
// CHECK-LABEL: func.func @pure(
// CHECK-SAME:    %[[X:[^:]*]]: tensor<?xf32>, {{.*}}, %[[N:[^:]*]]: index
func.func @pure(%x: tensor<?xf32>, %d: tensor<?xf32>, %e: tensor<?xf32>, %n: index) -> (tensor<?xf32>, tensor<?xf32>)
    attributes {symshape.kernel, symshape.num_inputs = 1 : i64, symshape.num_outputs = 2 : i64} {
  // CHECK-NEXT: "symshape.space"
  "symshape.space"(%n) {iterators = ["parallel"]} : (index) -> ()
  // CHECK-NEXT: %[[V:.*]] = "symshape.view"(%[[X]], %[[N]])
  %v = "symshape.view"(%x, %n) {map = affine_map<(d0) -> (d0)>} : (tensor<?xf32>, index) -> tensor<?xf32>
  %w = "symshape.view"(%x, %n) {map = affine_map<(d0) -> (d0)>} : (tensor<?xf32>, index) -> tensor<?xf32>
  %unused = "symshape.view"(%x, %n) {map = affine_map<(d0) -> (0)>} : (tensor<?xf32>, index) -> tensor<?xf32>
  // CHECK-NEXT: return %[[V]], %[[V]]
  return %v, %w : tensor<?xf32>, tensor<?xf32>
}
