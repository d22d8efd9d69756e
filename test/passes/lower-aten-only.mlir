// RUN: symshape-opt %s --lower-aten='only=aten.relu.default,aten.neg.default' | filecheck %s

// CHECK-LABEL: func.func @only(
// CHECK-SAME:    %[[X:.*]]: tensor<?xf32>
// CHECK:         linalg.generic
// CHECK-SAME:      ins(%[[X]] :
// CHECK:           arith.cmpf olt
// CHECK:         } -> tensor<?xf32>
// CHECK:         "host.call"({{.*}}) {arguments = "($0,)", target = "aten.exp.default"}
// CHECK-NOT:     linalg.generic
// CHECK:         return
func.func @only(%x: tensor<?xf32>) -> tensor<?xf32> {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "x.size(0)", binding = "arg0.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %a = "host.call"(%x) {target = "aten.relu.default", arguments = "($0,)"} : (tensor<?xf32>) -> tensor<?xf32>
  "symshape.bind"(%a, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %b = "host.call"(%a) {target = "aten.exp.default", arguments = "($0,)"} : (tensor<?xf32>) -> tensor<?xf32>
  "symshape.bind"(%b, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  return %b : tensor<?xf32>
}
