// RUN: symshape-opt %s --split-input-file --resolve-dims | filecheck %s

// Symbols that facts make equal are one, but in the fact itself; tensor.dim is the bound size.
// CHECK-LABEL: func.func @equal_symbols(
// CHECK-SAME:    %[[X:.*]]: tensor<?xf32>, %[[Y:.*]]: tensor<?xf32>
// CHECK-DAG:     %[[S0:.*]] = "symshape.symbol"() {{.*}}name = "s0"
// CHECK-DAG:     %[[S1:.*]] = "symshape.symbol"() {{.*}}name = "s1"
// CHECK-DAG:     %[[C0:.*]] = arith.constant 0 : index
// CHECK-DAG:     %[[C1:.*]] = arith.constant 1 : index
// CHECK-DAG:     %[[C4:.*]] = arith.constant 4 : index
// CHECK-DAG:     "symshape.bind"(%[[X]], %[[S0]], %[[C1]], %[[C0]])
// CHECK-DAG:     "symshape.bind"(%[[Y]], %[[S0]], %[[C1]], %[[C0]])
// CHECK:         %[[EQ:.*]] = arith.cmpi eq, %[[S0]], %[[S1]]
// CHECK-NEXT:    "symshape.assume"(%[[EQ]])
// CHECK-NEXT:    %[[S0_4:.*]] = arith.muli %[[S0]], %[[C4]]
// CHECK-NEXT:    "host.call"(%[[X]], %[[S0_4]], %[[S0]])
// CHECK-NEXT:    return
func.func @equal_symbols(%x: tensor<?xf32>, %y: tensor<?xf32>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg1.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  "symshape.bind"(%x, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  "symshape.bind"(%y, %s1, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %eq = arith.cmpi eq, %s0, %s1 : index
  "symshape.assume"(%eq) : (i1) -> ()
  %d = tensor.dim %y, %c0 : tensor<?xf32>
  %m = arith.muli %d, %c4 : index
  %q = arith.floordivsi %m, %c4 : index
  "host.call"(%x, %m, %q) {target = "aten.resize_", arguments = "($0, $1, $2)"} : (tensor<?xf32>, index, index) -> ()
  return
}

// -----

// The same computation twice, one of them in a branch; what a branch computes is not used outside of it.
// CHECK-LABEL: func.func @dominating(
// CHECK-SAME:    %[[X:.*]]: tensor<?xf32>, %[[FLAG:.*]]: i1
// CHECK:         scf.if %[[FLAG]]
// CHECK-NEXT:      %[[INSIDE:.*]] = arith.muli
// CHECK-NEXT:      "host.call"(%[[X]], %[[INSIDE]])
// CHECK-NEXT:    }
// CHECK-NEXT:    %[[OUTSIDE:.*]] = arith.muli
// CHECK-NEXT:    "host.call"(%[[X]], %[[OUTSIDE]])
// CHECK-NEXT:    scf.if %[[FLAG]]
// CHECK-NEXT:      "host.call"(%[[X]], %[[OUTSIDE]])
func.func @dominating(%x: tensor<?xf32>, %flag: i1) {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %c2 = arith.constant 2 : index
  scf.if %flag {
    %a = arith.muli %s0, %c2 : index
    "host.call"(%x, %a) {target = "aten.resize_", arguments = "($0, $1)"} : (tensor<?xf32>, index) -> ()
  }
  %b = arith.muli %c2, %s0 : index
  "host.call"(%x, %b) {target = "aten.resize_", arguments = "($0, $1)"} : (tensor<?xf32>, index) -> ()
  scf.if %flag {
    %c = arith.addi %s0, %s0 : index
    "host.call"(%x, %c) {target = "aten.resize_", arguments = "($0, $1)"} : (tensor<?xf32>, index) -> ()
  }
  return
}

// -----

// A check makes sizes equal behind it, not before.
// CHECK-LABEL: func.func @after_a_check(
// CHECK-SAME:    %[[X:.*]]: tensor<?xf32>
// CHECK-DAG:     %[[S0:.*]] = "symshape.symbol"() {{.*}}name = "s0"
// CHECK:         %[[U0:.*]] = "symshape.unbacked_symbol"
// CHECK-NEXT:    "host.call"(%[[X]], %[[U0]])
// CHECK-NEXT:    %[[EQ:.*]] = arith.cmpi eq, %[[S0]], %[[U0]]
// CHECK-NEXT:    "symshape.expect_true"(%[[EQ]])
// CHECK-NEXT:    "host.call"(%[[X]], %[[S0]])
func.func @after_a_check(%x: tensor<?xf32>, %t: tensor<i64>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %u0 = "symshape.unbacked_symbol"(%t) {name = "u0", min = 0 : i64, max = 4096 : i64, kind = "item"} : (tensor<i64>) -> index
  "host.call"(%x, %u0) {target = "aten.resize_", arguments = "($0, $1)"} : (tensor<?xf32>, index) -> ()
  %eq = arith.cmpi eq, %s0, %u0 : index
  "symshape.expect_true"(%eq) {message = "as many as rows"} : (i1) -> ()
  "host.call"(%x, %u0) {target = "aten.resize_", arguments = "($0, $1)"} : (tensor<?xf32>, index) -> ()
  return
}

// -----

// Types say which sizes are numbers: a symbol that can only be one number stays, arithmetic on numbers does not.
// CHECK-LABEL: func.func @numbers(
// CHECK:         %[[S0:.*]] = "symshape.symbol"
// CHECK:         %[[C16:.*]] = arith.constant 16 : index
// CHECK-NEXT:    "host.call"(%{{.*}}, %[[S0]], %[[C16]])
func.func @numbers(%x: tensor<?xf32>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %c2 = arith.constant 2 : index
  %c8 = arith.constant 8 : index
  %eq = arith.cmpi eq, %s0, %c8 : index
  "symshape.assume"(%eq) : (i1) -> ()
  %m = arith.muli %c8, %c2 : index
  "host.call"(%x, %s0, %m) {target = "aten.resize_", arguments = "($0, $1, $2)"} : (tensor<?xf32>, index, index) -> ()
  return
}

// -----

// What a check makes better is written behind it in the order in which it was found: one form is made of the one before.
// CHECK-LABEL: func.func @in_order(
// CHECK:         "symshape.expect_true"
// CHECK:         %[[C2:.*]] = arith.constant 2 : index
// CHECK:         %[[FIRST:.*]] = arith.muli %{{.*}}, %[[C2]] : index
// CHECK-NEXT:    %[[LEFT:.*]] = arith.addi %{{.*}}, %[[FIRST]]
// CHECK:         %[[SQUARE:.*]] = arith.addi %[[LEFT]], %{{.*}} : index
// CHECK:         %[[SECOND:.*]] = arith.muli %{{.*}}, %[[C2]] : index
// CHECK-NEXT:    arith.addi %{{.*}}, %[[SECOND]] : index
// CHECK:         "host.call"(%{{.*}}, %[[SQUARE]], %{{.*}})
func.func @in_order(%x: tensor<?xf32>, %a: index, %b: index, %t: tensor<i64>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg1"} : () -> index
  %s2 = "symshape.symbol"() {name = "s2", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg2"} : () -> index
  %u0 = "symshape.unbacked_symbol"(%t) {name = "u0", min = 0 : i64, max = 4096 : i64, kind = "item"} : (tensor<i64>) -> index
  %u = arith.muli %u0, %u0 : index
  %v = arith.muli %u, %s1 : index
  %sum = arith.addi %s1, %s2 : index
  %eq = arith.cmpi eq, %u0, %sum : index
  "symshape.expect_true"(%eq) {message = "as many as both"} : (i1) -> ()
  "host.call"(%x, %u, %v) {target = "aten.resize_", arguments = "($0, $1, $2)"} : (tensor<?xf32>, index, index) -> ()
  return
}
