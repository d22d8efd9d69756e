// RUN: symshape-opt %s | symshape-opt | filecheck %s
// RUN: symshape-opt %s --canonicalize --cse --symbol-dce | filecheck %s

// CHECK-LABEL: func.func @call(
// CHECK-SAME:    %[[A:.*]]: tensor<?x256xf32>, %[[B:.*]]: tensor<256xf32>, %[[N:.*]]: index
func.func @call(%a: tensor<?x256xf32>, %b: tensor<256xf32>, %n: index) -> tensor<?x256xf32> {
  // Operands and results of any types; an unused call stays, since the library may do more than return.
  // CHECK-NEXT: %{{.*}}:2 = "host.call"(%[[A]], %[[N]]) {arguments = "($0, $1)", result_indices = array<i64: 0, 1>, target = "aten.topk.default"} : (tensor<?x256xf32>, index) -> (tensor<?x?xf32>, tensor<?x?xi64>)
  %v:2 = "host.call"(%a, %n) {target = "aten.topk.default", arguments = "($0, $1)", result_indices = array<i64: 0, 1>}
       : (tensor<?x256xf32>, index) -> (tensor<?x?xf32>, tensor<?x?xi64>)
  // CHECK-NEXT: "host.call"() {arguments = "()", target = "aten.manual_seed"} : () -> ()
  "host.call"() {target = "aten.manual_seed", arguments = "()"} : () -> ()
  // CHECK-NEXT: %[[R:.*]] = "host.call"(%[[A]], %[[B]]) {arguments = "($0, $1, alpha=2)", target = "aten.add.Tensor"} : (tensor<?x256xf32>, tensor<256xf32>) -> tensor<?x256xf32>
  %r = "host.call"(%a, %b) {target = "aten.add.Tensor", arguments = "($0, $1, alpha=2)"} : (tensor<?x256xf32>, tensor<256xf32>) -> tensor<?x256xf32>
  // CHECK-NEXT: return %[[R]]
  return %r : tensor<?x256xf32>
}

// CHECK-LABEL: func.func @launch(
// CHECK-SAME:    %[[X:.*]]: tensor<?xf32>, %[[N:.*]]: index
func.func @launch(%x: tensor<?xf32>, %n: index) -> tensor<?xf32> {
  // CHECK: %[[D:.*]] = tensor.empty(%[[N]])
  %d = tensor.empty(%n) : tensor<?xf32>
  // CHECK: "host.launch"(%[[X]], %[[D]], %[[N]]) {callee = @kernel_0} : (tensor<?xf32>, tensor<?xf32>, index) -> tensor<?xf32>
  %r = "host.launch"(%x, %d, %n) {callee = @kernel_0} : (tensor<?xf32>, tensor<?xf32>, index) -> tensor<?xf32>
  return %r : tensor<?xf32>
}

// CHECK-LABEL: func.func private @kernel_0(
func.func private @kernel_0(%x: tensor<?xf32>, %d: tensor<?xf32>, %n: index) -> tensor<?xf32>
    attributes {symshape.kernel, symshape.num_inputs = 1 : i64, symshape.num_outputs = 1 : i64} {
  return %x : tensor<?xf32>
}

// CHECK-LABEL: func.func @cond(
// CHECK-SAME:    %[[P:.*]]: tensor<i1>, %[[X:.*]]: tensor<?xf32>, %[[N:.*]]: index
func.func @cond(%p: tensor<i1>, %x: tensor<?xf32>, %n: index) -> tensor<?xf32> {
  // Sizes that differ between the branches are dynamic in the result.
  // CHECK-NEXT: %[[R:.*]] = "host.cond"(%[[P]], %[[X]], %[[N]]) {false = @whole, true = @first} : (tensor<i1>, tensor<?xf32>, index) -> tensor<?xf32>
  %r = "host.cond"(%p, %x, %n) {true = @first, false = @whole} : (tensor<i1>, tensor<?xf32>, index) -> tensor<?xf32>
  return %r : tensor<?xf32>
}

