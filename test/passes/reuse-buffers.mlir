// RUN: symshape-opt %s --split-input-file --reuse-buffers | filecheck %s

// %a dies in the second launch, whose kernel may write in place; %b in a library call, and %d takes its memory. What is
// returned takes memory that was allocated here.
// CHECK-LABEL: func.func @chain(
// CHECK-SAME:    %[[X:.*]]: tensor<?xf32>)
// CHECK:         %[[E:.*]] = tensor.empty(%[[S0:.*]])
// CHECK-NOT:     tensor.empty
// CHECK:         %[[A:.*]] = "host.launch"(%[[X]], %[[E]], %[[S0]]) {callee = @own}
// CHECK:         %[[D1:.*]] = "symshape.reuse"(%[[A]])
// CHECK-NEXT:    %[[B:.*]] = "host.launch"(%[[A]], %[[D1]], %[[S0]]) {callee = @own}
// CHECK:         %[[C:.*]] = "host.call"(%[[B]])
// CHECK:         %[[D2:.*]] = "symshape.reuse"(%[[B]])
// CHECK-NEXT:    %[[R:.*]] = "host.launch"(%[[C]], %[[D2]], %[[S0]]) {callee = @own}
// CHECK:         return %[[R]]
func.func @chain(%x: tensor<?xf32>) -> tensor<?xf32> {
  %s0 = "symshape.symbol"() {name = "s0", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %e0 = tensor.empty(%s0) : tensor<?xf32>
  %a = "host.launch"(%x, %e0, %s0) {callee = @own} : (tensor<?xf32>, tensor<?xf32>, index) -> tensor<?xf32>
  "symshape.bind"(%a, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %e1 = tensor.empty(%s0) : tensor<?xf32>
  %b = "host.launch"(%a, %e1, %s0) {callee = @own} : (tensor<?xf32>, tensor<?xf32>, index) -> tensor<?xf32>
  "symshape.bind"(%b, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %c = "host.call"(%b) {target = "aten.flip.default", arguments = "($0, [0])", fresh} : (tensor<?xf32>) -> tensor<?xf32>
  "symshape.bind"(%c, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %e2 = tensor.empty(%s0) : tensor<?xf32>
  %d = "host.launch"(%c, %e2, %s0) {callee = @own} : (tensor<?xf32>, tensor<?xf32>, index) -> tensor<?xf32>
  "symshape.bind"(%d, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  return %d : tensor<?xf32>
}
func.func private @own(%x: tensor<?xf32>, %dest: tensor<?xf32>, %s0: index) -> tensor<?xf32>
    attributes {symshape.in_place = array<i64: 0, 0>, symshape.kernel, symshape.kind = "pointwise", symshape.num_inputs = 1 : i64, symshape.num_outputs = 1 : i64} {
  return %dest : tensor<?xf32>
}

// -----

// No memory of an argument is written to, none that a view still shows, and none that a call may have kept.
// CHECK-LABEL: func.func @alive(
// CHECK-COUNT-3: tensor.empty
// CHECK-NOT:     symshape.reuse
// CHECK:         return
func.func @alive(%x: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %e0 = tensor.empty(%s0) : tensor<?xf32>
  %a = "host.launch"(%x, %e0, %s0) {callee = @own} : (tensor<?xf32>, tensor<?xf32>, index) -> tensor<?xf32>
  "symshape.bind"(%a, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %v = "symshape.view"(%a, %s0) {map = affine_map<(d0) -> (d0)>} : (tensor<?xf32>, index) -> tensor<?xf32>
  "symshape.bind"(%v, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %e1 = tensor.empty(%s0) : tensor<?xf32>
  %b = "host.launch"(%a, %e1, %s0) {callee = @own} : (tensor<?xf32>, tensor<?xf32>, index) -> tensor<?xf32>
  "symshape.bind"(%b, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %c = "host.call"(%b) {target = "custom.maybe_view.default", arguments = "($0)"} : (tensor<?xf32>) -> tensor<?xf32>
  "symshape.bind"(%c, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %e2 = tensor.empty(%s0) : tensor<?xf32>
  %d = "host.launch"(%c, %e2, %s0) {callee = @own} : (tensor<?xf32>, tensor<?xf32>, index) -> tensor<?xf32>
  "symshape.bind"(%d, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  return %v, %d : tensor<?xf32>, tensor<?xf32>
}
func.func private @own(%x: tensor<?xf32>, %dest: tensor<?xf32>, %s0: index) -> tensor<?xf32>
    attributes {symshape.in_place = array<i64: 0, 0>, symshape.kernel, symshape.kind = "pointwise", symshape.num_inputs = 1 : i64, symshape.num_outputs = 1 : i64} {
  return %dest : tensor<?xf32>
}

// -----

// Equal numbers of bytes are enough: s0 * s1 floats, and s1 * s0 integers in other dims. The kernel reads its input
// elsewhere than it writes, so %a is not free before the launch is over; and half as many bytes are not enough.
// CHECK-LABEL: func.func @bytes(
// CHECK:         %[[A:.*]] = "host.launch"({{.*}}) {callee = @transpose}
// CHECK:         %[[B:.*]] = "host.launch"(%[[A]], {{.*}}) {callee = @transpose}
// CHECK:         %[[D:.*]] = "symshape.reuse"(%[[A]]) : (tensor<?x?xf32>) -> tensor<?x?xi32>
// CHECK-NEXT:    %[[C:.*]] = "host.launch"(%[[B]], %[[D]], {{.*}}) {callee = @round}
// CHECK:         tensor.empty
// CHECK:         "host.launch"(%[[C]], {{.*}}) {callee = @shorten}
// CHECK-NOT:     symshape.reuse
func.func @bytes(%x: tensor<?x?xf32>) -> tensor<?x?xi16> {
  %s0 = "symshape.symbol"() {name = "s0", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 9 : i64, source = "", binding = "arg0.size(1)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  %e0 = tensor.empty(%s1, %s0) : tensor<?x?xf32>
  %a = "host.launch"(%x, %e0, %s0, %s1) {callee = @transpose} : (tensor<?x?xf32>, tensor<?x?xf32>, index, index) -> tensor<?x?xf32>
  "symshape.bind"(%a, %s1, %s0, %s0, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  %e1 = tensor.empty(%s0, %s1) : tensor<?x?xf32>
  %b = "host.launch"(%a, %e1, %s1, %s0) {callee = @transpose} : (tensor<?x?xf32>, tensor<?x?xf32>, index, index) -> tensor<?x?xf32>
  "symshape.bind"(%b, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  %e2 = tensor.empty(%s0, %s1) : tensor<?x?xi32>
  %c = "host.launch"(%b, %e2, %s0, %s1) {callee = @round} : (tensor<?x?xf32>, tensor<?x?xi32>, index, index) -> tensor<?x?xi32>
  "symshape.bind"(%c, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xi32>, index, index, index, index, index) -> ()
  %e3 = tensor.empty(%s0, %s1) : tensor<?x?xi16>
  %d = "host.launch"(%c, %e3, %s0, %s1) {callee = @shorten} : (tensor<?x?xi32>, tensor<?x?xi16>, index, index) -> tensor<?x?xi16>
  "symshape.bind"(%d, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xi16>, index, index, index, index, index) -> ()
  return %d : tensor<?x?xi16>
}
func.func private @transpose(%x: tensor<?x?xf32>, %dest: tensor<?x?xf32>, %s0: index, %s1: index) -> tensor<?x?xf32>
    attributes {symshape.kernel, symshape.kind = "pointwise", symshape.num_inputs = 1 : i64, symshape.num_outputs = 1 : i64} {
  return %dest : tensor<?x?xf32>
}
func.func private @round(%x: tensor<?x?xf32>, %dest: tensor<?x?xi32>, %s0: index, %s1: index) -> tensor<?x?xi32>
    attributes {symshape.kernel, symshape.kind = "pointwise", symshape.num_inputs = 1 : i64, symshape.num_outputs = 1 : i64} {
  return %dest : tensor<?x?xi32>
}
func.func private @shorten(%x: tensor<?x?xi32>, %dest: tensor<?x?xi16>, %s0: index, %s1: index) -> tensor<?x?xi16>
    attributes {symshape.kernel, symshape.kind = "pointwise", symshape.num_inputs = 1 : i64, symshape.num_outputs = 1 : i64} {
  return %dest : tensor<?x?xi16>
}

// -----

// %b dies in the collective for all that its operands say, and is read until the wait: %e1 and %e2 take other memory.
// CHECK-LABEL: func.func @in_flight(
// CHECK:         %[[B:.*]] = "host.launch"(%{{.*}}, %{{.*}}, %{{.*}}) {callee = @own}
// CHECK:         all_reduce
// CHECK:         %[[E1:.*]] = tensor.empty
// CHECK:         %[[K:.*]] = "host.launch"(%{{.*}}, %[[E1]]
// CHECK:         %[[D:.*]] = "symshape.reuse"(%[[K]])
// CHECK:         wait_tensor
// CHECK-NOT:     symshape.reuse
func.func @in_flight(%x: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %e0 = tensor.empty(%s0) : tensor<?xf32>
  %b = "host.launch"(%x, %e0, %s0) {callee = @own} : (tensor<?xf32>, tensor<?xf32>, index) -> tensor<?xf32>
  "symshape.bind"(%b, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %r = "host.call"(%b) {target = "_c10d_functional.all_reduce.default", arguments = "($0, 'sum', '0')", checked, collective = 0 : i64} : (tensor<?xf32>) -> tensor<?xf32>
  "symshape.bind"(%r, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %e1 = tensor.empty(%s0) : tensor<?xf32>
  %k = "host.launch"(%x, %e1, %s0) {callee = @own} : (tensor<?xf32>, tensor<?xf32>, index) -> tensor<?xf32>
  "symshape.bind"(%k, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %e2 = tensor.empty(%s0) : tensor<?xf32>
  %l = "host.launch"(%k, %e2, %s0) {callee = @own} : (tensor<?xf32>, tensor<?xf32>, index) -> tensor<?xf32>
  "symshape.bind"(%l, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %w = "host.call"(%r) {target = "_c10d_functional.wait_tensor.default", arguments = "($0)", checked} : (tensor<?xf32>) -> tensor<?xf32>
  "symshape.bind"(%w, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  return %l, %w : tensor<?xf32>, tensor<?xf32>
}
func.func private @own(%x: tensor<?xf32>, %dest: tensor<?xf32>, %s0: index) -> tensor<?xf32>
    attributes {symshape.in_place = array<i64: 0, 0>, symshape.kernel, symshape.kind = "pointwise", symshape.num_inputs = 1 : i64, symshape.num_outputs = 1 : i64} {
  return %dest : tensor<?xf32>
}
