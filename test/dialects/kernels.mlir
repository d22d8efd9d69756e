// RUN: symshape-opt %s | symshape-opt | filecheck %s

// CHECK-DAG: #[[ROWS:.*]] = affine_map<(d0, d1)[s0] -> (d0 * s0 + d1)>
// CHECK-DAG: #[[INSIDE:.*]] = affine_set<(d0, d1)[s0] : (d0 - s0 >= 0, d1 == 0)>

// CHECK-LABEL: func.func @view(
// CHECK-SAME:    %[[X:.*]]: tensor<?xf32>, %[[N:.*]]: index, %[[M:.*]]: index
func.func @view(%x: tensor<?xf32>, %n: index, %m: index) -> (tensor<?x?xf32>, tensor<?x?xf32>) {
  // CHECK: "symshape.view"(%[[X]], %[[N]], %[[M]], %[[M]]) {map = #[[ROWS]]} : (tensor<?xf32>, index, index, index) -> tensor<?x?xf32>
  %v = "symshape.view"(%x, %n, %m, %m) {map = affine_map<(d0, d1)[s0] -> (d0 * s0 + d1)>} : (tensor<?xf32>, index, index, index) -> tensor<?x?xf32>
  // CHECK: "symshape.view"(%[[X]], %[[N]], %[[M]], %[[N]]) {domain = #[[INSIDE]], map = #{{.*}}}
  %w = "symshape.view"(%x, %n, %m, %n) {map = affine_map<(d0, d1)[s0] -> (d0 - s0)>,
       domain = affine_set<(d0, d1)[s0] : (d0 - s0 >= 0, d1 == 0)>} : (tensor<?xf32>, index, index, index) -> tensor<?x?xf32>
  return %v, %w : tensor<?x?xf32>, tensor<?x?xf32>
}

// CHECK-LABEL: func.func @kernel(
// CHECK-SAME:    %[[X:.*]]: tensor<?x256xf32>, %[[D:.*]]: tensor<?x256xf32>, %[[N:.*]]: index
func.func @kernel(%x: tensor<?x256xf32>, %d: tensor<?x256xf32>, %n: index) -> tensor<?x256xf32>
    attributes {symshape.kernel, symshape.num_inputs = 1 : i64, symshape.num_outputs = 1 : i64} {
  // CHECK: "symshape.space"(%[[N]], %[[N]]) {iterators = ["parallel", "reduction"]} : (index, index) -> ()
  "symshape.space"(%n, %n) {iterators = ["parallel", "reduction"]} : (index, index) -> ()
  // CHECK: "symshape.store"(%[[X]], %[[D]], %[[N]]) {map = #{{.*}}} : (tensor<?x256xf32>, tensor<?x256xf32>, index) -> tensor<?x256xf32>
  %o = "symshape.store"(%x, %d, %n) {map = affine_map<(d0, d1)[s0] -> (d0 + s0, d1)>} : (tensor<?x256xf32>, tensor<?x256xf32>, index) -> tensor<?x256xf32>
  return %o : tensor<?x256xf32>
}

// A kernel without dims.
// CHECK-LABEL: func.func @scalar(
func.func @scalar(%x: tensor<f32>, %d: tensor<f32>) -> tensor<f32>
    attributes {symshape.kernel, symshape.num_inputs = 1 : i64, symshape.num_outputs = 1 : i64} {
  // CHECK: "symshape.space"() {iterators = []} : () -> ()
  "symshape.space"() {iterators = []} : () -> ()
  // CHECK: "symshape.store"
  %o = "symshape.store"(%x, %d) {map = affine_map<() -> ()>} : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return %o : tensor<f32>
}

// CHECK-LABEL: func.func @gather(
// CHECK-SAME:    %[[X:.*]]: tensor<?xf32>, %{{.*}}: tensor<?xi64>, %[[N:.*]]: index
func.func @gather(%x: tensor<?xf32>, %i: tensor<?xi64>, %n: index) -> tensor<?xf32> {
  %e = tensor.empty(%n) : tensor<?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%i : tensor<?xi64>) outs(%e : tensor<?xf32>) {
  ^bb0(%at: i64, %out: f32):
    %k = arith.index_cast %at : i64 to index
    // CHECK: %[[J:.*]] = "symshape.check_index"(%{{.*}}, %[[N]]) {message = "index out of range in self"} : (index, index) -> index
    %j = "symshape.check_index"(%k, %n) {message = "index out of range in self"} : (index, index) -> index
    // CHECK: tensor.extract %[[X]][%[[J]]]
    %v = tensor.extract %x[%j] : tensor<?xf32>
    linalg.yield %v : f32
  } -> tensor<?xf32>
  return %r : tensor<?xf32>
}
