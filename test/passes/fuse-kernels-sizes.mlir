// RUN: symshape-opt %s --split-input-file --fuse-kernels | filecheck %s

// Two loops that differ in how their sizes are computed and in a number of channels are one kernel, which takes both.
// CHECK-LABEL: func.func @two_stages(
// CHECK-DAG:     %[[N:.*]] = "symshape.symbol"() {{.*}}name = "s0"
// CHECK-DAG:     %[[H:.*]] = "symshape.symbol"() {{.*}}name = "s1"
// CHECK-DAG:     %[[HALF:.*]] = arith.floordivsi
// CHECK-DAG:     %[[QUARTER:.*]] = arith.floordivsi
// CHECK-DAG:     %[[C32:.*]] = arith.constant 32 : index
// CHECK-DAG:     %[[C48:.*]] = arith.constant 48 : index
// CHECK-DAG:     "host.launch"({{%.*}}, {{%.*}}, %[[N]], %[[HALF]], %[[C32]]) {callee = @kernel_0} : (tensor<?x32x?xf32>,
// CHECK-DAG:     "host.launch"({{%.*}}, {{%.*}}, %[[N]], %[[QUARTER]], %[[C48]]) {callee = @kernel_0} : (tensor<?x48x?xf32>,
// CHECK:       func.func private @kernel_0({{%.*}}: tensor<?x?x?xf32>, {{%.*}}: tensor<?x?x?xf32>, %[[A:.*]]: index, %[[B:.*]]: index, %[[C:.*]]: index)
// CHECK-NOT:     arith.addi
// CHECK:         %[[LEAST:.*]] = arith.constant 17 : index
// CHECK:         %[[MANY:.*]] = arith.cmpi sge, %[[C]], %[[LEAST]]
// CHECK:         "symshape.assume"(%[[MANY]])
// CHECK:         "symshape.space"(%[[A]], %[[C]], %[[B]]) {iterators = ["parallel", "parallel", "parallel"]}
// CHECK-NOT:   func.func
#all = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
func.func @two_stages(%x: tensor<?x32x?xf32>, %y: tensor<?x48x?xf32>) -> (tensor<?x32x?xf32>, tensor<?x48x?xf32>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 0 : i64, max = 9223372036854775807 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 1 : i64, max = 9223372036854775807 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.stride(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %c32 = arith.constant 32 : index
  %c48 = arith.constant 48 : index
  %a = arith.addi %s1, %c1 : index
  %half = arith.floordivsi %a, %c2 : index
  %b = arith.addi %s1, %c3 : index
  %quarter = arith.floordivsi %b, %c4 : index
  %xs = arith.muli %half, %c32 : index
  %ys = arith.muli %quarter, %c48 : index
  "symshape.bind"(%x, %s0, %c32, %half, %xs, %half, %c1, %c0) : (tensor<?x32x?xf32>, index, index, index, index, index, index, index) -> ()
  "symshape.bind"(%y, %s0, %c48, %quarter, %ys, %quarter, %c1, %c0) : (tensor<?x48x?xf32>, index, index, index, index, index, index, index) -> ()
  %i = tensor.empty(%s0, %half) : tensor<?x32x?xf32>
  %u = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%x : tensor<?x32x?xf32>) outs(%i : tensor<?x32x?xf32>) {
    ^bb0(%in0: f32, %out: f32):
      %0 = math.exp %in0 : f32
      linalg.yield %0 : f32
  } -> tensor<?x32x?xf32>
  "symshape.bind"(%u, %s0, %c32, %half, %xs, %half, %c1, %c0) : (tensor<?x32x?xf32>, index, index, index, index, index, index, index) -> ()
  %j = tensor.empty(%s0, %quarter) : tensor<?x48x?xf32>
  %v = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%y : tensor<?x48x?xf32>) outs(%j : tensor<?x48x?xf32>) {
    ^bb0(%in0: f32, %out: f32):
      %0 = math.exp %in0 : f32
      linalg.yield %0 : f32
  } -> tensor<?x48x?xf32>
  "symshape.bind"(%v, %s0, %c48, %quarter, %ys, %quarter, %c1, %c0) : (tensor<?x48x?xf32>, index, index, index, index, index, index, index) -> ()
  return %u, %v : tensor<?x32x?xf32>, tensor<?x48x?xf32>
}

// -----

// A size that the kernel mentions beside an expression of it stays the argument, and what no other kernel has stays a number.
// CHECK-LABEL: func.func @own_numbers(
// CHECK:         %[[H:.*]] = "symshape.symbol"() {{.*}}name = "s1"
// CHECK:         "host.launch"({{%.*}}, {{%.*}}, %[[H]]) {callee = @kernel_0}
// CHECK:       func.func private @kernel_0({{%.*}}: tensor<32x?x?xf32>, {{%.*}}: tensor<32x?x?xf32>, %[[A:.*]]: index)
// CHECK:         %[[HALF:.*]] = arith.floordivsi
// CHECK:         "symshape.space"({{%.*}}, %[[A]], %[[HALF]])
#all = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
func.func @own_numbers(%x: tensor<32x?x?xf32>) -> tensor<32x?x?xf32> {
  %s1 = "symshape.symbol"() {name = "s1", min = 1 : i64, max = 9223372036854775807 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(1)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c32 = arith.constant 32 : index
  %half = arith.floordivsi %s1, %c2 : index
  %plane = arith.muli %half, %s1 : index
  "symshape.bind"(%x, %c32, %s1, %half, %plane, %half, %c1, %c0) : (tensor<32x?x?xf32>, index, index, index, index, index, index, index) -> ()
  %i = tensor.empty(%s1, %half) : tensor<32x?x?xf32>
  %u = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%x : tensor<32x?x?xf32>) outs(%i : tensor<32x?x?xf32>) {
    ^bb0(%in0: f32, %out: f32):
      %0 = math.exp %in0 : f32
      linalg.yield %0 : f32
  } -> tensor<32x?x?xf32>
  "symshape.bind"(%u, %c32, %s1, %half, %plane, %half, %c1, %c0) : (tensor<32x?x?xf32>, index, index, index, index, index, index, index) -> ()
  return %u : tensor<32x?x?xf32>
}
