// RUN: symshape-opt %s --split-input-file --fuse-kernels | filecheck %s

// A producer and its consumer: one loop, which stores both.
// CHECK-LABEL: func.func @producer_consumer(
// CHECK-SAME:    %[[X:.*]]: tensor<?x?xf32>) -> (tensor<?x?xf32>, tensor<?x?xf32>)
// CHECK-DAG:     %[[S0:.*]] = "symshape.symbol"() {{.*}}name = "s0"
// CHECK-DAG:     %[[S1:.*]] = "symshape.symbol"() {{.*}}name = "s1"
// CHECK-DAG:     %[[Y:.*]] = tensor.empty(%[[S0]], %[[S1]])
// CHECK-DAG:     %[[Z:.*]] = tensor.empty(%[[S0]], %[[S1]])
// CHECK:         %[[R:.*]]:2 = "host.launch"(%[[X]], {{%.*}}, {{%.*}}, %[[S0]], %[[S1]]) {callee = @kernel_0}
// CHECK-NOT:     linalg.generic
// CHECK:         return %[[R]]#0, %[[R]]#1
// CHECK:       func.func private @kernel_0(%[[IN:.*]]: tensor<?x?xf32>, %[[OUT0:.*]]: tensor<?x?xf32>, %[[OUT1:.*]]: tensor<?x?xf32>, %[[N:.*]]: index, %[[M:.*]]: index)
// CHECK-SAME:    attributes {symshape.in_place = array<i64: 0, 0, 0, 1>, symshape.kernel, symshape.kind = "pointwise", symshape.num_inputs = 1 : i64, symshape.num_outputs = 2 : i64}
// CHECK:         "symshape.space"(%[[N]], %[[M]]) {iterators = ["parallel", "parallel"]}
// CHECK:         %[[LOAD:.*]] = "symshape.view"(%[[IN]], %[[N]], %[[M]])
// CHECK:         %[[EXP:.*]] = linalg.generic {{.*}} ins(%[[LOAD]] :
// CHECK:           math.exp
// CHECK:         %[[SUM:.*]] = linalg.generic {{.*}} ins(%[[EXP]], %[[LOAD]] :
// CHECK:           arith.addf
// CHECK:         "symshape.store"(%[[EXP]], %[[OUT0]])
// CHECK:         "symshape.store"(%[[SUM]], %[[OUT1]])
// CHECK-NOT:   func.func
#all = affine_map<(d0, d1) -> (d0, d1)>
func.func @producer_consumer(%x: tensor<?x?xf32>) -> (tensor<?x?xf32>, tensor<?x?xf32>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(1)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  %i = tensor.empty(%s0, %s1) : tensor<?x?xf32>
  %y = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
    ins(%x : tensor<?x?xf32>) outs(%i : tensor<?x?xf32>) {
    ^bb0(%in0: f32, %out: f32):
      %0 = math.exp %in0 : f32
      linalg.yield %0 : f32
  } -> tensor<?x?xf32>
  "symshape.bind"(%y, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  %z = linalg.generic {indexing_maps = [#all, #all, #all], iterator_types = ["parallel", "parallel"]}
    ins(%y, %x : tensor<?x?xf32>, tensor<?x?xf32>) outs(%i : tensor<?x?xf32>) {
    ^bb0(%in0: f32, %in1: f32, %out: f32):
      %0 = arith.addf %in0, %in1 : f32
      linalg.yield %0 : f32
  } -> tensor<?x?xf32>
  "symshape.bind"(%z, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  return %y, %z : tensor<?x?xf32>, tensor<?x?xf32>
}

// -----

// A softmax is one kernel: two reductions over the same rows, and what is computed from them.
// CHECK-LABEL: func.func @softmax(
// CHECK:         tensor.empty
// CHECK-NOT:     tensor.empty
// CHECK:         "host.launch"({{.*}}) {callee = @kernel_0}
// CHECK-NOT:     host.launch
// CHECK:       func.func private @kernel_0({{.*}} symshape.kind = "reduction"
// CHECK:         "symshape.space"(%[[N:.*]], %[[M:.*]]) {iterators = ["parallel", "reduction"]}
// CHECK:         %[[X:.*]] = "symshape.view"
// CHECK-NOT:     "symshape.view"
// CHECK:         %[[MAX:.*]] = linalg.generic {{.*}} ins(%[[X]] :{{.*}} {symshape.combiner = "max"}
// CHECK:         %[[EXP:.*]] = linalg.generic {{.*}} ins(%[[X]], %[[MAX]] :
// CHECK:         %[[SUM:.*]] = linalg.generic {{.*}} ins(%[[EXP]] :{{.*}} {symshape.combiner = "add"}
// CHECK:         %[[R:.*]] = linalg.generic {{.*}} ins(%[[EXP]], %[[SUM]] :
// CHECK:         "symshape.store"(%[[R]],
// CHECK-NOT:   func.func
#all = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @softmax(%x: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(1)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  %low_value = arith.constant 0xFF800000 : f32
  %low = tensor.splat %low_value[%s0] : tensor<?xf32>
  %m = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
    ins(%x : tensor<?x?xf32>) outs(%low : tensor<?xf32>) attrs = {symshape.combiner = "max"} {
    ^bb0(%in0: f32, %out: f32):
      %0 = arith.maximumf %out, %in0 : f32
      linalg.yield %0 : f32
  } -> tensor<?xf32>
  %mb = "symshape.view"(%m, %s0, %s1) {map = #row} : (tensor<?xf32>, index, index) -> tensor<?x?xf32>
  %i = tensor.empty(%s0, %s1) : tensor<?x?xf32>
  %e = linalg.generic {indexing_maps = [#all, #all, #all], iterator_types = ["parallel", "parallel"]}
    ins(%x, %mb : tensor<?x?xf32>, tensor<?x?xf32>) outs(%i : tensor<?x?xf32>) {
    ^bb0(%in0: f32, %in1: f32, %out: f32):
      %0 = arith.subf %in0, %in1 : f32
      %1 = math.exp %0 : f32
      linalg.yield %1 : f32
  } -> tensor<?x?xf32>
  %zero_value = arith.constant 0.0 : f32
  %zero = tensor.splat %zero_value[%s0] : tensor<?xf32>
  %t = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
    ins(%e : tensor<?x?xf32>) outs(%zero : tensor<?xf32>) attrs = {symshape.combiner = "add"} {
    ^bb0(%in0: f32, %out: f32):
      %0 = arith.addf %out, %in0 : f32
      linalg.yield %0 : f32
  } -> tensor<?xf32>
  %tb = "symshape.view"(%t, %s0, %s1) {map = #row} : (tensor<?xf32>, index, index) -> tensor<?x?xf32>
  %r = linalg.generic {indexing_maps = [#all, #all, #all], iterator_types = ["parallel", "parallel"]}
    ins(%e, %tb : tensor<?x?xf32>, tensor<?x?xf32>) outs(%i : tensor<?x?xf32>) {
    ^bb0(%in0: f32, %in1: f32, %out: f32):
      %0 = arith.divf %in0, %in1 : f32
      linalg.yield %0 : f32
  } -> tensor<?x?xf32>
  "symshape.bind"(%r, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  return %r : tensor<?x?xf32>
}

// -----

// A layer norm is one kernel: the mean, which is stored too, and what depends on it stay at the level of rows.
// CHECK-LABEL: func.func @layer_norm(
// CHECK:         "host.launch"({{.*}}) {callee = @kernel_0}
// CHECK-NOT:     host.launch
// CHECK:       func.func private @kernel_0({{.*}} symshape.num_inputs = 2 : i64, symshape.num_outputs = 2 : i64}
// CHECK:         "symshape.space"(%{{.*}}, %{{.*}}) {iterators = ["parallel", "reduction"]}
// CHECK:         linalg.generic {{.*}} {symshape.combiner = "add"}
// CHECK:         %[[MEAN:.*]] = linalg.generic {{.*}} iterator_types = ["parallel"]}
// CHECK:         linalg.generic {{.*}} {symshape.combiner = "add"}
// CHECK:         linalg.generic {{.*}} iterator_types = ["parallel"]}
// CHECK:           math.rsqrt
// CHECK:         linalg.generic {{.*}} iterator_types = ["parallel", "parallel"]}
// CHECK:         "symshape.store"(%[[MEAN]], {{.*}} : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
// CHECK-NOT:   func.func
#all = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#col = affine_map<(d0, d1) -> (d1)>
#id = affine_map<(d0) -> (d0)>
func.func @layer_norm(%x: tensor<?x?xf32>, %w: tensor<?xf32>) -> (tensor<?x?xf32>, tensor<?xf32>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(1)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%w, %s1, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %zero_value = arith.constant 0.0 : f32
  %zero = tensor.splat %zero_value[%s0] : tensor<?xf32>
  %t = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
    ins(%x : tensor<?x?xf32>) outs(%zero : tensor<?xf32>) attrs = {symshape.combiner = "add"} {
    ^bb0(%in0: f32, %out: f32):
      %0 = arith.addf %out, %in0 : f32
      linalg.yield %0 : f32
  } -> tensor<?xf32>
  %j = tensor.empty(%s0) : tensor<?xf32>
  %m = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
    ins(%t : tensor<?xf32>) outs(%j : tensor<?xf32>) {
    ^bb0(%in0: f32, %out: f32):
      %count = arith.index_cast %s1 : index to i64
      %f = arith.sitofp %count : i64 to f32
      %0 = arith.divf %in0, %f : f32
      linalg.yield %0 : f32
  } -> tensor<?xf32>
  "symshape.bind"(%m, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %mb = "symshape.view"(%m, %s0, %s1) {map = #row} : (tensor<?xf32>, index, index) -> tensor<?x?xf32>
  %i = tensor.empty(%s0, %s1) : tensor<?x?xf32>
  %d = linalg.generic {indexing_maps = [#all, #all, #all], iterator_types = ["parallel", "parallel"]}
    ins(%x, %mb : tensor<?x?xf32>, tensor<?x?xf32>) outs(%i : tensor<?x?xf32>) {
    ^bb0(%in0: f32, %in1: f32, %out: f32):
      %0 = arith.subf %in0, %in1 : f32
      %1 = arith.mulf %0, %0 : f32
      linalg.yield %1 : f32
  } -> tensor<?x?xf32>
  %q = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
    ins(%d : tensor<?x?xf32>) outs(%zero : tensor<?xf32>) attrs = {symshape.combiner = "add"} {
    ^bb0(%in0: f32, %out: f32):
      %0 = arith.addf %out, %in0 : f32
      linalg.yield %0 : f32
  } -> tensor<?xf32>
  %v = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
    ins(%q : tensor<?xf32>) outs(%j : tensor<?xf32>) {
    ^bb0(%in0: f32, %out: f32):
      %count = arith.index_cast %s1 : index to i64
      %f = arith.sitofp %count : i64 to f32
      %0 = arith.divf %in0, %f : f32
      %eps = arith.constant 1.0e-05 : f32
      %1 = arith.addf %0, %eps : f32
      %2 = math.rsqrt %1 : f32
      linalg.yield %2 : f32
  } -> tensor<?xf32>
  %vb = "symshape.view"(%v, %s0, %s1) {map = #row} : (tensor<?xf32>, index, index) -> tensor<?x?xf32>
  %wb = "symshape.view"(%w, %s0, %s1) {map = #col} : (tensor<?xf32>, index, index) -> tensor<?x?xf32>
  %r = linalg.generic {indexing_maps = [#all, #all, #all, #all, #all], iterator_types = ["parallel", "parallel"]}
    ins(%x, %mb, %vb, %wb : tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>) outs(%i : tensor<?x?xf32>) {
    ^bb0(%in0: f32, %in1: f32, %in2: f32, %in3: f32, %out: f32):
      %0 = arith.subf %in0, %in1 : f32
      %1 = arith.mulf %0, %in2 : f32
      %2 = arith.mulf %1, %in3 : f32
      linalg.yield %2 : f32
  } -> tensor<?x?xf32>
  "symshape.bind"(%r, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  return %r, %m : tensor<?x?xf32>, tensor<?xf32>
}

// -----

// Equal but for the names of sizes: one kernel, launched twice.
// CHECK-LABEL: func.func @shared(
// CHECK-SAME:    %[[X:.*]]: tensor<?xf32>, %[[Y:.*]]: tensor<?xf32>)
// CHECK-DAG:     %[[S0:.*]] = "symshape.symbol"() {{.*}}name = "s0"
// CHECK-DAG:     %[[S1:.*]] = "symshape.symbol"() {{.*}}name = "s1"
// CHECK-DAG:     %[[A:.*]] = "host.launch"(%[[X]], %{{.*}}, %[[S0]]) {callee = @kernel_0}
// CHECK-DAG:     %[[B:.*]] = "host.launch"(%[[Y]], %{{.*}}, %[[S1]]) {callee = @kernel_0}
// CHECK:         return %[[A]], %[[B]]
// CHECK:       func.func private @kernel_0(
// CHECK-NOT:   func.func
#id = affine_map<(d0) -> (d0)>
func.func @shared(%x: tensor<?xf32>, %y: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg1.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  "symshape.bind"(%y, %s1, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %i = tensor.empty(%s0) : tensor<?xf32>
  %j = tensor.empty(%s1) : tensor<?xf32>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
    ins(%x : tensor<?xf32>) outs(%i : tensor<?xf32>) {
    ^bb0(%in0: f32, %out: f32):
      %zero = arith.constant 0.0 : f32
      %0 = arith.maximumf %in0, %zero : f32
      linalg.yield %0 : f32
  } -> tensor<?xf32>
  "symshape.bind"(%a, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %b = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
    ins(%y : tensor<?xf32>) outs(%j : tensor<?xf32>) {
    ^bb0(%in0: f32, %out: f32):
      %zero = arith.constant 0.0 : f32
      %0 = arith.maximumf %in0, %zero : f32
      linalg.yield %0 : f32
  } -> tensor<?xf32>
  "symshape.bind"(%b, %s1, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  return %a, %b : tensor<?xf32>, tensor<?xf32>
}

// -----

// A reader through a transpose visits the points of its producer: its store is transposed instead.
// CHECK-DAG: #[[ALL:.*]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-DAG: #[[SWAP:.*]] = affine_map<(d0, d1) -> (d1, d0)>
// CHECK-LABEL: func.func @through_transpose(
// CHECK:         %[[R:.*]]:2 = "host.launch"({{.*}}) {callee = @kernel_0}
// CHECK:         return %[[R]]#0, %[[R]]#1
// CHECK:       func.func private @kernel_0(
// CHECK:         %[[EXP:.*]] = linalg.generic
// CHECK:           math.exp
// CHECK:         %[[ROOT:.*]] = linalg.generic {{.*}} ins(%[[EXP]] :
// CHECK:           math.sqrt
// CHECK:         "symshape.store"(%[[EXP]], %{{.*}}) {map = #[[ALL]]}
// CHECK:         "symshape.store"(%[[ROOT]], %{{.*}}) {map = #[[SWAP]]}
// CHECK-NOT:   func.func
#all = affine_map<(d0, d1) -> (d0, d1)>
#swap = affine_map<(d0, d1) -> (d1, d0)>
func.func @through_transpose(%x: tensor<?x?xf32>) -> (tensor<?x?xf32>, tensor<?x?xf32>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(1)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  %i = tensor.empty(%s0, %s1) : tensor<?x?xf32>
  %y = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
    ins(%x : tensor<?x?xf32>) outs(%i : tensor<?x?xf32>) {
    ^bb0(%in0: f32, %out: f32):
      %0 = math.exp %in0 : f32
      linalg.yield %0 : f32
  } -> tensor<?x?xf32>
  "symshape.bind"(%y, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  %yt = "symshape.view"(%y, %s1, %s0) {map = #swap} : (tensor<?x?xf32>, index, index) -> tensor<?x?xf32>
  %j = tensor.empty(%s1, %s0) : tensor<?x?xf32>
  %z = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
    ins(%yt : tensor<?x?xf32>) outs(%j : tensor<?x?xf32>) {
    ^bb0(%in0: f32, %out: f32):
      %0 = math.sqrt %in0 : f32
      linalg.yield %0 : f32
  } -> tensor<?x?xf32>
  "symshape.bind"(%z, %s1, %s0, %s0, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  return %y, %z : tensor<?x?xf32>, tensor<?x?xf32>
}

// -----

// Rows of s1 and rows of s2 are different loops.
// CHECK-LABEL: func.func @unequal_sizes(
// CHECK-SAME:    %[[X:.*]]: tensor<?x?xf32>, %[[Y:.*]]: tensor<?x?xf32>)
// CHECK:         %[[M:.*]] = "host.launch"(%[[X]], %{{.*}}) {callee = @kernel_0}
// CHECK:         %[[R:.*]] = "host.launch"(%{{.*}}) {callee = @kernel_1}
// CHECK:         return %[[R]]
// CHECK:       func.func private @kernel_0({{.*}} symshape.kind = "reduction"
// CHECK:       func.func private @kernel_1({{.*}} symshape.kind = "pointwise"
#all = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @unequal_sizes(%x: tensor<?x?xf32>, %y: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(1)"} : () -> index
  %s2 = "symshape.symbol"() {name = "s2", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg1.size(1)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%y, %s0, %s2, %s2, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  %low_value = arith.constant 0xFF800000 : f32
  %low = tensor.splat %low_value[%s0] : tensor<?xf32>
  %m = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
    ins(%x : tensor<?x?xf32>) outs(%low : tensor<?xf32>) attrs = {symshape.combiner = "max"} {
    ^bb0(%in0: f32, %out: f32):
      %0 = arith.maximumf %out, %in0 : f32
      linalg.yield %0 : f32
  } -> tensor<?xf32>
  %mb = "symshape.view"(%m, %s0, %s2) {map = #row} : (tensor<?xf32>, index, index) -> tensor<?x?xf32>
  %i = tensor.empty(%s0, %s2) : tensor<?x?xf32>
  %r = linalg.generic {indexing_maps = [#all, #all, #all], iterator_types = ["parallel", "parallel"]}
    ins(%y, %mb : tensor<?x?xf32>, tensor<?x?xf32>) outs(%i : tensor<?x?xf32>) {
    ^bb0(%in0: f32, %in1: f32, %out: f32):
      %0 = arith.subf %in0, %in1 : f32
      linalg.yield %0 : f32
  } -> tensor<?x?xf32>
  "symshape.bind"(%r, %s0, %s2, %s2, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  return %r : tensor<?x?xf32>
}

// -----

// The same, when s1 == s2 is known.
// CHECK-LABEL: func.func @assumed_equal(
// CHECK:         "host.launch"({{.*}}) {callee = @kernel_0}
// CHECK-NOT:     host.launch
// CHECK:       func.func private @kernel_0({{.*}} symshape.kind = "reduction"
// CHECK-NOT:   func.func
#all = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @assumed_equal(%x: tensor<?x?xf32>, %y: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(1)"} : () -> index
  %s2 = "symshape.symbol"() {name = "s2", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg1.size(1)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%y, %s0, %s2, %s2, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  %same = arith.cmpi eq, %s1, %s2 : index
  "symshape.assume"(%same) : (i1) -> ()
  %low_value = arith.constant 0xFF800000 : f32
  %low = tensor.splat %low_value[%s0] : tensor<?xf32>
  %m = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
    ins(%x : tensor<?x?xf32>) outs(%low : tensor<?xf32>) attrs = {symshape.combiner = "max"} {
    ^bb0(%in0: f32, %out: f32):
      %0 = arith.maximumf %out, %in0 : f32
      linalg.yield %0 : f32
  } -> tensor<?xf32>
  %mb = "symshape.view"(%m, %s0, %s2) {map = #row} : (tensor<?xf32>, index, index) -> tensor<?x?xf32>
  %i = tensor.empty(%s0, %s2) : tensor<?x?xf32>
  %r = linalg.generic {indexing_maps = [#all, #all, #all], iterator_types = ["parallel", "parallel"]}
    ins(%y, %mb : tensor<?x?xf32>, tensor<?x?xf32>) outs(%i : tensor<?x?xf32>) {
    ^bb0(%in0: f32, %in1: f32, %out: f32):
      %0 = arith.subf %in0, %in1 : f32
      linalg.yield %0 : f32
  } -> tensor<?x?xf32>
  "symshape.bind"(%r, %s0, %s2, %s2, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  return %r : tensor<?x?xf32>
}

// -----

// The reader also needs what a library call makes of the producer: it cannot run in the producer's kernel.
// CHECK-LABEL: func.func @cycle(
// CHECK-SAME:    %[[X:.*]]: tensor<?x?xf32>, %[[W:.*]]: tensor<?x?xf32>)
// CHECK:         %[[A:.*]] = "host.launch"(%[[X]], %{{.*}}) {callee = @kernel_0}
// CHECK:         %[[P:.*]] = "host.call"(%[[A]], %[[W]])
// CHECK:         %[[R:.*]] = "host.launch"(%[[A]], %[[P]], %{{.*}}) {callee = @kernel_1}
// CHECK:         return %[[R]]
#all = affine_map<(d0, d1) -> (d0, d1)>
func.func @cycle(%x: tensor<?x?xf32>, %w: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(1)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%w, %s1, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  %i = tensor.empty(%s0, %s1) : tensor<?x?xf32>
  %a = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
    ins(%x : tensor<?x?xf32>) outs(%i : tensor<?x?xf32>) {
    ^bb0(%in0: f32, %out: f32):
      %0 = math.exp %in0 : f32
      linalg.yield %0 : f32
  } -> tensor<?x?xf32>
  "symshape.bind"(%a, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  %p = "host.call"(%a, %w) {target = "aten.mm.default", arguments = "($0, $1)"} : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  "symshape.bind"(%p, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  %r = linalg.generic {indexing_maps = [#all, #all, #all], iterator_types = ["parallel", "parallel"]}
    ins(%a, %p : tensor<?x?xf32>, tensor<?x?xf32>) outs(%i : tensor<?x?xf32>) {
    ^bb0(%in0: f32, %in1: f32, %out: f32):
      %0 = arith.addf %in0, %in1 : f32
      linalg.yield %0 : f32
  } -> tensor<?x?xf32>
  "symshape.bind"(%r, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  return %r : tensor<?x?xf32>
}

// -----

// Neither needs the other, but both read x: one kernel reads it once.
// CHECK-LABEL: func.func @siblings(
// CHECK-SAME:    %[[X:.*]]: tensor<?x?xf32>)
// CHECK:         %[[R:.*]]:2 = "host.launch"(%[[X]], %{{.*}}) {callee = @kernel_0}
// CHECK:         return %[[R]]#0, %[[R]]#1
// CHECK:       func.func private @kernel_0(
// CHECK:         "symshape.view"
// CHECK-NOT:     "symshape.view"
// CHECK:         symshape.combiner = "max"
// CHECK:         symshape.combiner = "add"
// CHECK-NOT:   func.func
#all = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @siblings(%x: tensor<?x?xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(1)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %s1, %s1, %c1, %c0) : (tensor<?x?xf32>, index, index, index, index, index) -> ()
  %low_value = arith.constant 0xFF800000 : f32
  %low = tensor.splat %low_value[%s0] : tensor<?xf32>
  %zero_value = arith.constant 0.0 : f32
  %zero = tensor.splat %zero_value[%s0] : tensor<?xf32>
  %m = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
    ins(%x : tensor<?x?xf32>) outs(%low : tensor<?xf32>) attrs = {symshape.combiner = "max"} {
    ^bb0(%in0: f32, %out: f32):
      %0 = arith.maximumf %out, %in0 : f32
      linalg.yield %0 : f32
  } -> tensor<?xf32>
  "symshape.bind"(%m, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %t = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
    ins(%x : tensor<?x?xf32>) outs(%zero : tensor<?xf32>) attrs = {symshape.combiner = "add"} {
    ^bb0(%in0: f32, %out: f32):
      %0 = arith.addf %out, %in0 : f32
      linalg.yield %0 : f32
  } -> tensor<?xf32>
  "symshape.bind"(%t, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  return %m, %t : tensor<?xf32>, tensor<?xf32>
}

// -----

// A reduction of what is the same all over the row: linalg takes the sizes of loops from operands, so one has them all.
// CHECK-LABEL: func.func @sum_of_broadcast(
// CHECK:       func.func private @kernel_0(
// CHECK:         "symshape.space"(%{{.*}}, %{{.*}}) {iterators = ["reduction", "parallel"]}
// CHECK:         %[[ROW:.*]] = "symshape.view"(%{{.*}}) {{.*}} -> tensor<?xf32>
// CHECK:         %[[FULL:.*]] = linalg.generic {{.*}} ins(%[[ROW]] : tensor<?xf32>) outs(%{{.*}} : tensor<7x?xf32>)
// CHECK:         linalg.generic {{.*}} ins(%[[FULL]] : tensor<7x?xf32>) {{.*}} {symshape.combiner = "add"}
#all = affine_map<(d0, d1) -> (d0, d1)>
#col = affine_map<(d0, d1) -> (d1)>
func.func @sum_of_broadcast(%x: tensor<?xf32>) -> tensor<?xf32> {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c7 = arith.constant 7 : index
  "symshape.bind"(%x, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %xb = "symshape.view"(%x, %c7, %s0) {map = #col} : (tensor<?xf32>, index, index) -> tensor<7x?xf32>
  %zero_value = arith.constant 0.0 : f32
  %zero = tensor.splat %zero_value[%s0] : tensor<?xf32>
  %t = linalg.generic {indexing_maps = [#all, #col], iterator_types = ["reduction", "parallel"]}
    ins(%xb : tensor<7x?xf32>) outs(%zero : tensor<?xf32>) attrs = {symshape.combiner = "add"} {
    ^bb0(%in0: f32, %out: f32):
      %0 = arith.addf %out, %in0 : f32
      linalg.yield %0 : f32
  } -> tensor<?xf32>
  "symshape.bind"(%t, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  return %t : tensor<?xf32>
}
