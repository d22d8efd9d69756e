// RUN: symshape-opt %s --fuse-into-scatters | filecheck %s

// Rows of %h, one for each edge, are added to the rows of %x that %to names: what gathers them is part of the scatter.
// CHECK-LABEL: func.func @messages(
// CHECK-SAME:    %[[X:[^:]*]]: tensor<?x8xf32>, %[[H:[^:]*]]: tensor<?x8xf32>, %[[FROM:[^:]*]]: tensor<?xi64>, %[[TO:[^:]*]]: tensor<?xi64>)
// CHECK:         %[[D:.*]] = tensor.empty
// CHECK-NEXT:    %[[R:.*]] = "host.launch"(%[[X]], %[[FROM]], %[[H]], %[[TO]], %[[D]], %[[N:.*]], %[[E:.*]]) {callee = @kernel_[[K:[0-9]+]]}
// CHECK-NOT:     host.launch
// CHECK:         return %[[R]]

// The values are read twice: they are computed once.
// CHECK-LABEL: func.func @read_twice(
// CHECK-COUNT-2: host.launch
// CHECK-NOT:     host.launch
// CHECK:         return

// CHECK:       func.func private @kernel_[[K]](
// CHECK-SAME:    symshape.in_place = array<i64: 0, 0>, symshape.kernel, symshape.kind = "scatter", symshape.num_inputs = 4 : i64
// CHECK:         "symshape.space"(%{{.*}}, %{{.*}}) {iterators = ["reduction", "parallel"]}
// CHECK:         %[[V:.*]] = linalg.generic
// CHECK:           tensor.extract
// CHECK:         "symshape.scatter"(%[[V]], %arg0, %arg4, %{{.*}}) {combiner = "add", dims = [-1, 1]}
#row = affine_map<(d0, d1) -> (d0)>
#all = affine_map<(d0, d1) -> (d0, d1)>

