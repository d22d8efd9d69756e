// RUN: symshape-opt %s --split-input-file --drop-repeated-checks | filecheck %s

// The second check, of the same elements against the same size, is a clamp. That of a negative index is another one.
// CHECK-LABEL: func.func @again(
// CHECK:         symshape.check_index
// CHECK:         linalg.generic
// CHECK-NOT:     symshape.check_index
// CHECK:           %[[LAST:.*]] = arith.subi %[[N:.*]], %{{.*}} : index
// CHECK:           %[[LOW:.*]] = arith.minsi %{{.*}}, %[[LAST]] : index
// CHECK:           %[[AT:.*]] = arith.maxsi %[[LOW]], %{{.*}} : index
// CHECK:           tensor.extract %{{.*}}[%[[AT]]]
// CHECK:         linalg.generic
// CHECK:           symshape.check_index
// CHECK:         linalg.generic
// CHECK-NOT:       symshape.check_index
// CHECK:         return
#id = affine_map<(d0) -> (d0)>
func.func @again(%x: tensor<?xf32>, %y: tensor<?xf32>, %i: tensor<?xi64>) -> (tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>) {
  %n = "symshape.symbol"() {name = "n", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %m = "symshape.symbol"() {name = "m", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg2.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %n, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  "symshape.bind"(%y, %n, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  "symshape.bind"(%i, %m, %c1, %c0) : (tensor<?xi64>, index, index, index) -> ()
  %e = tensor.empty(%m) : tensor<?xf32>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%i : tensor<?xi64>) outs(%e : tensor<?xf32>) {
  ^bb0(%in: i64, %out: f32):
    %0 = arith.constant 0 : i64
    %1 = arith.cmpi slt, %in, %0 : i64
    %2 = arith.index_cast %n : index to i64
    %3 = arith.addi %in, %2 : i64
    %4 = arith.select %1, %3, %in : i64
    %5 = arith.index_cast %4 : i64 to index
    %j = "symshape.check_index"(%5, %n) {message = "index out of range"} : (index, index) -> index
    %v = tensor.extract %x[%j] : tensor<?xf32>
    linalg.yield %v : f32
  } -> tensor<?xf32>
  %b = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%i : tensor<?xi64>) outs(%e : tensor<?xf32>) {
  ^bb0(%in: i64, %out: f32):
    %0 = arith.constant 0 : i64
    %1 = arith.cmpi slt, %in, %0 : i64
    %2 = arith.index_cast %n : index to i64
    %3 = arith.addi %in, %2 : i64
    %4 = arith.select %1, %3, %in : i64
    %5 = arith.index_cast %4 : i64 to index
    %j = "symshape.check_index"(%5, %n) {message = "index out of range"} : (index, index) -> index
    %v = tensor.extract %y[%j] : tensor<?xf32>
    linalg.yield %v : f32
  } -> tensor<?xf32>
  %c = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%i : tensor<?xi64>) outs(%e : tensor<?xf32>) {
  ^bb0(%in: i64, %out: f32):
    %5 = arith.index_cast %in : i64 to index
    %j = "symshape.check_index"(%5, %n) {message = "index out of range in self"} : (index, index) -> index
    %v = tensor.extract %y[%j] : tensor<?xf32>
    linalg.yield %v : f32
  } -> tensor<?xf32>
  %d = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%i : tensor<?xi64>) outs(%e : tensor<?xf32>) {
  ^bb0(%in: i64, %out: f32):
    %5 = arith.index_cast %in : i64 to index
    %j = "symshape.check_index"(%5, %n) {message = "index out of range in self"} : (index, index) -> index
    %v = tensor.extract %x[%j] : tensor<?xf32>
    linalg.yield %v : f32
  } -> tensor<?xf32>
  return %a, %b, %c, %d : tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>
}

// -----

// Not where the first check is of some elements, is against another size, or has no points though the second has.
// CHECK-LABEL: func.func @kept(
// CHECK-COUNT-4: symshape.check_index
// CHECK:         return
#id = affine_map<(d0) -> (d0)>
#row = affine_map<(d0, d1) -> (d1)>
#all = affine_map<(d0, d1) -> (d0, d1)>
#next = affine_map<(d0) -> (d0 + 1)>
func.func @kept(%x: tensor<?xf32>, %i: tensor<?xi64>) -> (tensor<?xf32>, tensor<?x?xf32>, tensor<?xf32>, tensor<?xf32>) {
  %n = "symshape.symbol"() {name = "n", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %m = "symshape.symbol"() {name = "m", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg1.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %n, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  "symshape.bind"(%i, %m, %c1, %c0) : (tensor<?xi64>, index, index, index) -> ()
  %fewer = arith.subi %m, %c1 : index
  %part = "symshape.view"(%i, %fewer) {map = #next} : (tensor<?xi64>, index) -> tensor<?xi64>
  %e0 = tensor.empty(%fewer) : tensor<?xf32>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%part : tensor<?xi64>) outs(%e0 : tensor<?xf32>) {
  ^bb0(%in: i64, %out: f32):
    %5 = arith.index_cast %in : i64 to index
    %j = "symshape.check_index"(%5, %n) {message = "index out of range in self"} : (index, index) -> index
    %v = tensor.extract %x[%j] : tensor<?xf32>
    linalg.yield %v : f32
  } -> tensor<?xf32>
  %wide = "symshape.view"(%i, %n, %m) {map = #row} : (tensor<?xi64>, index, index) -> tensor<?x?xi64>
  %e1 = tensor.empty(%n, %m) : tensor<?x?xf32>
  %b = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]} ins(%wide : tensor<?x?xi64>) outs(%e1 : tensor<?x?xf32>) {
  ^bb0(%in: i64, %out: f32):
    %5 = arith.index_cast %in : i64 to index
    %j = "symshape.check_index"(%5, %n) {message = "index out of range in self"} : (index, index) -> index
    %v = tensor.extract %x[%j] : tensor<?xf32>
    linalg.yield %v : f32
  } -> tensor<?x?xf32>
  %e2 = tensor.empty(%m) : tensor<?xf32>
  %c = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%i : tensor<?xi64>) outs(%e2 : tensor<?xf32>) {
  ^bb0(%in: i64, %out: f32):
    %5 = arith.index_cast %in : i64 to index
    %j = "symshape.check_index"(%5, %m) {message = "index out of range in self"} : (index, index) -> index
    %v = tensor.extract %x[%j] : tensor<?xf32>
    linalg.yield %v : f32
  } -> tensor<?xf32>
  %d = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%i : tensor<?xi64>) outs(%e2 : tensor<?xf32>) {
  ^bb0(%in: i64, %out: f32):
    %5 = arith.index_cast %in : i64 to index
    %j = "symshape.check_index"(%5, %n) {message = "index out of range in self"} : (index, index) -> index
    %v = tensor.extract %x[%j] : tensor<?xf32>
    linalg.yield %v : f32
  } -> tensor<?xf32>
  return %a, %b, %c, %d : tensor<?xf32>, tensor<?x?xf32>, tensor<?xf32>, tensor<?xf32>
}
