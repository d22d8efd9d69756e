// RUN: symshape-opt %s --split-input-file --compact-masks | filecheck %s

// One mask is looked through once, whatever it selects from; the number of what it selects is known to be no larger.
// CHECK-LABEL: func.func @shared(
// CHECK-SAME:    %[[X:[^:]*]]: tensor<?x?xf32>, %[[Y:[^:]*]]: tensor<?xf32>, %[[M:[^:]*]]: tensor<?xi1>)
// CHECK:         %[[P:.*]] = "host.call"(%[[M]]) {arguments = "($0, 'cpu', 'native')", fresh, target = "symshape.mask_positions.default"} : (tensor<?xi1>) -> tensor<?xi64>
// CHECK-NEXT:    %[[U:.*]] = "symshape.unbacked_symbol"(%[[P]])
// CHECK-NEXT:    "symshape.bind"(%[[P]], %[[U]], %c1, %c0)
// CHECK-NEXT:    %[[MOST:.*]] = arith.cmpi sge, %[[S0:.*]], %[[U]] : index
// CHECK-NEXT:    "symshape.assume"(%[[MOST]])
// CHECK-NEXT:    %[[A:.*]] = "host.call"(%[[X]], %[[P]]) {arguments = "($0, $1, 0, 1)", fresh, target = "symshape.select_at.default"} : (tensor<?x?xf32>, tensor<?xi64>) -> tensor<?x?xf32>
// CHECK-NEXT:    "symshape.bind"(%[[A]], %[[U]]
// CHECK-NEXT:    %[[B:.*]] = "host.call"(%[[Y]], %[[P]]) {arguments = "($0, $1, 0, 1)"
// CHECK-NEXT:    "symshape.bind"(%[[B]], %[[U]]
// CHECK-NEXT:    %[[N:.*]] = "host.call"(%[[M]], %[[P]]) {arguments = "($0, $1)", fresh, target = "symshape.unravel_positions.default"} : (tensor<?xi1>, tensor<?xi64>) -> tensor<?x1xi64>
// CHECK:         return %[[A]], %[[B]], %[[N]]
func.func @shared(%x: tensor<?x?xf32>, %y: tensor<?xf32>, %m: tensor<?xi1>) -> (tensor<?x?xf32>, tensor<?xf32>, tensor<?x1xi64>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(1)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%y, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  "symshape.bind"(%m, %s0, %c1, %c0) : (tensor<?xi1>, index, index, index) -> ()
  %a = "host.call"(%x, %m) {target = "aten.index.Tensor", arguments = "($0, [$1])"} : (tensor<?x?xf32>, tensor<?xi1>) -> tensor<?x?xf32>
  %u = "symshape.unbacked_symbol"(%a) {name = "u0", min = 0 : i64, max = 4096 : i64, kind = "size", dim = 0 : i64} : (tensor<?x?xf32>) -> index
  "symshape.bind"(%a, %u, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  %b = "host.call"(%y, %m) {target = "aten.index.Tensor", arguments = "($0, [$1])"} : (tensor<?xf32>, tensor<?xi1>) -> tensor<?xf32>
  "symshape.bind"(%b, %u, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %n = "host.call"(%m) {target = "aten.nonzero.default", arguments = "($0,)"} : (tensor<?xi1>) -> tensor<?x1xi64>
  "symshape.bind"(%n, %u, %c1, %c1, %u, %c0) : (tensor<?x1xi64>, index, index, index, index, index) -> ()
  return %a, %b, %n : tensor<?x?xf32>, tensor<?xf32>, tensor<?x1xi64>
}

// -----

// A mask behind another dim, over two of them.
// CHECK-LABEL: func.func @inner(
// CHECK:         arith.muli
// CHECK:         "symshape.assume"
// CHECK-NEXT:    "host.call"({{.*}}) {arguments = "($0, $1, 1, 2)"
func.func @inner(%x: tensor<?x?x4xf32>, %m: tensor<?x4xi1>) -> tensor<?x?xf32> {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(1)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %row = arith.muli %s1, %c4 : index
  "symshape.bind"(%x, %s0, %s1, %c4, %row, %c4, %c1, %c0) : (tensor<?x?x4xf32>, index, index, index, index, index, index, index) -> ()
  "symshape.bind"(%m, %s1, %c4, %c4, %c1, %c0) : (tensor<?x4xi1>, index, index, index, index, index) -> ()
  %a = "host.call"(%x, %m) {target = "aten.index.Tensor", arguments = "($0, [None, $1])"} : (tensor<?x?x4xf32>, tensor<?x4xi1>) -> tensor<?x?xf32>
  %u = "symshape.unbacked_symbol"(%a) {name = "u0", min = 0 : i64, max = 4096 : i64, kind = "size", dim = 1 : i64} : (tensor<?x?xf32>) -> index
  "symshape.bind"(%a, %s0, %u, %u, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  return %a : tensor<?x?xf32>
}

// -----

// Left alone: indices that are no mask, a mask that is not proven to be as large as what it selects from, and a mask
// beside other indices.
// CHECK-LABEL: func.func @others(
// CHECK-COUNT-3: target = "aten.index.Tensor"
// CHECK-NOT:   compact
func.func @others(%x: tensor<?x?xf32>, %m: tensor<?xi1>, %i: tensor<?xi64>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(1)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%m, %s1, %c1, %c0) : (tensor<?xi1>, index, index, index) -> ()
  "symshape.bind"(%i, %s0, %c1, %c0) : (tensor<?xi64>, index, index, index) -> ()
  %a = "host.call"(%x, %i) {target = "aten.index.Tensor", arguments = "($0, [$1])"} : (tensor<?x?xf32>, tensor<?xi64>) -> tensor<?x?xf32>
  "symshape.bind"(%a, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  %b = "host.call"(%x, %m) {target = "aten.index.Tensor", arguments = "($0, [$1])"} : (tensor<?x?xf32>, tensor<?xi1>) -> tensor<?x?xf32>
  %u = "symshape.unbacked_symbol"(%b) {name = "u0", min = 0 : i64, max = 4096 : i64, kind = "size", dim = 0 : i64} : (tensor<?x?xf32>) -> index
  "symshape.bind"(%b, %u, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  %c = "host.call"(%x, %i, %m) {target = "aten.index.Tensor", arguments = "($0, [$1, $2])"} : (tensor<?x?xf32>, tensor<?xi64>, tensor<?xi1>) -> tensor<?xf32>
  "symshape.bind"(%c, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  return
}
