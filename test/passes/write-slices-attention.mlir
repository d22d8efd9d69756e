// RUN: symshape-opt %s --write-slices | filecheck %s

// Scores are written to memory that all tiles share; weights, which a library call makes, are not.
// CHECK-LABEL: func.func @main(
// CHECK:         "host.attention"({{.*}}) {lists = 2 : i64, scores = @scores, weights = @weights, written = array<i64: 0>}
func.func @main(%q: tensor<1x1x7x4xf32>, %counts: tensor<1x1x1xi32>, %blocks: tensor<1x1x1x1xi32>) -> tensor<1x1x7x4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c7 = arith.constant 7 : index
  %c28 = arith.constant 28 : index
  "symshape.bind"(%q, %c1, %c1, %c7, %c4, %c28, %c28, %c4, %c1, %c0) : (tensor<1x1x7x4xf32>, index, index, index, index, index, index, index, index, index) -> ()
  %r = "host.attention"(%q, %q, %q, %counts, %blocks, %c7, %c7) {scores = @scores, weights = @weights, lists = 2 : i64}
     : (tensor<1x1x7x4xf32>, tensor<1x1x7x4xf32>, tensor<1x1x7x4xf32>, tensor<1x1x1xi32>, tensor<1x1x1x1xi32>, index, index) -> tensor<1x1x7x4xf32>
  "symshape.bind"(%r, %c1, %c1, %c7, %c4, %c28, %c28, %c4, %c1, %c0) : (tensor<1x1x7x4xf32>, index, index, index, index, index, index, index, index, index) -> ()
  return %r : tensor<1x1x7x4xf32>
}

// CHECK-LABEL: func.func @scores(
// CHECK-SAME:    %[[X:.*]]: tensor<8xf32>, %{{.*}}: index, %{{.*}}: index, %{{.*}}: index, %{{.*}}: index, %[[D:.*]]: tensor<8xf32>) ->
// CHECK:         %[[Y:.*]] = "host.launch"(%[[X]], %[[D]]) {callee = @own}
// CHECK:         return %[[Y]], %[[X]]
func.func @scores(%x: tensor<8xf32>, %b: index, %h: index, %i: index, %j: index) -> (tensor<8xf32>, tensor<8xf32>) attributes {symshape.subgraph} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  "symshape.bind"(%x, %c8, %c1, %c0) : (tensor<8xf32>, index, index, index) -> ()
  %e = tensor.empty() : tensor<8xf32>
  %y = "host.launch"(%x, %e) {callee = @own} : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  "symshape.bind"(%y, %c8, %c1, %c0) : (tensor<8xf32>, index, index, index) -> ()
  return %y, %x : tensor<8xf32>, tensor<8xf32>
}

// CHECK-LABEL: func.func @weights(
// CHECK-SAME:    %{{.*}}: tensor<8xf32>, %{{.*}}: tensor<8xf32>) ->
func.func @weights(%x: tensor<8xf32>, %m: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) attributes {symshape.subgraph} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  "symshape.bind"(%x, %c8, %c1, %c0) : (tensor<8xf32>, index, index, index) -> ()
  %y = "host.call"(%x) {target = "aten.flip.default", arguments = "($0, [0])", fresh} : (tensor<8xf32>) -> tensor<8xf32>
  "symshape.bind"(%y, %c8, %c1, %c0) : (tensor<8xf32>, index, index, index) -> ()
  return %y, %m : tensor<8xf32>, tensor<8xf32>
}

func.func private @own(%x: tensor<8xf32>, %dest: tensor<8xf32>) -> tensor<8xf32>
    attributes {symshape.kernel, symshape.kind = "pointwise", symshape.num_inputs = 1 : i64, symshape.num_outputs = 1 : i64} {
  return %dest : tensor<8xf32>
}
