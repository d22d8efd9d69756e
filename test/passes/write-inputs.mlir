// RUN: symshape-opt %s --split-input-file --write-inputs | filecheck %s

// The argument is the destination, and its copy goes.
// CHECK-LABEL: func.func @cache(
// CHECK-SAME:    %[[X:.*]]: tensor<?xf32>, %[[V:.*]]: tensor<?xf32>)
// CHECK-NOT:     tensor.empty
// CHECK:         %[[R:.*]] = "host.launch"(%[[X]], %[[V]], %[[X]], %{{.*}}) {callee = @over_first}
// CHECK:         return %[[R]]
func.func @cache(%x: tensor<?xf32>, %v: tensor<?xf32>) -> tensor<?xf32> {
  %s0 = "symshape.symbol"() {name = "s0", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  "symshape.bind"(%v, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %e0 = tensor.empty(%s0) : tensor<?xf32>
  %c = "host.launch"(%x, %e0, %s0) {callee = @copy} : (tensor<?xf32>, tensor<?xf32>, index) -> tensor<?xf32>
  "symshape.bind"(%c, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %e1 = tensor.empty(%s0) : tensor<?xf32>
  %r = "host.launch"(%c, %v, %e1, %s0) {callee = @over_first} : (tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, index) -> tensor<?xf32>
  "symshape.bind"(%r, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  return {symshape.writes = array<i64: 0>} %r : tensor<?xf32>
}
func.func private @copy(%x: tensor<?xf32>, %dest: tensor<?xf32>, %s0: index) -> tensor<?xf32>
    attributes {symshape.in_place = array<i64: 0, 0>, symshape.kernel, symshape.kind = "pointwise", symshape.num_inputs = 1 : i64, symshape.num_outputs = 1 : i64} {
  %e = tensor.empty(%s0) : tensor<?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%x : tensor<?xf32>) outs(%e : tensor<?xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<?xf32>
  return %r : tensor<?xf32>
}
func.func private @over_first(%x0: tensor<?xf32>, %x1: tensor<?xf32>, %dest: tensor<?xf32>, %s0: index) -> tensor<?xf32>
    attributes {symshape.in_place = array<i64: 0, 0>, symshape.kernel, symshape.kind = "pointwise", symshape.num_inputs = 2 : i64, symshape.num_outputs = 1 : i64} {
  return %dest : tensor<?xf32>
}

// -----

// A copy of a value that is in the argument's memory goes too, though the value was read before.
// CHECK-LABEL: func.func @copy_between(
// CHECK-SAME:    %[[X:.*]]: tensor<?xf32>, %[[V:.*]]: tensor<?xf32>)
// CHECK:         %[[A:.*]] = "host.launch"(%[[X]], %[[V]], %[[X]], %{{.*}}) {callee = @over_first}
// CHECK:         %[[B:.*]] = "host.launch"(%[[V]], %[[A]], %{{.*}}) {callee = @over_first}
// CHECK-NOT:     callee = @copy
// CHECK:         %[[D:.*]] = "symshape.reuse"(%[[A]])
// CHECK-NEXT:    %[[R:.*]] = "host.launch"(%[[A]], %[[B]], %[[D]], %{{.*}}) {callee = @over_first}
// CHECK:         return %[[R]], %[[B]]
func.func @copy_between(%x: tensor<?xf32>, %v: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  "symshape.bind"(%v, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %e0 = tensor.empty(%s0) : tensor<?xf32>
  %a = "host.launch"(%x, %v, %e0, %s0) {callee = @over_first} : (tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, index) -> tensor<?xf32>
  "symshape.bind"(%a, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %e1 = tensor.empty(%s0) : tensor<?xf32>
  %b = "host.launch"(%v, %a, %e1, %s0) {callee = @over_first} : (tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, index) -> tensor<?xf32>
  "symshape.bind"(%b, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %e2 = tensor.empty(%s0) : tensor<?xf32>
  %c = "host.launch"(%a, %e2, %s0) {callee = @copy} : (tensor<?xf32>, tensor<?xf32>, index) -> tensor<?xf32>
  "symshape.bind"(%c, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %e3 = tensor.empty(%s0) : tensor<?xf32>
  %r = "host.launch"(%c, %b, %e3, %s0) {callee = @over_first} : (tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, index) -> tensor<?xf32>
  "symshape.bind"(%r, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  return {symshape.writes = array<i64: 0, -1>} %r, %b : tensor<?xf32>, tensor<?xf32>
}
func.func private @copy(%x: tensor<?xf32>, %dest: tensor<?xf32>, %s0: index) -> tensor<?xf32>
    attributes {symshape.in_place = array<i64: 0, 0>, symshape.kernel, symshape.kind = "pointwise", symshape.num_inputs = 1 : i64, symshape.num_outputs = 1 : i64} {
  %e = tensor.empty(%s0) : tensor<?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%x : tensor<?xf32>) outs(%e : tensor<?xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<?xf32>
  return %r : tensor<?xf32>
}
func.func private @over_first(%x0: tensor<?xf32>, %x1: tensor<?xf32>, %dest: tensor<?xf32>, %s0: index) -> tensor<?xf32>
    attributes {symshape.in_place = array<i64: 0, 0>, symshape.kernel, symshape.kind = "pointwise", symshape.num_inputs = 2 : i64, symshape.num_outputs = 1 : i64} {
  return %dest : tensor<?xf32>
}

// -----

// What the last kernel writes over is in the argument's memory too.
// CHECK-LABEL: func.func @chain(
// CHECK-SAME:    %[[X:.*]]: tensor<?xf32>, %[[V:.*]]: tensor<?xf32>)
// CHECK-NOT:     tensor.empty
// CHECK:         %[[A:.*]] = "host.launch"(%[[X]], %[[V]], %[[X]], %{{.*}}) {callee = @over_first}
// CHECK:         %[[D:.*]] = "symshape.reuse"(%[[A]])
// CHECK-NEXT:    %[[R:.*]] = "host.launch"(%[[A]], %[[V]], %[[D]], %{{.*}}) {callee = @over_first}
// CHECK:         return %[[R]]
func.func @chain(%x: tensor<?xf32>, %v: tensor<?xf32>) -> tensor<?xf32> {
  %s0 = "symshape.symbol"() {name = "s0", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  "symshape.bind"(%v, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %e0 = tensor.empty(%s0) : tensor<?xf32>
  %a = "host.launch"(%x, %v, %e0, %s0) {callee = @over_first} : (tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, index) -> tensor<?xf32>
  "symshape.bind"(%a, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %e1 = tensor.empty(%s0) : tensor<?xf32>
  %r = "host.launch"(%a, %v, %e1, %s0) {callee = @over_first} : (tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, index) -> tensor<?xf32>
  "symshape.bind"(%r, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  return {symshape.writes = array<i64: 0>} %r : tensor<?xf32>
}
func.func private @over_first(%x0: tensor<?xf32>, %x1: tensor<?xf32>, %dest: tensor<?xf32>, %s0: index) -> tensor<?xf32>
    attributes {symshape.in_place = array<i64: 0, 0>, symshape.kernel, symshape.kind = "pointwise", symshape.num_inputs = 2 : i64, symshape.num_outputs = 1 : i64} {
  return %dest : tensor<?xf32>
}

// -----

// The argument is read later; by its kernel at other points; the caller gets the result as well.
// CHECK-LABEL: func.func @read_later(
// CHECK-COUNT-2: tensor.empty
// CHECK:         return {symshape.writes = array<i64: 0, -1>}
func.func @read_later(%x: tensor<?xf32>, %v: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  "symshape.bind"(%v, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %e0 = tensor.empty(%s0) : tensor<?xf32>
  %r = "host.launch"(%x, %v, %e0, %s0) {callee = @over_first} : (tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, index) -> tensor<?xf32>
  "symshape.bind"(%r, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %e1 = tensor.empty(%s0) : tensor<?xf32>
  %o = "host.launch"(%x, %r, %e1, %s0) {callee = @over_first} : (tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, index) -> tensor<?xf32>
  "symshape.bind"(%o, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  return {symshape.writes = array<i64: 0, -1>} %r, %o : tensor<?xf32>, tensor<?xf32>
}
// CHECK-LABEL: func.func @other_points(
// CHECK:         tensor.empty
// CHECK:         return {symshape.writes = array<i64: 0>}
func.func @other_points(%x: tensor<?xf32>, %v: tensor<?xf32>) -> tensor<?xf32> {
  %s0 = "symshape.symbol"() {name = "s0", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  "symshape.bind"(%v, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %e0 = tensor.empty(%s0) : tensor<?xf32>
  %r = "host.launch"(%v, %x, %e0, %s0) {callee = @over_first} : (tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, index) -> tensor<?xf32>
  "symshape.bind"(%r, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  return {symshape.writes = array<i64: 0>} %r : tensor<?xf32>
}
// CHECK-LABEL: func.func @returned(
// CHECK:         tensor.empty
// CHECK:         return {symshape.writes = array<i64: 0, -1>}
func.func @returned(%x: tensor<?xf32>, %v: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  "symshape.bind"(%v, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %e0 = tensor.empty(%s0) : tensor<?xf32>
  %r = "host.launch"(%x, %v, %e0, %s0) {callee = @over_first} : (tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, index) -> tensor<?xf32>
  "symshape.bind"(%r, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  return {symshape.writes = array<i64: 0, -1>} %r, %r : tensor<?xf32>, tensor<?xf32>
}
func.func private @over_first(%x0: tensor<?xf32>, %x1: tensor<?xf32>, %dest: tensor<?xf32>, %s0: index) -> tensor<?xf32>
    attributes {symshape.in_place = array<i64: 0, 0>, symshape.kernel, symshape.kind = "pointwise", symshape.num_inputs = 2 : i64, symshape.num_outputs = 1 : i64} {
  return %dest : tensor<?xf32>
}

// -----

// What the caller makes of the argument itself is no result of its own.
// CHECK-LABEL: func.func @made_of_argument(
// CHECK-NOT:     tensor.empty
// CHECK:         return {symshape.relations = "own argument"}
func.func @made_of_argument(%x: tensor<?xf32>, %v: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  "symshape.bind"(%v, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %e0 = tensor.empty(%s0) : tensor<?xf32>
  %r = "host.launch"(%x, %v, %e0, %s0) {callee = @over_first} : (tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, index) -> tensor<?xf32>
  "symshape.bind"(%r, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %view = "symshape.view"(%r, %s0) {map = affine_map<(d0) -> (d0)>} : (tensor<?xf32>, index) -> tensor<?xf32>
  return {symshape.relations = "own argument", symshape.writes = array<i64: 0, -1>} %r, %view : tensor<?xf32>, tensor<?xf32>
}
func.func private @over_first(%x0: tensor<?xf32>, %x1: tensor<?xf32>, %dest: tensor<?xf32>, %s0: index) -> tensor<?xf32>
    attributes {symshape.in_place = array<i64: 0, 0>, symshape.kernel, symshape.kind = "pointwise", symshape.num_inputs = 2 : i64, symshape.num_outputs = 1 : i64} {
  return %dest : tensor<?xf32>
}

// -----

// A check of an index runs before the argument is written to; one that does not depend on what is written keeps it unwritten.
// CHECK-LABEL: func.func @checked(
// CHECK-SAME:    %[[X:.*]]: tensor<?xf32>, %[[V:.*]]: tensor<?xf32>, %[[I:.*]]: tensor<?xi64>)
// CHECK:         %[[E:.*]] = tensor.empty
// CHECK:         "host.launch"(%[[V]], %[[I]], %[[E]], %{{.*}}) {callee = @read}
// CHECK:         %[[R:.*]] = "host.launch"(%[[X]], %[[V]], %[[X]], %{{.*}}) {callee = @over_first}
// CHECK:         return %[[R]]
func.func @checked(%x: tensor<?xf32>, %v: tensor<?xf32>, %i: tensor<?xi64>) -> (tensor<?xf32>, tensor<?xf32>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  "symshape.bind"(%v, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  "symshape.bind"(%i, %s0, %c1, %c0) : (tensor<?xi64>, index, index, index) -> ()
  %e0 = tensor.empty(%s0) : tensor<?xf32>
  %r = "host.launch"(%x, %v, %e0, %s0) {callee = @over_first} : (tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, index) -> tensor<?xf32>
  "symshape.bind"(%r, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %e1 = tensor.empty(%s0) : tensor<?xf32>
  %o = "host.launch"(%v, %i, %e1, %s0) {callee = @read} : (tensor<?xf32>, tensor<?xi64>, tensor<?xf32>, index) -> tensor<?xf32>
  "symshape.bind"(%o, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  return {symshape.writes = array<i64: 0, -1>} %r, %o : tensor<?xf32>, tensor<?xf32>
}
// CHECK-LABEL: func.func @checked_later(
// CHECK-SAME:    %[[X:.*]]: tensor<?xf32>, %[[V:.*]]: tensor<?xf32>, %[[I:.*]]: tensor<?xi64>)
// CHECK:         return {symshape.writes = array<i64: 0, -1>}
func.func @checked_later(%x: tensor<?xf32>, %v: tensor<?xf32>, %i: tensor<?xi64>) -> (tensor<?xf32>, tensor<?xf32>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  "symshape.bind"(%v, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  "symshape.bind"(%i, %s0, %c1, %c0) : (tensor<?xi64>, index, index, index) -> ()
  %e0 = tensor.empty(%s0) : tensor<?xf32>
  %r = "host.launch"(%x, %v, %e0, %s0) {callee = @over_first} : (tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, index) -> tensor<?xf32>
  "symshape.bind"(%r, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %e1 = tensor.empty(%s0) : tensor<?xf32>
  %o = "host.launch"(%r, %i, %e1, %s0) {callee = @read} : (tensor<?xf32>, tensor<?xi64>, tensor<?xf32>, index) -> tensor<?xf32>
  "symshape.bind"(%o, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  return {symshape.writes = array<i64: 0, -1>} %r, %o : tensor<?xf32>, tensor<?xf32>
}
func.func private @over_first(%x0: tensor<?xf32>, %x1: tensor<?xf32>, %dest: tensor<?xf32>, %s0: index) -> tensor<?xf32>
    attributes {symshape.in_place = array<i64: 0, 0>, symshape.kernel, symshape.kind = "pointwise", symshape.num_inputs = 2 : i64, symshape.num_outputs = 1 : i64} {
  return %dest : tensor<?xf32>
}
func.func private @read(%x: tensor<?xf32>, %i: tensor<?xi64>, %dest: tensor<?xf32>, %s0: index) -> tensor<?xf32>
    attributes {symshape.kernel, symshape.kind = "pointwise", symshape.num_inputs = 2 : i64, symshape.num_outputs = 1 : i64} {
  %e = tensor.empty(%s0) : tensor<?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%i : tensor<?xi64>) outs(%e : tensor<?xf32>) {
  ^bb0(%in: i64, %out: f32):
    %k = arith.index_cast %in : i64 to index
    %j = "symshape.check_index"(%k, %s0) {message = "index out of range in self"} : (index, index) -> index
    %v = tensor.extract %x[%j] : tensor<?xf32>
    linalg.yield %v : f32
  } -> tensor<?xf32>
  return %r : tensor<?xf32>
}
