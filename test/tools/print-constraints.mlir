// RUN: symshape-opt %s --to-stage=shaped --print-constraints | filecheck %s

// CHECK:      s1 >= s0{{ +}}assumed{{ +}}assume{{ +}}model.py:3
// CHECK-NEXT: u0 >= 4*s0{{ +}}hoisted{{ +}}expect_true{{ +}}model.py:31, model.py:32{{ +}}"rows must fit; really"
// CHECK-NEXT: u0 >= 3*s0{{ +}}implied{{ +}}expect_true{{ +}}model.py:33{{ +}}"less"
// CHECK-NEXT: s1 >= 2{{ +}}proven{{ +}}expect_true{{ +}}model.py:34{{ +}}"two"
// CHECK-NOT:  {{.}}
func.func @table(%x: tensor<?x?xf32>, %t: tensor<i64>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(1)"} : () -> index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %le = arith.cmpi sle, %s0, %s1 : index
  "symshape.assume"(%le) : (i1) -> () loc("model.py":3:1)
  %u0 = "symshape.unbacked_symbol"(%t) {name = "u0", min = 0 : i64, max = 4096 : i64, kind = "item"} : (tensor<i64>) -> index
  "host.call"(%x) {target = "aten.relu_.default", arguments = "($0,)"} : (tensor<?x?xf32>) -> ()
  %four = arith.muli %s0, %c4 : index
  %fits = arith.cmpi sge, %u0, %four : index
  "symshape.expect_true"(%fits) {message = "rows must fit"} : (i1) -> () loc("model.py":31:1)
  "symshape.expect_true"(%fits) {message = "really"} : (i1) -> () loc("model.py":32:1)
  %three = arith.muli %s0, %c3 : index
  %less = arith.cmpi sge, %u0, %three : index
  "symshape.expect_true"(%less) {message = "less"} : (i1) -> () loc("model.py":33:1)
  %two = arith.cmpi sge, %s1, %c2 : index
  "symshape.expect_true"(%two) {message = "two"} : (i1) -> () loc("model.py":34:1)
  return
}
