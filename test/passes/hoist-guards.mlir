// RUN: symshape-opt %s --split-input-file --hoist-guards | filecheck %s

// To the entry where sizes of inputs are enough, in the order in which they were written; else behind the value.
// CHECK-LABEL: func.func @up(
// CHECK-SAME:    %[[X:.*]]: tensor<?x?xf32>, %[[T:.*]]: tensor<i64>
// CHECK-DAG:     %[[S0:.*]] = "symshape.symbol"() {{.*}}name = "s0"
// CHECK-DAG:     %[[S1:.*]] = "symshape.symbol"() {{.*}}name = "s1"
// CHECK:         "symshape.bind"(%[[X]]
// CHECK:         %[[A:.*]] = arith.cmpi sle, %[[S0]], %[[S1]]
// CHECK-NEXT:    "symshape.expect_true"(%[[A]]) {message = "first", symshape.status = "hoisted"}
// CHECK-NEXT:    %[[DOUBLE:.*]] = arith.muli %[[S0]]
// CHECK-NEXT:    %[[B:.*]] = arith.cmpi ne, %[[DOUBLE]], %[[S1]]
// CHECK-NEXT:    "symshape.guard"(%[[B]]) {reason = "second", symshape.status = "hoisted"}
// CHECK-NEXT:    %[[Y:.*]] = "host.call"(%[[X]])
// CHECK-NEXT:    %[[U0:.*]] = "symshape.unbacked_symbol"
// CHECK-NEXT:    %[[C:.*]] = arith.cmpi sle, %[[U0]], %[[DOUBLE]]
// CHECK-NEXT:    "symshape.expect_true"(%[[C]]) {message = "third", symshape.status = "hoisted"}
// CHECK-NEXT:    "host.call"(%[[Y]])
// CHECK-NEXT:    return
func.func @up(%x: tensor<?x?xf32>, %t: tensor<i64>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(1)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  "symshape.bind"(%x, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  %y = "host.call"(%x) {target = "aten.exp.default", arguments = "($0,)"} : (tensor<?x?xf32>) -> tensor<?x?xf32>
  %a = arith.cmpi sle, %s0, %s1 : index
  "symshape.expect_true"(%a) {message = "first"} : (i1) -> ()
  %u0 = "symshape.unbacked_symbol"(%t) {name = "u0", min = 0 : i64, max = 4096 : i64, kind = "item"} : (tensor<i64>) -> index
  "host.call"(%y) {target = "aten.relu_.default", arguments = "($0,)"} : (tensor<?x?xf32>) -> ()
  %double = arith.muli %s0, %c2 : index
  %c = arith.cmpi sle, %u0, %double : index
  "symshape.expect_true"(%c) {message = "third"} : (i1) -> ()
  %b = arith.cmpi ne, %double, %s1 : index
  "symshape.guard"(%b) {reason = "second"} : (i1) -> ()
  return
}

// -----

// Out of a branch only as an implication.
// CHECK-LABEL: func.func @out_of_a_branch(
// CHECK-DAG:     %[[S0:.*]] = "symshape.symbol"() {{.*}}name = "s0"
// CHECK-DAG:     %[[S1:.*]] = "symshape.symbol"() {{.*}}name = "s1"
// CHECK:         %[[NOT:.*]] = arith.cmpi sge, %[[S0]], %{{.*}}
// CHECK:         %[[CHECK:.*]] = arith.cmpi sge, %[[S1]], %{{.*}}
// CHECK:         %[[OR:.*]] = arith.ori %[[NOT]], %[[CHECK]]
// CHECK:         "symshape.expect_true"(%[[OR]]) {message = "then", symshape.status = "hoisted"}
// CHECK:         %[[LT:.*]] = arith.cmpi sge, %{{.*}}, %[[S0]]
// CHECK:         %[[ELSE:.*]] = arith.ori %[[LT]], %{{.*}}
// CHECK:         "symshape.expect_true"(%[[ELSE]]) {message = "else", symshape.status = "hoisted"}
// CHECK:         "host.call"
// CHECK:         scf.if
// CHECK-NEXT:    } else {
// CHECK-NEXT:    }
func.func @out_of_a_branch(%x: tensor<?x?xf32>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(1)"} : () -> index
  %c4 = arith.constant 4 : index
  %c5 = arith.constant 5 : index
  "host.call"(%x) {target = "aten.relu_.default", arguments = "($0,)"} : (tensor<?x?xf32>) -> ()
  %lt = arith.cmpi slt, %s0, %c4 : index
  scf.if %lt {
    %ge5 = arith.cmpi sge, %s1, %c5 : index
    "symshape.expect_true"(%ge5) {message = "then"} : (i1) -> ()
  } else {
    %eq = arith.cmpi eq, %s1, %s0 : index
    "symshape.expect_true"(%eq) {message = "else"} : (i1) -> ()
  }
  return
}

// -----

// A division by what may be zero stays behind the check that protects it.
// CHECK-LABEL: func.func @division(
// CHECK:         "symshape.expect_true"(%{{.*}}) {message = "not zero", symshape.status = "hoisted"}
// CHECK:         "host.call"
// CHECK:         arith.remsi
// CHECK:         "symshape.expect_true"(%{{.*}}) {message = "divides"}
func.func @division(%x: tensor<?xf32>, %n: index) {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "n", binding = "arg1"} : () -> index
  %c0 = arith.constant 0 : index
  "host.call"(%x) {target = "aten.relu_.default", arguments = "($0,)"} : (tensor<?xf32>) -> ()
  %ne = arith.cmpi ne, %s1, %c0 : index
  "symshape.expect_true"(%ne) {message = "not zero"} : (i1) -> ()
  %rem = arith.remsi %s0, %s1 : index
  %eq = arith.cmpi eq, %rem, %c0 : index
  "symshape.expect_true"(%eq) {message = "divides"} : (i1) -> ()
  return
}

// -----

// Of two checks at one place, one that covers the other stands for both.
// CHECK-LABEL: func.func @covered(
// CHECK-DAG:     %[[S0:.*]] = "symshape.symbol"() {{.*}}name = "s0"
// CHECK-DAG:     %[[C8:.*]] = arith.constant 8 : index
// CHECK:         %[[C:.*]] = arith.cmpi sge, %[[S0]], %[[C8]]
// CHECK-NEXT:    "symshape.expect_true"(%[[C]]) {message = "eight; five", symshape.status = "hoisted"}
// CHECK-NEXT:    "host.call"
// CHECK-NEXT:    return
func.func @covered(%x: tensor<?xf32>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %c5 = arith.constant 5 : index
  %c8 = arith.constant 8 : index
  %ge5 = arith.cmpi sge, %s0, %c5 : index
  "symshape.expect_true"(%ge5) {message = "five"} : (i1) -> ()
  "host.call"(%x) {target = "aten.relu_.default", arguments = "($0,)"} : (tensor<?xf32>) -> ()
  %ge8 = arith.cmpi sge, %s0, %c8 : index
  "symshape.expect_true"(%ge8) {message = "eight"} : (i1) -> ()
  return
}
