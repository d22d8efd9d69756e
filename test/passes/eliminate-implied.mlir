// RUN: symshape-opt %s --split-input-file --verify-diagnostics --eliminate-implied | filecheck %s

// CHECK-LABEL: func.func @facts_and_earlier_checks(
// CHECK-DAG:     %[[S0:.*]] = "symshape.symbol"() {{.*}}name = "s0"
// CHECK-DAG:     %[[C4:.*]] = arith.constant 4 : index
// CHECK:         "symshape.assume"
// CHECK:         %[[U0:.*]] = "symshape.unbacked_symbol"
// CHECK-NEXT:    %[[C:.*]] = arith.cmpi sge, %[[U0]], %[[C4]]
// CHECK-NEXT:    "symshape.expect_true"(%[[C]]) {message = "first"}
// CHECK-NOT:     expect_true
// CHECK:         return
func.func @facts_and_earlier_checks(%x: tensor<?x?xf32>, %t: tensor<i64>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(1)"} : () -> index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %le = arith.cmpi sle, %s0, %s1 : index
  "symshape.assume"(%le) : (i1) -> ()
  %s1_1 = arith.addi %s1, %c1 : index
  %weaker = arith.cmpi sle, %s0, %s1_1 : index
  "symshape.expect_true"(%weaker) {message = "proven by the assumption"} : (i1) -> ()
  %range = arith.cmpi sge, %s0, %c2 : index
  "symshape.expect_true"(%range) {message = "proven by the range of s0"} : (i1) -> ()
  // The range of u0 proves nothing: it was made of these checks.
  %u0 = "symshape.unbacked_symbol"(%t) {name = "u0", min = 4 : i64, max = 4096 : i64, kind = "item"} : (tensor<i64>) -> index
  %ge4 = arith.cmpi sge, %u0, %c4 : index
  "symshape.expect_true"(%ge4) {message = "first"} : (i1) -> ()
  %ge2 = arith.cmpi sge, %u0, %c2 : index
  "symshape.expect_true"(%ge2) {message = "implied by the first"} : (i1) -> ()
  %lt = arith.cmpi slt, %u0, %c2 : index
  %le_or = arith.ori %lt, %ge4 : i1
  "symshape.expect_true"(%le_or) {message = "as well"} : (i1) -> ()
  return
}

// -----

// A check proves nothing about what runs before it.
// CHECK-LABEL: func.func @later_check(
// CHECK:         "symshape.expect_true"(%{{.*}}) {message = "weak"}
// CHECK:         "host.call"
// CHECK:         "symshape.expect_true"(%{{.*}}) {message = "strong"}
func.func @later_check(%x: tensor<?xf32>, %t: tensor<i64>) {
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %u0 = "symshape.unbacked_symbol"(%t) {name = "u0", min = 4 : i64, max = 4096 : i64, kind = "item"} : (tensor<i64>) -> index
  %ge2 = arith.cmpi sge, %u0, %c2 : index
  "symshape.expect_true"(%ge2) {message = "weak"} : (i1) -> ()
  "host.call"(%x, %u0) {target = "aten.fill_.Scalar", arguments = "($0, $1)"} : (tensor<?xf32>, index) -> ()
  %ge4 = arith.cmpi sge, %u0, %c4 : index
  "symshape.expect_true"(%ge4) {message = "strong"} : (i1) -> ()
  return
}

// -----

// Of assumptions the strong ones stay, in whatever order they come; what cannot be bounded is at least not said twice.
// CHECK-LABEL: func.func @assumptions(
// CHECK-DAG:     %[[S0:.*]] = "symshape.symbol"() {{.*}}name = "s0"
// CHECK-DAG:     %[[C8:.*]] = arith.constant 8 : index
// CHECK-DAG:     %[[C9:.*]] = arith.constant 9 : index
// CHECK:         %[[GE:.*]] = arith.cmpi sge, %[[S0]], %[[C8]]
// CHECK-NEXT:    "symshape.assume"(%[[GE]])
// CHECK:         %[[NE:.*]] = arith.cmpi ne, %[[S0]], %[[C9]]
// CHECK-NEXT:    "symshape.assume"(%[[NE]])
// CHECK-NOT:     assume
// CHECK:         return
func.func @assumptions(%x: tensor<?xf32>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %c1 = arith.constant 1 : index
  %c5 = arith.constant 5 : index
  %c8 = arith.constant 8 : index
  %c9 = arith.constant 9 : index
  %ge5 = arith.cmpi sge, %s0, %c5 : index
  "symshape.assume"(%ge5) : (i1) -> ()
  %ge8 = arith.cmpi sge, %s0, %c8 : index
  "symshape.assume"(%ge8) : (i1) -> ()
  %ne1 = arith.cmpi ne, %s0, %c1 : index
  "symshape.assume"(%ne1) : (i1) -> ()
  %ne9 = arith.cmpi ne, %s0, %c9 : index
  "symshape.assume"(%ne9) : (i1) -> ()
  %ne9_again = arith.cmpi ne, %c9, %s0 : index
  "symshape.assume"(%ne9_again) : (i1) -> ()
  return
}

// -----

