// RUN: symshape-opt %s --split-input-file --simplify-constraints --mlir-print-debuginfo | filecheck %s

// Two ways to say the same become one, with the places and the messages of both; a conjunction is two constraints.
// CHECK-LABEL: func.func @merged(
// CHECK-DAG:     %[[S0:.*]] = "symshape.symbol"() {{.*}}name = "s0"
// CHECK-DAG:     %[[S1:.*]] = "symshape.symbol"() {{.*}}name = "s1"
// CHECK:         %[[C4:.*]] = arith.constant 4 : index
// CHECK:         %[[S0_4:.*]] = arith.muli %[[S0]], %[[C4]]
// CHECK:         %[[C1:.*]] = arith.constant 1 : index
// CHECK:         %[[SUM:.*]] = arith.addi %[[S0_4]], %[[C1]]
// CHECK:         %[[C:.*]] = arith.cmpi sge, %[[S1]], %[[SUM]]
// CHECK-NEXT:    "symshape.expect_true"(%[[C]]) {message = "a; b"} : (i1) -> () loc(#[[BOTH:.*]])
// CHECK-NEXT:    %[[D:.*]] = arith.cmpi sge, %[[S0]],
// CHECK-NEXT:    "symshape.expect_true"(%[[D]]) {message = "b"}
// CHECK-NOT:     arith
// CHECK-NOT:     symshape
// CHECK:         return
// CHECK-DAG:   #[[A:.*]] = loc("model.py":7:1)
// CHECK-DAG:   #[[B:.*]] = loc("model.py":9:1)
// CHECK:       #[[BOTH]] = loc(fused[#[[A]], #[[B]]])
func.func @merged(%x: tensor<?x?xf32>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 40 : i64, source = "", binding = "arg0.size(1)"} : () -> index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %c8 = arith.constant 8 : index
  %0 = arith.muli %s0, %c8 : index
  %1 = arith.muli %s1, %c2 : index
  %2 = arith.cmpi sgt, %1, %0 : index
  "symshape.expect_true"(%2) {message = "a"} : (i1) -> () loc("model.py":7:1)
  %3 = arith.cmpi slt, %0, %1 : index
  %4 = arith.cmpi sge, %s0, %c3 : index
  %5 = arith.andi %3, %4 : i1
  "symshape.expect_true"(%5) {message = "b"} : (i1) -> () loc("model.py":9:1)
  return
}

// -----

// A check is simplified under what is assumed, an assumption is not: it would be nothing under itself.
// CHECK-LABEL: func.func @under_facts(
// CHECK-DAG:     %[[S0:.*]] = "symshape.symbol"() {{.*}}name = "s0"
// CHECK-DAG:     %[[S1:.*]] = "symshape.symbol"() {{.*}}name = "s1"
// CHECK:         %[[EQ:.*]] = arith.cmpi eq, %[[S0]], %[[S1]]
// CHECK:         "symshape.assume"(%[[EQ]])
// CHECK:         %[[U0:.*]] = "symshape.unbacked_symbol"
// CHECK:         %[[LE:.*]] = arith.cmpi sge, %[[S0]], %[[U0]]
// CHECK:         "symshape.expect_true"(%[[LE]]) {message = "fits"}
// CHECK-NOT:     symshape
func.func @under_facts(%x: tensor<?x?xf32>, %t: tensor<i64>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(1)"} : () -> index
  %eq = arith.cmpi eq, %s1, %s0 : index
  "symshape.assume"(%eq) : (i1) -> ()
  %u0 = "symshape.unbacked_symbol"(%t) {name = "u0", min = 0 : i64, max = 4096 : i64, kind = "item"} : (tensor<i64>) -> index
  %le = arith.cmpi sle, %u0, %s1 : index
  "symshape.expect_true"(%le) {message = "fits"} : (i1) -> ()
  "symshape.expect_true"(%eq) {message = "proven by the assumption"} : (i1) -> ()
  return
}

// -----

// Assumptions, checks and guards are not merged with each other, nor what stands in a branch with what stands before.
// CHECK-LABEL: func.func @kinds(
// CHECK:         %[[C:.*]] = arith.cmpi sge
// CHECK-NEXT:    "symshape.guard"(%[[C]]) {reason = "g"}
// CHECK-NEXT:    "symshape.expect_true"(%[[C]]) {message = "e"}
// CHECK:         scf.if
// CHECK-NEXT:      "symshape.expect_true"(%[[C]]) {message = "inside; again"}
// CHECK-NEXT:    }
func.func @kinds(%x: tensor<?x?xf32>, %flag: i1) {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(1)"} : () -> index
  %c = arith.cmpi sge, %s1, %s0 : index
  "symshape.guard"(%c) {reason = "g"} : (i1) -> ()
  "symshape.expect_true"(%c) {message = "e"} : (i1) -> ()
  scf.if %flag {
    "symshape.expect_true"(%c) {message = "inside"} : (i1) -> ()
    "symshape.expect_true"(%c) {message = "again"} : (i1) -> ()
  }
  return
}

// -----

// What is in form already is left as it is; a condition that is not about sizes is left alone.
// CHECK-LABEL: func.func @unchanged(
// CHECK-SAME:    %[[FLAG:[a-z0-9]*]]: i1
// CHECK:         "symshape.expect_true"(%[[FLAG]]) {message = "no size"}
func.func @unchanged(%flag: i1) {
  "symshape.expect_true"(%flag) {message = "no size"} : (i1) -> ()
  return
}
