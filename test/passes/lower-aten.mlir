// RUN: symshape-opt %s --split-input-file --lower-aten | filecheck %s

// A pointwise op: the operand that is broadcast is a view over the result's points.
// CHECK-DAG: #[[LAST:.*]] = affine_map<(d0, d1) -> (d1)>
// CHECK-DAG: #[[ALL:.*]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-LABEL: func.func @add_broadcast(
// CHECK-SAME:    %[[X:.*]]: tensor<?x?xf32>, %[[BIAS:.*]]: tensor<?xf32>
// CHECK-DAG:     %[[S0:.*]] = "symshape.symbol"() {{.*}}name = "s0"
// CHECK-DAG:     %[[S1:.*]] = "symshape.symbol"() {{.*}}name = "s1"
// CHECK:         %[[B:.*]] = "symshape.view"(%[[BIAS]], %[[S0]], %[[S1]]) {map = #[[LAST]]}
// CHECK:         %[[E:.*]] = tensor.empty(%[[S0]], %[[S1]])
// CHECK:         %[[R:.*]] = linalg.generic {indexing_maps = [#[[ALL]], #[[ALL]], #[[ALL]]], iterator_types = ["parallel", "parallel"]}
// CHECK-SAME:      ins(%[[X]], %[[B]] :{{.*}} outs(%[[E]] :
// CHECK:           %[[SUM:.*]] = arith.addf
// CHECK-NEXT:      linalg.yield %[[SUM]]
// CHECK:         "symshape.bind"(%[[R]], %[[S0]], %[[S1]], %[[S1]],
// CHECK-NEXT:    return %[[R]]
func.func @add_broadcast(%x: tensor<?x?xf32>, %bias: tensor<?xf32>) -> tensor<?x?xf32> {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "x.size(0)", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 4 : i64, source = "x.size(1)", binding = "arg0.size(1)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%bias, %s1, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %r = "host.call"(%x, %bias) {target = "aten.add.Tensor", arguments = "($0, $1)"} : (tensor<?x?xf32>, tensor<?xf32>) -> tensor<?x?xf32>
  "symshape.bind"(%r, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  return %r : tensor<?x?xf32>
}

// -----

// Half types are added in f32 and rounded once.
// CHECK-LABEL: func.func @add_bf16(
// CHECK:         ^bb0(%[[A:.*]]: bf16, %[[B:.*]]: bf16, %{{.*}}: bf16):
// CHECK-NEXT:      %[[WIDE_A:.*]] = arith.extf %[[A]] : bf16 to f32
// CHECK-NEXT:      %[[WIDE_B:.*]] = arith.extf %[[B]] : bf16 to f32
// CHECK-NEXT:      %[[SUM:.*]] = arith.addf %[[WIDE_A]], %[[WIDE_B]] : f32
// CHECK-NEXT:      %[[ROUNDED:.*]] = arith.truncf %[[SUM]] : f32 to bf16
// CHECK-NEXT:      linalg.yield %[[ROUNDED]]
func.func @add_bf16(%x: tensor<?xbf16>) -> tensor<?xbf16> {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "x.size(0)", binding = "arg0.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %c1, %c0) : (tensor<?xbf16>, index, index, index) -> ()
  %r = "host.call"(%x) {target = "aten.add.Tensor", arguments = "($0, $0)"} : (tensor<?xbf16>) -> tensor<?xbf16>
  "symshape.bind"(%r, %s0, %c1, %c0) : (tensor<?xbf16>, index, index, index) -> ()
  return %r : tensor<?xbf16>
}

// -----

// keepdim: the reduction drops the dim, and a view puts it back.
// CHECK-DAG: #[[ALL:.*]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-DAG: #[[ROW:.*]] = affine_map<(d0, d1) -> (d0)>
// CHECK-LABEL: func.func @sum_keepdim(
// CHECK-SAME:    %[[X:.*]]: tensor<?x?xf32>
// CHECK:         %[[S0:.*]] = "symshape.symbol"() {{.*}}name = "s0"
// CHECK:         %[[C1:.*]] = arith.constant 1 : index
// CHECK:         %[[ZERO:.*]] = arith.constant 0.0{{.*}} : f32
// CHECK:         %[[INIT:.*]] = tensor.splat %[[ZERO]][%[[S0]]] : tensor<?xf32>
// CHECK:         %[[T:.*]] = linalg.generic {indexing_maps = [#[[ALL]], #[[ROW]]], iterator_types = ["parallel", "reduction"]}
// CHECK-SAME:      ins(%[[X]] :{{.*}} outs(%[[INIT]] :{{.*}} {symshape.combiner = "add"}
// CHECK:         "symshape.view"(%[[T]], %[[S0]], %[[C1]]) {map = #[[ROW]]} {{.*}} -> tensor<?x1xf32>
func.func @sum_keepdim(%x: tensor<?x?xf32>) -> tensor<?x1xf32> {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "x.size(0)", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 4 : i64, source = "x.size(1)", binding = "arg0.size(1)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  %r = "host.call"(%x) {target = "aten.sum.dim_IntList", arguments = "($0, [-1], True)"} : (tensor<?x?xf32>) -> tensor<?x1xf32>
  "symshape.bind"(%r, %s0, %c1, %c1, %c1, %c0) : (tensor<?x1xf32>, index, index, index, index, index) -> ()
  return %r : tensor<?x1xf32>
}

// -----

// Sizes multiply: one dim is the digits of another, whatever the sizes are.
// CHECK: #[[DIGITS:.*]] = affine_map<(d0, d1, d2) -> (d0, d1 * 4 + d2)>
// CHECK-LABEL: func.func @split_dim(
// CHECK-SAME:    %[[X:.*]]: tensor<?x?xf32>
// CHECK-DAG:     %[[S0:.*]] = "symshape.symbol"() {{.*}}name = "s0"
// CHECK-DAG:     %[[S1:.*]] = "symshape.symbol"() {{.*}}name = "s1"
// CHECK:         %[[C4:.*]] = arith.constant 4 : index
// CHECK:         %[[R:.*]] = "symshape.view"(%[[X]], %[[S0]], %[[S1]], %[[C4]]) {map = #[[DIGITS]]}
// CHECK-NEXT:    "symshape.bind"(%[[R]],
// CHECK-NEXT:    return %[[R]]
func.func @split_dim(%x: tensor<?x?xf32>, %n: index) -> tensor<?x?x4xf32> {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "x.size(0)", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 4 : i64, source = "x.size(1) // 4", binding = "arg1"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %row = arith.muli %s1, %c4 : index
  "symshape.bind"(%x, %s0, %row, %row, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  %r = "host.call"(%x, %s0, %s1) {target = "aten.view.default", arguments = "($0, [$1, $2, 4])"} : (tensor<?x?xf32>, index, index) -> tensor<?x?x4xf32>
  "symshape.bind"(%r, %s0, %s1, %c4, %row, %c4, %c1, %c0) : (tensor<?x?x4xf32>, index, index, index, index, index, index, index) -> ()
  return %r : tensor<?x?x4xf32>
}

// -----

// CHECK: #[[DIGITS:.*]] = affine_map<(d0, d1)[s0] -> (d0 floordiv s0, d0 mod s0, d1)>
// CHECK-LABEL: func.func @merge_dims(
// CHECK-SAME:    %[[X:.*]]: tensor<?x?x4xf32>
// CHECK-DAG:     %[[S0:.*]] = "symshape.symbol"() {{.*}}name = "s0"
// CHECK-DAG:     %[[S1:.*]] = "symshape.symbol"() {{.*}}name = "s1"
// CHECK:         %[[C4:.*]] = arith.constant 4 : index
// CHECK:         %[[N:.*]] = arith.muli %[[S0]], %[[S1]]
// CHECK:         "symshape.view"(%[[X]], %[[N]], %[[C4]], %[[S1]]) {map = #[[DIGITS]]}
func.func @merge_dims(%x: tensor<?x?x4xf32>) -> tensor<?x4xf32> {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "x.size(0)", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 4 : i64, source = "x.size(1)", binding = "arg0.size(1)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %row = arith.muli %s1, %c4 : index
  %n = arith.muli %s0, %s1 : index
  "symshape.bind"(%x, %s0, %s1, %c4, %row, %c4, %c1, %c0) : (tensor<?x?x4xf32>, index, index, index, index, index, index, index) -> ()
  %r = "host.call"(%x, %n) {target = "aten.view.default", arguments = "($0, [$1, 4])"} : (tensor<?x?x4xf32>, index) -> tensor<?x4xf32>
  "symshape.bind"(%r, %n, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> ()
  return %r : tensor<?x4xf32>
}

// -----

// A slice with a step: it starts at 1 without a clamp, for s0 >= 2.
// CHECK: #[[ODD:.*]] = affine_map<(d0) -> (d0 * 2 + 1)>
// CHECK-LABEL: func.func @slice_step(
// CHECK-SAME:    %[[X:.*]]: tensor<?xf32>
// CHECK:         %[[N:.*]] = arith.floordivsi
// CHECK:         "symshape.view"(%[[X]], %[[N]]) {map = #[[ODD]]}
func.func @slice_step(%x: tensor<?xf32>) -> tensor<?xf32> {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "x.size(0)", binding = "arg0.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  "symshape.bind"(%x, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %n = arith.floordivsi %s0, %c2 : index
  %r = "host.call"(%x) {target = "aten.slice.Tensor", arguments = "($0, 0, 1, 9223372036854775807, 2)"} : (tensor<?xf32>) -> tensor<?xf32>
  "symshape.bind"(%r, %n, %c2, %c1) : (tensor<?xf32>, index, index, index) -> ()
  return %r : tensor<?xf32>
}

// -----

// The pieces of a softmax.
// CHECK-LABEL: func.func @softmax(
// CHECK-NOT:     host.call
// CHECK:         arith.constant 0xFF800000
// CHECK:         linalg.generic {{.*}} {symshape.combiner = "max"}
// CHECK:           arith.maximumf
// CHECK:           arith.subf
// CHECK:           math.exp
// CHECK:         linalg.generic {{.*}} {symshape.combiner = "add"}
// CHECK:           arith.addf
// CHECK:           arith.divf
// CHECK:         return
func.func @softmax(%x: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "x.size(0)", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 4 : i64, source = "x.size(1)", binding = "arg0.size(1)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  %m = "host.call"(%x) {target = "aten.amax.default", arguments = "($0, [-1], True)"} : (tensor<?x?xf32>) -> tensor<?x1xf32>
  "symshape.bind"(%m, %s0, %c1, %c1, %c1, %c0) : (tensor<?x1xf32>, index, index, index, index, index) -> ()
  %d = "host.call"(%x, %m) {target = "aten.sub.Tensor", arguments = "($0, $1)"} : (tensor<?x?xf32>, tensor<?x1xf32>) -> tensor<?x?xf32>
  "symshape.bind"(%d, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  %e = "host.call"(%d) {target = "aten.exp.default", arguments = "($0,)"} : (tensor<?x?xf32>) -> tensor<?x?xf32>
  "symshape.bind"(%e, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  %t = "host.call"(%e) {target = "aten.sum.dim_IntList", arguments = "($0, [-1], True)"} : (tensor<?x?xf32>) -> tensor<?x1xf32>
  "symshape.bind"(%t, %s0, %c1, %c1, %c1, %c0) : (tensor<?x1xf32>, index, index, index, index, index) -> ()
  %r = "host.call"(%e, %t) {target = "aten.div.Tensor", arguments = "($0, $1)"} : (tensor<?x?xf32>, tensor<?x1xf32>) -> tensor<?x?xf32>
  "symshape.bind"(%r, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  return %r : tensor<?x?xf32>
}

// -----

// No rule, or a rule that does not hold here: the call stays as it is.
// CHECK-LABEL: func.func @stays(
// CHECK:         %[[P:.*]] = "host.call"({{.*}}) {arguments = "($0, $1)", target = "aten.mm.default"}
// CHECK:         %[[M:.*]] = "host.call"({{.*}}) {arguments = "($0, [0])", target = "aten.amax.default"}
// CHECK:         return %[[P]], %[[M]]
func.func @stays(%x: tensor<?x4xf32>, %w: tensor<4x4xf32>) -> (tensor<?x4xf32>, tensor<4xf32>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "x.size(0)", binding = "arg0.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  "symshape.bind"(%x, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%w, %c4, %c4, %c4, %c1, %c0) : (tensor<4x4xf32>, index, index, index, index, index) -> ()
  %p = "host.call"(%x, %w) {target = "aten.mm.default", arguments = "($0, $1)"} : (tensor<?x4xf32>, tensor<4x4xf32>) -> tensor<?x4xf32>
  "symshape.bind"(%p, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> ()
  // s0 may be 0: the maximum of nothing is an error that the library raises.
  %m = "host.call"(%x) {target = "aten.amax.default", arguments = "($0, [0])"} : (tensor<?x4xf32>) -> tensor<4xf32>
  "symshape.bind"(%m, %c4, %c1, %c0) : (tensor<4xf32>, index, index, index) -> ()
  return %p, %m : tensor<?x4xf32>, tensor<4xf32>
}

// -----

// A size that is found to be a number here: the type of what is returned says it as well.
// CHECK-LABEL: func.func @last_two(
// CHECK-SAME:    -> tensor<2xf32>
// CHECK:         %[[R:.*]] = linalg.generic
// CHECK:         return %[[R]] : tensor<2xf32>
func.func @last_two(%x: tensor<?xf32>) -> tensor<?xf32> {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "x.size(0)", binding = "arg0.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  "symshape.bind"(%x, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %from = arith.subi %s0, %c2 : index
  %count = arith.subi %s0, %from : index
  %v = "host.call"(%x, %from) {target = "aten.slice.Tensor", arguments = "($0, 0, $1, 9223372036854775807)"} : (tensor<?xf32>, index) -> tensor<?xf32>
  "symshape.bind"(%v, %count, %c1, %from) : (tensor<?xf32>, index, index, index) -> ()
  %r = "host.call"(%v) {target = "aten.neg.default", arguments = "($0,)", fresh} : (tensor<?xf32>) -> tensor<?xf32>
  "symshape.bind"(%r, %count, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  return %r : tensor<?xf32>
}

// -----

// A graph of a GPU: what lies on the CPU is left to library calls, but for a tensor without dims, which is a number.
// CHECK-LABEL: func.func @devices(
// CHECK-SAME:    %[[X:.*]]: tensor<?xf32>, %[[SCALE:.*]]: tensor<f32>, %[[Y:.*]]: tensor<?xf32>
// CHECK-DAG:     "symshape.bind"(%[[SCALE]], %{{.*}}) {device = "cpu"}
// CHECK:         %[[S:.*]] = "symshape.view"(%[[SCALE]],
// CHECK:         linalg.generic {{.*}} ins(%[[X]], %[[S]] :
// CHECK:         %[[D:.*]] = "host.call"(%[[Y]]) {arguments = "($0, 2)", target = "aten.mul.Tensor"}
// CHECK:         "host.call"(%[[D]]) {{.*}}target = "aten._to_copy.default"
func.func @devices(%x: tensor<?xf32>, %scale: tensor<f32>, %y: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "x.size(0)", binding = "arg0.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  "symshape.bind"(%scale, %c0) {device = "cpu"} : (tensor<f32>, index) -> ()
  "symshape.bind"(%y, %s0, %c1, %c0) {device = "cpu"} : (tensor<?xf32>, index, index, index) -> ()
  %r = "host.call"(%x, %scale) {target = "aten.mul.Tensor", arguments = "($0, $1)"} : (tensor<?xf32>, tensor<f32>) -> tensor<?xf32>
  "symshape.bind"(%r, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %d = "host.call"(%y) {target = "aten.mul.Tensor", arguments = "($0, 2)"} : (tensor<?xf32>) -> tensor<?xf32>
  "symshape.bind"(%d, %s0, %c1, %c0) {device = "cpu"} : (tensor<?xf32>, index, index, index) -> ()
  %t = "host.call"(%d) {target = "aten._to_copy.default", arguments = "($0, device=torch.device('cuda:0'))"} : (tensor<?xf32>) -> tensor<?xf32>
  "symshape.bind"(%t, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  return %r, %t : tensor<?xf32>, tensor<?xf32>
}
