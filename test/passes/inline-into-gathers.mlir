// RUN: symshape-opt %s --split-input-file --inline-into-gathers | filecheck %s

// What is read at an index stays a gather; what only depends on the row becomes an operand.
// CHECK-DAG:   #[[ROW:.*]] = affine_map<(d0) -> (d0, 0)>
// CHECK-LABEL: func.func @log_probability(
// CHECK-SAME:    %[[X:[^:]*]]: tensor<?x?xf32>, %[[LSE:[^:]*]]: tensor<?x1xf32>, %[[T:[^:]*]]: tensor<?xi64>)
// CHECK:         %[[OWN:.*]] = "symshape.view"(%[[LSE]], %[[N:.*]]) {map = #[[ROW]]}
// CHECK:         linalg.generic {{.*}} ins(%[[T]], %[[OWN]] : tensor<?xi64>, tensor<?xf32>)
// CHECK-NEXT:    ^bb0(%[[IN:[^:]*]]: i64, %[[R:[^:]*]]: f32,
// CHECK-NEXT:      %[[J:.*]] = arith.index_cast %[[IN]]
// CHECK:           %[[A:.*]] = tensor.extract %[[X]][%{{.*}}, %[[J]]]
// CHECK-NEXT:      %[[V:.*]] = arith.subf %[[A]], %[[R]]
// CHECK-NEXT:      linalg.yield %[[V]]
#all = affine_map<(d0, d1) -> (d0, d1)>
#one = affine_map<(d0, d1) -> (d0, 0)>
#row = affine_map<(d0) -> (d0)>
func.func @log_probability(%x: tensor<?x?xf32>, %lse: tensor<?x1xf32>, %target: tensor<?xi64>) -> tensor<?xf32> {
  %s0 = "symshape.symbol"() {name = "s0", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(1)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%lse, %s0, %c1, %c1, %c1, %c0) : (tensor<?x1xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%target, %s0, %c1, %c0) : (tensor<?xi64>, index, index, index) -> ()
  %wide = "symshape.view"(%lse, %s0, %s1) {map = #one} : (tensor<?x1xf32>, index, index) -> tensor<?x?xf32>
  %e = tensor.empty(%s0, %s1) : tensor<?x?xf32>
  %p = linalg.generic {indexing_maps = [#all, #all, #all], iterator_types = ["parallel", "parallel"]}
    ins(%x, %wide : tensor<?x?xf32>, tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) {
    ^bb0(%a: f32, %b: f32, %out: f32):
      %0 = arith.subf %a, %b : f32
      linalg.yield %0 : f32
  } -> tensor<?x?xf32>
  "symshape.bind"(%p, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  %f = tensor.empty(%s0) : tensor<?xf32>
  %g = linalg.generic {indexing_maps = [#row, #row], iterator_types = ["parallel"]}
    ins(%target : tensor<?xi64>) outs(%f : tensor<?xf32>) {
    ^bb0(%t: i64, %out: f32):
      %j = arith.index_cast %t : i64 to index
      %i = linalg.index 0 : index
      %v = tensor.extract %p[%i, %j] : tensor<?x?xf32>
      linalg.yield %v : f32
  } -> tensor<?xf32>
  "symshape.bind"(%g, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  return %g : tensor<?xf32>
}

// -----

// Not where an exponential would be computed more often than there are elements.
// CHECK-LABEL: func.func @kept(
// CHECK:         %[[E:.*]] = linalg.generic
// CHECK:         tensor.extract %[[E]]
#row = affine_map<(d0) -> (d0)>
func.func @kept(%x: tensor<?xf32>, %places: tensor<?xi64>) -> tensor<?xf32> {
  %s0 = "symshape.symbol"() {name = "s0", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg1.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  "symshape.bind"(%places, %s1, %c1, %c0) : (tensor<?xi64>, index, index, index) -> ()
  %e = tensor.empty(%s0) : tensor<?xf32>
  %p = linalg.generic {indexing_maps = [#row, #row], iterator_types = ["parallel"]}
    ins(%x : tensor<?xf32>) outs(%e : tensor<?xf32>) {
    ^bb0(%a: f32, %out: f32):
      %0 = math.exp %a : f32
      linalg.yield %0 : f32
  } -> tensor<?xf32>
  "symshape.bind"(%p, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %f = tensor.empty(%s1) : tensor<?xf32>
  %g = linalg.generic {indexing_maps = [#row, #row], iterator_types = ["parallel"]}
    ins(%places : tensor<?xi64>) outs(%f : tensor<?xf32>) {
    ^bb0(%t: i64, %out: f32):
      %j = arith.index_cast %t : i64 to index
      %v = tensor.extract %p[%j] : tensor<?xf32>
      linalg.yield %v : f32
  } -> tensor<?xf32>
  "symshape.bind"(%g, %s1, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  return %g : tensor<?xf32>
}
