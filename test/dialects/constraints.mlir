// RUN: symshape-opt %s --canonicalize --cse | filecheck %s

// No cleanup removes a constraint, nor merges two: their origins differ.
// CHECK-LABEL: func.func @constraints(
// CHECK-SAME:    %[[C:.*]]: i1
func.func @constraints(%c: i1) {
  // CHECK-NEXT: "symshape.assume"(%[[C]]) : (i1) -> ()
  "symshape.assume"(%c) : (i1) -> ()
  // CHECK-NEXT: "symshape.assume"(%[[C]]) : (i1) -> ()
  "symshape.assume"(%c) : (i1) -> ()
  // CHECK-NEXT: "symshape.expect_true"(%[[C]]) {message = "sizes must match"} : (i1) -> ()
  "symshape.expect_true"(%c) {message = "sizes must match"} : (i1) -> ()
  // CHECK-NEXT: "symshape.guard"(%[[C]]) {reason = "the tile divides s0"} : (i1) -> ()
  "symshape.guard"(%c) {reason = "the tile divides s0"} : (i1) -> ()
  return
}