func.func @messages(%x: tensor<?x8xf32>, %h: tensor<?x8xf32>, %from: tensor<?xi64>, %to: tensor<?xi64>) -> tensor<?x8xf32> {
  %n = "symshape.symbol"() {name = "n", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %e = "symshape.symbol"() {name = "e", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg2.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  "symshape.bind"(%x, %n, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%h, %n, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%from, %e, %c1, %c0) : (tensor<?xi64>, index, index, index) -> ()
  "symshape.bind"(%to, %e, %c1, %c0) : (tensor<?xi64>, index, index, index) -> ()
  %d0 = tensor.empty(%e) : tensor<?x8xf32>
  %v = "host.launch"(%from, %h, %d0, %e, %n) {callee = @kernel_0} : (tensor<?xi64>, tensor<?x8xf32>, tensor<?x8xf32>, index, index) -> tensor<?x8xf32>
  "symshape.bind"(%v, %e, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %d1 = tensor.empty(%n) : tensor<?x8xf32>
  %r = "host.launch"(%x, %v, %to, %d1, %n, %e) {callee = @kernel_1} : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?xi64>, tensor<?x8xf32>, index, index) -> tensor<?x8xf32>
  "symshape.bind"(%r, %n, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  return %r : tensor<?x8xf32>
}
func.func @read_twice(%x: tensor<?x8xf32>, %h: tensor<?x8xf32>, %from: tensor<?xi64>, %to: tensor<?xi64>) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
  %n = "symshape.symbol"() {name = "n", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %e = "symshape.symbol"() {name = "e", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg2.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  "symshape.bind"(%x, %n, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%h, %n, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%from, %e, %c1, %c0) : (tensor<?xi64>, index, index, index) -> ()
  "symshape.bind"(%to, %e, %c1, %c0) : (tensor<?xi64>, index, index, index) -> ()
  %d0 = tensor.empty(%e) : tensor<?x8xf32>
  %v = "host.launch"(%from, %h, %d0, %e, %n) {callee = @kernel_0} : (tensor<?xi64>, tensor<?x8xf32>, tensor<?x8xf32>, index, index) -> tensor<?x8xf32>
  "symshape.bind"(%v, %e, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  %d1 = tensor.empty(%n) : tensor<?x8xf32>
  %r = "host.launch"(%x, %v, %to, %d1, %n, %e) {callee = @kernel_1} : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?xi64>, tensor<?x8xf32>, index, index) -> tensor<?x8xf32>
  "symshape.bind"(%r, %n, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  return %r, %v : tensor<?x8xf32>, tensor<?x8xf32>
}
func.func private @kernel_0(%from: tensor<?xi64>, %h: tensor<?x8xf32>, %dest: tensor<?x8xf32>, %e: index, %n: index) -> tensor<?x8xf32>
    attributes {symshape.kernel, symshape.kind = "pointwise", symshape.num_inputs = 2 : i64, symshape.num_outputs = 1 : i64} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  "symshape.bind"(%from, %e, %c1, %c0) : (tensor<?xi64>, index, index, index) -> ()
  "symshape.bind"(%h, %n, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%dest, %e, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  "symshape.space"(%e, %c8) {iterators = ["parallel", "parallel"]} : (index, index) -> ()
  %rows = "symshape.view"(%from, %e) {map = affine_map<(d0) -> (d0)>} : (tensor<?xi64>, index) -> tensor<?xi64>
  %empty = tensor.empty(%e) : tensor<?x8xf32>
  %v = linalg.generic {indexing_maps = [#row, #all], iterator_types = ["parallel", "parallel"]} ins(%rows : tensor<?xi64>) outs(%empty : tensor<?x8xf32>) {
  ^bb0(%in: i64, %out: f32):
    %i = arith.index_cast %in : i64 to index
    %checked = "symshape.check_index"(%i, %n) {message = "index is out of bounds for dimension 0"} : (index, index) -> index
    %column = linalg.index 1 : index
    %found = tensor.extract %h[%checked, %column] : tensor<?x8xf32>
    linalg.yield %found : f32
  } -> tensor<?x8xf32>
  %r = "symshape.store"(%v, %dest) {map = #all} : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %r : tensor<?x8xf32>
}
func.func private @kernel_1(%x: tensor<?x8xf32>, %v: tensor<?x8xf32>, %to: tensor<?xi64>, %dest: tensor<?x8xf32>, %n: index, %e: index) -> tensor<?x8xf32>
    attributes {symshape.in_place = array<i64: 0, 0>, symshape.kernel, symshape.kind = "scatter", symshape.num_inputs = 3 : i64, symshape.num_outputs = 1 : i64} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  "symshape.bind"(%x, %n, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%v, %e, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%to, %e, %c1, %c0) : (tensor<?xi64>, index, index, index) -> ()
  "symshape.bind"(%dest, %n, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  "symshape.space"(%e, %c8) {iterators = ["reduction", "parallel"]} : (index, index) -> ()
  %rows = "symshape.view"(%to, %e, %c8) {map = #row} : (tensor<?xi64>, index, index) -> tensor<?x8xi64>
  %empty = tensor.empty(%e) : tensor<?x8xi64>
  %i = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]} ins(%rows : tensor<?x8xi64>) outs(%empty : tensor<?x8xi64>) {
  ^bb0(%in: i64, %out: i64):
    %to_check = arith.index_cast %in : i64 to index
    %checked = "symshape.check_index"(%to_check, %n) {message = "index is out of bounds for dimension 0"} : (index, index) -> index
    %number = arith.index_cast %checked : index to i64
    linalg.yield %number : i64
  } -> tensor<?x8xi64>
  %values = "symshape.view"(%v, %e, %c8) {map = #all} : (tensor<?x8xf32>, index, index) -> tensor<?x8xf32>
  %r = "symshape.scatter"(%values, %x, %dest, %i) {combiner = "add", dims = [-1, 1]} : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xi64>) -> tensor<?x8xf32>
  return %r : tensor<?x8xf32>
}
