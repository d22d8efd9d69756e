// RUN: symshape-opt %s --inline-scans | filecheck %s

// The function of an associative scan is the body of one operation, in which what it closes over is read at each point.
// CHECK:       #[[ROW:.*]] = affine_map<(d0, d1) -> (d1)>
// CHECK-LABEL: func.func @associative(
// CHECK-NOT:     host.associative_scan
// CHECK:         %[[W:.*]] = "symshape.view"(%arg1, {{.*}}) {map = #[[ROW]]}
// CHECK:         %[[Y:.*]]:2 = linalg.generic {{{.*}}iterator_types = ["reduction", "parallel"]} ins(%arg0, %[[W]] : tensor<?x?xf32>, tensor<?x?xf32>) outs({{.*}} : tensor<?xf32>, tensor<?x?xf32>) attrs =  {symshape.combiner = "associative_scan"}
// CHECK:         ^bb0(%[[X:.*]]: f32, %{{.*}}: f32, %[[B:.*]]: f32, %{{.*}}: f32):
// CHECK:           %[[M:.*]] = arith.maximumf %[[B]], %[[X]]
// CHECK:           %[[A:.*]] = arith.addf %[[M]], %{{.*}}
// CHECK:           linalg.yield %[[A]], %[[A]]
// CHECK:         return %[[Y]]#1
// CHECK-NOT:   func.func @combine(
func.func @associative(%arg0: tensor<?x?xf32>, %arg1: tensor<?xf32>) -> tensor<?x?xf32> {
  %s0 = "symshape.symbol"() {name = "s0", min = 1 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(1)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%arg0, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%arg1, %s1, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %y = "host.associative_scan"(%arg0, %arg1) {combine = @combine, carried = 0 : i64, sliced = 1 : i64} : (tensor<?x?xf32>, tensor<?xf32>) -> tensor<?x?xf32>
  "symshape.bind"(%y, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  return %y : tensor<?x?xf32>
}

// What a scan carries begins with its operand; a function that calls the library stays one, and its scan a loop.
// CHECK-LABEL: func.func @in_order(
// CHECK:         linalg.generic {{{.*}}iterator_types = ["reduction", "parallel"]}{{.*}}symshape.combiner = "scan"
// CHECK:           %[[FIRST:.*]] = arith.cmpi eq
// CHECK:           arith.select %[[FIRST]]
// CHECK:         "host.scan"(%arg0) {body = @sorted,
func.func @in_order(%x: tensor<?x?xf32>, %c: tensor<?xf32>) -> (tensor<?x?xf32>, tensor<?x?xf32>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 1 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(1)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%c, %s1, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %last:2 = "host.scan"(%c, %x) {body = @step, carried = 1 : i64, sliced = 1 : i64} : (tensor<?xf32>, tensor<?x?xf32>) -> (tensor<?xf32>, tensor<?x?xf32>)
  "symshape.bind"(%last#0, %s1, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  "symshape.bind"(%last#1, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  %z = "host.scan"(%x) {body = @sorted, carried = 0 : i64, sliced = 1 : i64} : (tensor<?x?xf32>) -> tensor<?x?xf32>
  "symshape.bind"(%z, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  return %last#1, %z : tensor<?x?xf32>, tensor<?x?xf32>
}

#id = affine_map<(d0) -> (d0)>
func.func @combine(%l: tensor<?xf32>, %r: tensor<?xf32>, %w: tensor<?xf32>) -> tensor<?xf32> attributes {symshape.subgraph} {
  %s1 = "symshape.symbol"() {name = "s1", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%l, %s1, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  "symshape.bind"(%r, %s1, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  "symshape.bind"(%w, %s1, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %e = tensor.empty(%s1) : tensor<?xf32>
  %m = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
    ins(%l, %r : tensor<?xf32>, tensor<?xf32>) outs(%e : tensor<?xf32>) {
    ^bb0(%a: f32, %b: f32, %out: f32):
      %0 = arith.maximumf %a, %b : f32
      linalg.yield %0 : f32
  } -> tensor<?xf32>
  %y = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
    ins(%m, %w : tensor<?xf32>, tensor<?xf32>) outs(%e : tensor<?xf32>) {
    ^bb0(%a: f32, %b: f32, %out: f32):
      %0 = arith.addf %a, %b : f32
      linalg.yield %0 : f32
  } -> tensor<?xf32>
  "symshape.bind"(%y, %s1, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  return %y : tensor<?xf32>
}

func.func @step(%c: tensor<?xf32>, %x: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>) attributes {symshape.subgraph} {
  %s1 = "symshape.symbol"() {name = "s1", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%c, %s1, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  "symshape.bind"(%x, %s1, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %e = tensor.empty(%s1) : tensor<?xf32>
  %y = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
    ins(%c, %x : tensor<?xf32>, tensor<?xf32>) outs(%e : tensor<?xf32>) {
    ^bb0(%a: f32, %b: f32, %out: f32):
      %0 = arith.mulf %a, %b : f32
      linalg.yield %0 : f32
  } -> tensor<?xf32>
  "symshape.bind"(%y, %s1, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  return %y, %y : tensor<?xf32>, tensor<?xf32>
}

func.func @sorted(%x: tensor<?xf32>) -> tensor<?xf32> attributes {symshape.subgraph} {
  %s1 = "symshape.symbol"() {name = "s1", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s1, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %y = "host.call"(%x) {target = "aten.sort.default", arguments = "($0,)", result_indices = array<i64: 0>} : (tensor<?xf32>) -> tensor<?xf32>
  "symshape.bind"(%y, %s1, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  return %y : tensor<?xf32>
}