// A guard that does not hold is no error: what is one must not stand in for it. The other way round it may.
// CHECK-LABEL: func.func @guards(
// CHECK:         "symshape.expect_true"(%{{.*}}) {message = "e"}
// CHECK:         "symshape.guard"(%{{.*}}) {reason = "g"}
// CHECK-NOT:     symshape
// CHECK:         return
func.func @guards(%x: tensor<?xf32>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %c5 = arith.constant 5 : index
  %c8 = arith.constant 8 : index
  %c9 = arith.constant 9 : index
  %ge8 = arith.cmpi sge, %s0, %c8 : index
  %ge9 = arith.cmpi sge, %s0, %c9 : index
  %ge5 = arith.cmpi sge, %s0, %c5 : index
  "symshape.expect_true"(%ge9) {message = "e"} : (i1) -> ()
  "symshape.guard"(%ge8) {reason = "g"} : (i1) -> ()
  "symshape.guard"(%ge5) {reason = "implied by the first"} : (i1) -> ()
  "symshape.expect_true"(%ge5) {message = "implied by a guard"} : (i1) -> ()
  return
}

// -----

// In a branch its condition is a fact; what a branch checks proves nothing outside, and what never holds raises there.
// CHECK-LABEL: func.func @branch(
// CHECK:         scf.if
// CHECK-NEXT:      "symshape.expect_true"(%{{.*}}) {message = "never, if it is reached"}
// CHECK-NEXT:    } else {
// CHECK-NEXT:      "symshape.expect_true"(%{{.*}}) {message = "inside"}
// CHECK-NEXT:    }
// CHECK-NEXT:    "symshape.expect_true"(%{{.*}}) {message = "outside"}
func.func @branch(%x: tensor<?xf32>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %c5 = arith.constant 5 : index
  %c8 = arith.constant 8 : index
  %lt = arith.cmpi slt, %s0, %c5 : index
  %ge5 = arith.cmpi sge, %s0, %c5 : index
  %ge8 = arith.cmpi sge, %s0, %c8 : index
  scf.if %lt {
    "symshape.expect_true"(%ge8) {message = "never, if it is reached"} : (i1) -> ()
  } else {
    "symshape.expect_true"(%ge5) {message = "implied by the branch"} : (i1) -> ()
    "symshape.expect_true"(%ge8) {message = "inside"} : (i1) -> ()
  }
  "symshape.expect_true"(%ge8) {message = "outside"} : (i1) -> ()
  return
}

// -----

func.func @refuted(%x: tensor<?xf32>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4 : i64, divisor = 1 : i64, hint = 3 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %c5 = arith.constant 5 : index
  %ge5 = arith.cmpi sge, %s0, %c5 : index
  // expected-error@+1 {{can never hold: s0 >= 5 is false at every size, "five rows"}}
  "symshape.expect_true"(%ge5) {message = "five rows"} : (i1) -> ()
  return
}

// -----

// Only integer points tell: 3*s0 + 5*s1 <= 20 and s0 >= 2 leave s1 <= 2.
// CHECK-LABEL: func.func @integer_points(
// CHECK:         "symshape.assume"
// CHECK-NOT:     "two"
// CHECK:         "symshape.expect_true"(%{{.*}}) {message = "one"}
// CHECK:         return
func.func @integer_points(%x: tensor<?x?xf32>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = -1 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 1 : i64, max = 4096 : i64, divisor = 1 : i64, hint = -1 : i64, source = "", binding = "arg0.size(1)"} : () -> index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %c5 = arith.constant 5 : index
  %c20 = arith.constant 20 : index
  %s0_3 = arith.muli %s0, %c3 : index
  %s1_5 = arith.muli %s1, %c5 : index
  %sum = arith.addi %s0_3, %s1_5 : index
  %fact = arith.cmpi sle, %sum, %c20 : index
  "symshape.assume"(%fact) : (i1) -> ()
  %le2 = arith.cmpi sle, %s1, %c2 : index
  "symshape.expect_true"(%le2) {message = "two"} : (i1) -> ()
  %le1 = arith.cmpi sle, %s1, %c1 : index
  "symshape.expect_true"(%le1) {message = "one"} : (i1) -> ()
  return
}

// -----

// What the predicate says is a fact of its branch and of no other function; what can never hold there raises when the
// branch is taken, and is no error of the compile.
// CHECK-LABEL: func.func @main(
// CHECK:         "symshape.expect_true"(%{{.*}}) {message = "main"}
// CHECK-LABEL: func.func @then(
// CHECK:         "symshape.assume"
// CHECK-NOT:     "inside"
// CHECK:         "symshape.expect_true"(%{{.*}}) {message = "never"}
// CHECK-LABEL: func.func @otherwise(
// CHECK:         "symshape.expect_true"(%{{.*}}) {message = "outside"}
func.func @main(%x: tensor<?xf32>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %c8 = arith.constant 8 : index
  %long = arith.cmpi sge, %s0, %c8 : index
  "host.cond"(%long, %x) {true = @then, false = @otherwise} : (i1, tensor<?xf32>) -> ()
  "symshape.expect_true"(%long) {message = "main"} : (i1) -> ()
  return
}

func.func @then(%x: tensor<?xf32>) attributes {symshape.subgraph} {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %long = arith.cmpi sge, %s0, %c8 : index
  "symshape.assume"(%long) : (i1) -> ()
  %more = arith.cmpi sge, %s0, %c4 : index
  "symshape.expect_true"(%more) {message = "inside"} : (i1) -> ()
  %less = arith.cmpi slt, %s0, %c4 : index
  "symshape.expect_true"(%less) {message = "never"} : (i1) -> ()
  return
}

func.func @otherwise(%x: tensor<?xf32>) attributes {symshape.subgraph} {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %c4 = arith.constant 4 : index
  %more = arith.cmpi sge, %s0, %c4 : index
  "symshape.expect_true"(%more) {message = "outside"} : (i1) -> ()
  return
}