// CHECK-LABEL: func.func @first(
// CHECK-SAME:    attributes {symshape.subgraph}
func.func @first(%x: tensor<?xf32>, %n: index) -> tensor<1xf32> attributes {symshape.subgraph} {
  %r = "host.call"(%x) {target = "aten.slice.Tensor", arguments = "($0, 0, 0, 1)"} : (tensor<?xf32>) -> tensor<1xf32>
  return %r : tensor<1xf32>
}

func.func @whole(%x: tensor<?xf32>, %n: index) -> tensor<?xf32> attributes {symshape.subgraph} {
  // CHECK: "host.cond"({{.*}}) {false = @whole, true = @whole} : (i1, tensor<?xf32>, index) -> tensor<?xf32>
  %c4 = arith.constant 4 : index
  %p = arith.cmpi sge, %n, %c4 : index
  %r = "host.cond"(%p, %x, %n) {true = @whole, false = @whole} : (i1, tensor<?xf32>, index) -> tensor<?xf32>
  return %r : tensor<?xf32>
}

// CHECK-LABEL: func.func @loops(
// CHECK-SAME:    %[[X:.*]]: tensor<?x7xf32>, %[[C:.*]]: tensor<7xf32>, %[[N:.*]]: index
func.func @loops(%x: tensor<?x7xf32>, %c: tensor<7xf32>, %n: index) -> (tensor<7xf32>, tensor<?x7xf32>) {
  // Carried tensors and integers, then what every step gets as it is.
  // CHECK: %{{.*}}:2 = "host.while"(%{{.*}}, %[[C]], %[[N]]) {body = @step, carried = 2 : i64, cond = @below} : (index, tensor<7xf32>, index) -> (index, tensor<7xf32>)
  %c0 = arith.constant 0 : index
  %w:2 = "host.while"(%c0, %c, %n) {cond = @below, body = @step, carried = 2 : i64}
       : (index, tensor<7xf32>, index) -> (index, tensor<7xf32>)
  // CHECK: "host.while"({{.*}}) {body = @shift, carried = 1 : i64, cond = @small, stacked}
  %s = "host.while"(%c) {cond = @small, body = @shift, carried = 1 : i64, stacked} : (tensor<7xf32>) -> tensor<?x7xf32>
  // A carried tensor, one that is sliced along its first dim, and a stack.
  // CHECK: %[[R:.*]]:2 = "host.scan"({{.*}}, %[[X]]) {body = @combine, carried = 1 : i64, sliced = 1 : i64} : (tensor<7xf32>, tensor<?x7xf32>) -> (tensor<7xf32>, tensor<?x7xf32>)
  %r:2 = "host.scan"(%w#1, %x) {body = @combine, carried = 1 : i64, sliced = 1 : i64}
       : (tensor<7xf32>, tensor<?x7xf32>) -> (tensor<7xf32>, tensor<?x7xf32>)
  return %r#0, %r#1 : tensor<7xf32>, tensor<?x7xf32>
}

// CHECK-LABEL: func.func @attention(
func.func @attention(%q: tensor<2x?x7x4xf32>, %counts: tensor<1x1x1xi32>, %blocks: tensor<1x1x1x1xi32>, %w: tensor<7xf32>) -> tensor<2x?x7x4xf32> {
  %c128 = arith.constant 128 : index
  // What the scores read besides the tile comes last.
  // CHECK: "host.attention"({{.*}}) {lists = 2 : i64, scores = @scores, weights = @weights}
  %r = "host.attention"(%q, %q, %q, %counts, %blocks, %c128, %c128, %w) {scores = @scores, weights = @weights, lists = 2 : i64}
     : (tensor<2x?x7x4xf32>, tensor<2x?x7x4xf32>, tensor<2x?x7x4xf32>, tensor<1x1x1xi32>, tensor<1x1x1x1xi32>, index, index, tensor<7xf32>) -> tensor<2x?x7x4xf32>
  // Where all is one small tile, another function.
  // CHECK: "host.attention"({{.*}}) {lists = 2 : i64, scores = @scores, weights = @weights, whole = @all_at_once}
  %s = "host.attention"(%q, %q, %q, %counts, %blocks, %c128, %c128, %w) {scores = @scores, weights = @weights, whole = @all_at_once, lists = 2 : i64}
     : (tensor<2x?x7x4xf32>, tensor<2x?x7x4xf32>, tensor<2x?x7x4xf32>, tensor<1x1x1xi32>, tensor<1x1x1x1xi32>, index, index, tensor<7xf32>) -> tensor<2x?x7x4xf32>
  return %s : tensor<2x?x7x4xf32>
}

func.func @all_at_once(%q: tensor<2x?x7x4xf32>, %k: tensor<2x?x7x4xf32>, %v: tensor<2x?x7x4xf32>, %w: tensor<7xf32>) -> tensor<2x?x7x4xf32>
    attributes {symshape.subgraph} {
  return %v : tensor<2x?x7x4xf32>
}

func.func @scores(%x: tensor<?x?x?x?xf32>, %b: index, %h: index, %i: index, %j: index, %w: tensor<7xf32>) -> (tensor<?x?x?x?xf32>, tensor<?x?x?x1xf32>)
    attributes {symshape.subgraph} {
  %m = "host.call"(%x) {target = "aten.amax.default", arguments = "($0, [-1], True)"} : (tensor<?x?x?x?xf32>) -> tensor<?x?x?x1xf32>
  return %x, %m : tensor<?x?x?x?xf32>, tensor<?x?x?x1xf32>
}

func.func @weights(%x: tensor<?x?x?x?xf32>, %m: tensor<?x?x?x1xf32>) -> (tensor<?x?x?x?xf32>, tensor<?x?x?x1xf32>)
    attributes {symshape.subgraph} {
  return %x, %m : tensor<?x?x?x?xf32>, tensor<?x?x?x1xf32>
}

func.func @below(%i: index, %c: tensor<7xf32>, %n: index) -> i1 attributes {symshape.subgraph} {
  %p = arith.cmpi slt, %i, %n : index
  return %p : i1
}

func.func @step(%i: index, %c: tensor<7xf32>, %n: index) -> (index, tensor<7xf32>) attributes {symshape.subgraph} {
  %c1 = arith.constant 1 : index
  %j = arith.addi %i, %c1 : index
  %r = "host.call"(%c) {target = "aten.neg.default", arguments = "($0,)"} : (tensor<7xf32>) -> tensor<7xf32>
  return %j, %r : index, tensor<7xf32>
}

func.func @small(%c: tensor<7xf32>) -> tensor<i1> attributes {symshape.subgraph} {
  %p = "host.call"(%c) {target = "aten.any.default", arguments = "($0,)"} : (tensor<7xf32>) -> tensor<i1>
  return %p : tensor<i1>
}

func.func @shift(%c: tensor<7xf32>) -> tensor<7xf32> attributes {symshape.subgraph} {
  %r = "host.call"(%c) {target = "aten.sub.Scalar", arguments = "($0, 1)"} : (tensor<7xf32>) -> tensor<7xf32>
  return %r : tensor<7xf32>
}

func.func @combine(%c: tensor<7xf32>, %x: tensor<7xf32>) -> (tensor<7xf32>, tensor<7xf32>) attributes {symshape.subgraph} {
  %r = "host.call"(%c, %x) {target = "aten.add.Tensor", arguments = "($0, $1)"} : (tensor<7xf32>, tensor<7xf32>) -> tensor<7xf32>
  %s = "host.call"(%r) {target = "aten.neg.default", arguments = "($0,)"} : (tensor<7xf32>) -> tensor<7xf32>
  return %r, %s : tensor<7xf32>, tensor<7xf32>
}
