// RUN: symshape-opt %s | symshape-opt | filecheck %s
// RUN: symshape-opt %s --mlir-print-op-generic | symshape-opt | filecheck %s

// CHECK-LABEL: func.func @backed(
// CHECK-SAME:    %[[X:.*]]: tensor<?x256xf32>, %[[N:.*]]: index
func.func @backed(%x: tensor<?x256xf32>, %n: index) -> (index, index, index, index) {
  // CHECK: %[[S0:.*]] = "symshape.symbol"() {binding = "arg0.size(0)", divisor = 1 : i64, hint = 8 : i64, max = 9223372036854775807 : i64, min = 2 : i64, name = "s0", source = "L['x'].size()[0]"} : () -> index
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 9223372036854775807 : i64, divisor = 1 : i64, hint = 8 : i64,
                             source = "L['x'].size()[0]", binding = "arg0.size(0)"} : () -> index
  // CHECK: binding = "arg0.stride(1)"
  %s1 = "symshape.symbol"() {name = "s1", min = 1 : i64, max = 64 : i64, divisor = 16 : i64, hint = -1 : i64,
                             source = "stride", binding = "arg0.stride(1)"} : () -> index
  // CHECK: binding = "arg0.offset"
  %s2 = "symshape.symbol"() {name = "s2", min = 0 : i64, max = 64 : i64, divisor = 1 : i64, hint = 0 : i64,
                             source = "offset", binding = "arg0.offset"} : () -> index
  // CHECK: binding = "arg1"
  %s3 = "symshape.symbol"() {name = "s3", min = -5 : i64, max = 64 : i64, divisor = 1 : i64, hint = -1 : i64,
                             source = "n", binding = "arg1"} : () -> index
  return %s0, %s1, %s2, %s3 : index, index, index, index
}

// The same name in another function is another symbol.
// CHECK-LABEL: func.func @same_name(
func.func @same_name(%n: index) -> index {
  // CHECK: "symshape.symbol"()
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 9 : i64, divisor = 1 : i64, hint = 8 : i64,
                             source = "n", binding = "arg0"} : () -> index
  return %s0 : index
}

// CHECK-LABEL: func.func @unbacked(
// CHECK-SAME:    %[[T:.*]]: tensor<i64>, %[[X:.*]]: tensor<2x?xi64>
func.func @unbacked(%t: tensor<i64>, %x: tensor<2x?xi64>) -> (index, index) {
  // CHECK: "symshape.unbacked_symbol"(%[[T]]) {kind = "item", max = 9 : i64, min = 0 : i64, name = "u0"} : (tensor<i64>) -> index
  %u0 = "symshape.unbacked_symbol"(%t) {name = "u0", min = 0 : i64, max = 9 : i64, kind = "item"} : (tensor<i64>) -> index
  // CHECK: "symshape.unbacked_symbol"(%[[X]]) {dim = 1 : i64, kind = "size"
  %u1 = "symshape.unbacked_symbol"(%x) {name = "u1", min = 0 : i64, max = 9 : i64, kind = "size", dim = 1 : i64} : (tensor<2x?xi64>) -> index
  return %u0, %u1 : index, index
}

// CHECK-LABEL: func.func @bind(
// CHECK-SAME:    %[[X:.*]]: tensor<?x256xf32>, %[[Y:.*]]: tensor<f32>, %[[N:.*]]: index
func.func @bind(%x: tensor<?x256xf32>, %y: tensor<f32>, %n: index) {
  // CHECK: "symshape.bind"(%[[X]], %[[N]], %[[N]], %[[N]], %[[N]], %[[N]]) : (tensor<?x256xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%x, %n, %n, %n, %n, %n) : (tensor<?x256xf32>, index, index, index, index, index) -> ()
  // CHECK: "symshape.bind"(%[[Y]], %[[N]]) : (tensor<f32>, index) -> ()
  "symshape.bind"(%y, %n) : (tensor<f32>, index) -> ()
  return
}
