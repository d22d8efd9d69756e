// RUN: symshape-opt %s --split-input-file --verify-diagnostics

func.func @no_target(%a: tensor<f32>) {
  // expected-error@+1 {{'host.call' op needs an attribute 'target' of type StringAttr}}
  "host.call"(%a) {arguments = "($0)"} : (tensor<f32>) -> ()
  return
}

// -----

func.func @empty_target(%a: tensor<f32>) {
  // expected-error@+1 {{'host.call' op has an empty target}}
  "host.call"(%a) {target = "", arguments = "($0)"} : (tensor<f32>) -> ()
  return
}

// -----

func.func @path_of_a_module(%x: tensor<?xf32>) {
  // expected-error@+1 {{target 'python.symshape.runtime.compact.select_at' is a path of a module of ours}}
  %r = "host.call"(%x) {target = "python.symshape.runtime.compact.select_at", arguments = "($0)"} : (tensor<?xf32>) -> tensor<?xf32>
  return
}

// -----

func.func @unknown_operand(%a: tensor<f32>) {
  // expected-error@+1 {{arguments name $1, but the call has 1 operands}}
  "host.call"(%a) {target = "aten.add.Tensor", arguments = "($0, $1)"} : (tensor<f32>) -> ()
  return
}

// -----

func.func @no_call_text(%a: tensor<f32>) {
  // expected-error@+1 {{arguments '$0' are not a parenthesised call}}
  "host.call"(%a) {target = "aten.neg.default", arguments = "$0"} : (tensor<f32>) -> ()
  return
}

// -----

func.func @result_indices(%a: tensor<f32>) {
  // expected-error@+1 {{has 1 results, but 2 result_indices}}
  %r = "host.call"(%a) {target = "aten.neg.default", arguments = "($0)", result_indices = array<i64: 0, 1>} : (tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func @result_indices_type(%a: tensor<f32>) {
  // expected-error@+1 {{needs an attribute 'result_indices' of type DenseI64ArrayAttr}}
  %r = "host.call"(%a) {target = "aten.neg.default", arguments = "($0)", result_indices = [0]} : (tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func @no_callee(%a: tensor<f32>) {
  // expected-error@+1 {{callee @kernel_0 is no function of this module}}
  %r = "host.launch"(%a) {callee = @kernel_0} : (tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func private @kernel_0(%a: tensor<f32>, %n: index) -> tensor<f32> attributes {symshape.kernel, symshape.num_inputs = 0 : i64, symshape.num_outputs = 1 : i64}

func.func @launch_arity(%a: tensor<f32>) {
  // expected-error@+1 {{has 1 operands, but @kernel_0 has 2}}
  %r = "host.launch"(%a) {callee = @kernel_0} : (tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func private @kernel_0(%a: tensor<f32>, %n: index) -> tensor<f32> attributes {symshape.kernel, symshape.num_inputs = 0 : i64, symshape.num_outputs = 1 : i64}

func.func @launch_operand(%a: tensor<f32>) {
  // expected-error@+1 {{operand 1 is tensor<f32>, but @kernel_0 says index}}
  %r = "host.launch"(%a, %a) {callee = @kernel_0} : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func private @kernel_0(%a: tensor<f32>) -> tensor<f32> attributes {symshape.kernel, symshape.num_inputs = 0 : i64, symshape.num_outputs = 1 : i64}

func.func @launch_result(%a: tensor<f32>) {
  // expected-error@+1 {{result 0 is tensor<1xf32>, but @kernel_0 says tensor<f32>}}
  %r = "host.launch"(%a) {callee = @kernel_0} : (tensor<f32>) -> tensor<1xf32>
  return
}

// -----

func.func @typo(%a: tensor<f32>) {
  // expected-error@+1 {{'host.lanch' op is not registered; is its name right?}}
  "host.lanch"(%a) {callee = @kernel_0} : (tensor<f32>) -> ()
  return
}

// -----

func.func @cond_branches(%p: tensor<i1>) {
  // expected-error@+1 {{'host.cond' op needs an attribute 'false' of type FlatSymbolRefAttr}}
  "host.cond"(%p) {true = @branch} : (tensor<i1>) -> ()
  return
}

// -----

func.func @cond_unknown(%p: tensor<i1>) {
  // expected-error@+1 {{subgraph @branch is no function of this module}}
  "host.cond"(%p) {true = @branch, false = @branch} : (tensor<i1>) -> ()
  return
}

// -----

func.func @function() {
  return
}

func.func @cond_no_branch(%p: tensor<i1>) {
  // expected-error@+1 {{@function is no subgraph: it has no attribute 'symshape.subgraph'}}
  "host.cond"(%p) {true = @function, false = @function} : (tensor<i1>) -> ()
  return
}

// -----

func.func @branch() attributes {symshape.subgraph} {
  return
}

func.func @cond_predicate(%p: tensor<2xi1>) {
  // expected-error@+1 {{needs a predicate: an i1, or a tensor with one element}}
  "host.cond"(%p) {true = @branch, false = @branch} : (tensor<2xi1>) -> ()
  return
}

// -----

func.func @branch(%x: tensor<?xf32>) -> tensor<2xf32> attributes {symshape.subgraph} {
  %r = "host.call"(%x) {target = "aten.neg.default", arguments = "($0)"} : (tensor<?xf32>) -> tensor<2xf32>
  return %r : tensor<2xf32>
}

func.func @cond_argument(%p: i1, %x: tensor<?xi64>) {
  // expected-error@+1 {{argument 0 is tensor<?xi64>, but @branch says tensor<?xf32>}}
  %r = "host.cond"(%p, %x) {true = @branch, false = @branch} : (i1, tensor<?xi64>) -> tensor<2xf32>
  return
}

// -----

func.func @branch(%x: tensor<?xf32>) -> tensor<2xf32> attributes {symshape.subgraph} {
  %r = "host.call"(%x) {target = "aten.neg.default", arguments = "($0)"} : (tensor<?xf32>) -> tensor<2xf32>
  return %r : tensor<2xf32>
}

func.func @cond_result(%p: i1, %x: tensor<?xf32>) {
  // expected-error@+1 {{result 0 is tensor<3xf32>, but @branch says tensor<2xf32>}}
  %r = "host.cond"(%p, %x) {true = @branch, false = @branch} : (i1, tensor<?xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @f(%x: tensor<?xf32>) -> tensor<?xf32> attributes {symshape.subgraph} {
  return %x : tensor<?xf32>
}

func.func @while_condition(%x: tensor<?xf32>) {
  // expected-error@+1 {{@f has to return an i1, or a tensor with one element}}
  %r = "host.while"(%x) {cond = @f, body = @f, carried = 1 : i64} : (tensor<?xf32>) -> tensor<?xf32>
  return
}

// -----

func.func @while_nothing(%x: tensor<?xf32>) {
  // expected-error@+1 {{carries 2 of 1 operands}}
  %r = "host.while"(%x) {cond = @f, body = @f, carried = 2 : i64} : (tensor<?xf32>) -> tensor<?xf32>
  return
}

// -----

func.func @p(%x: tensor<?xf32>) -> tensor<i1> attributes {symshape.subgraph} {
  %r = "host.call"(%x) {target = "aten.any.default", arguments = "($0,)"} : (tensor<?xf32>) -> tensor<i1>
  return %r : tensor<i1>
}

func.func @while_carried(%x: tensor<?xf32>) {
  // expected-error@+1 {{carried value 0 is tensor<?xf32>, but @p says tensor<i1>}}
  %r = "host.while"(%x) {cond = @p, body = @p, carried = 1 : i64} : (tensor<?xf32>) -> tensor<?xf32>
  return
}

// -----

func.func @f(%x: tensor<?xf32>) -> tensor<?xf32> attributes {symshape.subgraph} {
  return %x : tensor<?xf32>
}

func.func @scan_slice(%x: tensor<?xf32>) {
  // expected-error@+1 {{argument 0 is tensor<f32>, but @f says tensor<?xf32>}}
  %r = "host.scan"(%x) {body = @f, carried = 0 : i64, sliced = 1 : i64} : (tensor<?xf32>) -> tensor<?x?xf32>
  return
}

// -----

func.func @f(%x: tensor<?xf32>) -> tensor<?xf32> attributes {symshape.subgraph} {
  return %x : tensor<?xf32>
}

func.func @scan_stack(%x: tensor<?x?xf32>) {
  // expected-error@+1 {{result 0 is tensor<?xf32>, but @f says tensor<?x?xf32>}}
  %r = "host.scan"(%x) {body = @f, carried = 0 : i64, sliced = 1 : i64} : (tensor<?x?xf32>) -> tensor<?xf32>
  return
}

// -----

func.func @scan_number(%n: index) {
  // expected-error@+1 {{slices what has no dims}}
  %r = "host.scan"(%n) {body = @f, carried = 0 : i64, sliced = 1 : i64} : (index) -> tensor<?xf32>
  return
}

// -----

func.func @f(%x: tensor<?xf32>) -> tensor<?xf32> attributes {symshape.subgraph} {
  return %x : tensor<?xf32>
}

func.func @scan_written(%x: tensor<?x?xf32>) {
  // expected-error@+1 {{written results [1] are not all stacks}}
  %r = "host.scan"(%x) {body = @f, carried = 0 : i64, sliced = 1 : i64, written = array<i64: 1>} : (tensor<?x?xf32>) -> tensor<?x?xf32>
  return
}

// -----

func.func @scores(%x: tensor<?x?x?x?xf32>, %b: index, %h: index, %i: index, %j: index) -> (tensor<?x?x?x?xf32>, tensor<?x?x?x1xf32>)
    attributes {symshape.subgraph} {
  %m = "host.call"(%x) {target = "aten.amax.default", arguments = "($0, [-1], True)"} : (tensor<?x?x?x?xf32>) -> tensor<?x?x?x1xf32>
  return %x, %m : tensor<?x?x?x?xf32>, tensor<?x?x?x1xf32>
}

func.func @weights(%x: tensor<?x?x?x?xf32>, %m: tensor<?x?x?x1xf32>) -> (tensor<?x?x?x?xf32>, tensor<?x?x?x1xf32>)
    attributes {symshape.subgraph} {
  return %x, %m : tensor<?x?x?x?xf32>, tensor<?x?x?x1xf32>
}

func.func @attention_whole(%q: tensor<?x?x?x?xf32>, %n: tensor<?x?x?xi32>, %i: tensor<?x?x?x?xi32>, %b: index) {
  // expected-error@+1 {{has 3 operands, but @weights has 2}}
  %r = "host.attention"(%q, %q, %q, %n, %i, %b, %b) {scores = @scores, weights = @weights, whole = @weights, lists = 2 : i64}
     : (tensor<?x?x?x?xf32>, tensor<?x?x?x?xf32>, tensor<?x?x?x?xf32>, tensor<?x?x?xi32>, tensor<?x?x?x?xi32>, index, index) -> tensor<?x?x?x?xf32>
  return
}

// -----

func.func @scores(%x: tensor<?x?x?x?xf32>, %b: index, %h: index, %i: index, %j: index) -> (tensor<?x?x?x?xf32>, tensor<?x?x?x1xf32>)
    attributes {symshape.subgraph} {
  %m = "host.call"(%x) {target = "aten.amax.default", arguments = "($0, [-1], True)"} : (tensor<?x?x?x?xf32>) -> tensor<?x?x?x1xf32>
  return %x, %m : tensor<?x?x?x?xf32>, tensor<?x?x?x1xf32>
}

func.func @attention_weights(%q: tensor<?x?x?x?xf32>, %n: tensor<?x?x?xi32>, %i: tensor<?x?x?x?xi32>, %b: index) {
  // expected-error@+1 {{has 2 score and maximums, but @scores has 5}}
  %r = "host.attention"(%q, %q, %q, %n, %i, %b, %b) {scores = @scores, weights = @scores, lists = 2 : i64}
     : (tensor<?x?x?x?xf32>, tensor<?x?x?x?xf32>, tensor<?x?x?x?xf32>, tensor<?x?x?xi32>, tensor<?x?x?x?xi32>, index, index) -> tensor<?x?x?x?xf32>
  return
}

// -----

func.func @attention_lists(%q: tensor<?x?x?x?xf32>, %n: tensor<?x?x?xi32>, %b: index) {
  // expected-error@+1 {{has 1 lists, which are 2 or 4, and 6 operands}}
  %r = "host.attention"(%q, %q, %q, %n, %b, %b) {scores = @scores, weights = @scores, lists = 1 : i64}
     : (tensor<?x?x?x?xf32>, tensor<?x?x?x?xf32>, tensor<?x?x?x?xf32>, tensor<?x?x?xi32>, index, index) -> tensor<?x?x?x?xf32>
  return
}

// -----

func.func @collective_without_number(%x: tensor<?xf32>) {
  // expected-error@+1 {{is a collective, and needs its number among those of the function ('collective')}}
  %r = "host.call"(%x) {target = "_c10d_functional.all_reduce.default", arguments = "($0, 'sum', '0')"} : (tensor<?xf32>) -> tensor<?xf32>
  return
}

// -----

// By hand: the two were the other way round. Another rank would add what this one gathers.
func.func @collectives_out_of_order(%x: tensor<?xf32>) {
  // expected-error@+1 {{is collective 1 in the place of collective 0: another rank would meet another collective}}
  %r = "host.call"(%x) {target = "_c10d_functional.all_reduce.default", arguments = "($0, 'sum', '0')", collective = 1 : i64} : (tensor<?xf32>) -> tensor<?xf32>
  // expected-error@+1 {{is collective 0 in the place of collective 1}}
  %g = "host.call"(%x) {target = "_c10d_functional.all_gather_into_tensor.default", arguments = "($0, 2, '0')", collective = 0 : i64} : (tensor<?xf32>) -> tensor<?xf32>
  return
}

// -----

func.func @collective_made_twice(%x: tensor<?xf32>) {
  %r = "host.call"(%x) {target = "_c10d_functional.all_reduce.default", arguments = "($0, 'sum', '0')", collective = 0 : i64} : (tensor<?xf32>) -> tensor<?xf32>
  // expected-error@+1 {{is collective 0 in the place of collective 1}}
  %g = "host.call"(%x) {target = "_c10d_functional.all_reduce.default", arguments = "($0, 'sum', '0')", collective = 0 : i64} : (tensor<?xf32>) -> tensor<?xf32>
  return
}

// -----

func.func @collective_dropped(%x: tensor<?xf32>) {
  // expected-error@+1 {{is collective 1 in the place of collective 0}}
  %r = "host.call"(%x) {target = "_c10d_functional.all_reduce.default", arguments = "($0, 'sum', '0')", collective = 1 : i64} : (tensor<?xf32>) -> tensor<?xf32>
  %w = "host.call"(%r) {target = "_c10d_functional.wait_tensor.default", arguments = "($0)"} : (tensor<?xf32>) -> tensor<?xf32>
  return
}

// -----

func.func @fresh_false(%x: tensor<?xf32>) {
  // expected-error@+1 {{needs an attribute 'fresh' of type UnitAttr, which false is not}}
  %r = "host.call"(%x) {target = "aten.neg.default", arguments = "($0)", fresh = false} : (tensor<?xf32>) -> tensor<?xf32>
  return
}

// -----

func.func @collective_text(%x: tensor<?xf32>) {
  // expected-error@+1 {{needs an attribute 'collective' of type IntegerAttr, which "first" is not}}
  %r = "host.call"(%x) {target = "aten.neg.default", arguments = "($0)", collective = "first"} : (tensor<?xf32>) -> tensor<?xf32>
  return
}

// -----

func.func @return_outputs(%x: tensor<?xf32>) -> tensor<?xf32> {
  // expected-error@+1 {{outputs name $3, but there are 1 operands}}
  return {symshape.outputs = "($0, $3)"} %x : tensor<?xf32>
}

// -----

func.func @return_relations(%x: tensor<?xf32>) -> tensor<?xf32> {
  // expected-error@+1 {{relation 'near' is none of own, view, detached, argument}}
  return {symshape.relations = "near"} %x : tensor<?xf32>
}

// -----

func.func @return_relation_count(%x: tensor<?xf32>) -> tensor<?xf32> {
  // expected-error@+1 {{has 2 relations, but 1 operands}}
  return {symshape.relations = "own view"} %x : tensor<?xf32>
}

// -----

func.func @return_write_count(%x: tensor<?xf32>) -> tensor<?xf32> {
  // expected-error@+1 {{has 0 writes, but 1 operands}}
  return {symshape.writes = array<i64>} %x : tensor<?xf32>
}

// -----

func.func @return_writes(%x: tensor<?xf32>) -> tensor<?xf32> {
  // expected-error@+1 {{writes argument 4, but the function has 1}}
  return {symshape.writes = array<i64: 4>} %x : tensor<?xf32>
}

// -----

func.func @return_writes_type(%x: tensor<?xf32>) -> tensor<?xf32> {
  // expected-error@+1 {{needs an attribute 'symshape.writes' of type DenseI64ArrayAttr}}
  return {symshape.writes = [0]} %x : tensor<?xf32>
}

// -----

func.func @no_kernel(%x: tensor<?xf32>, %d: tensor<?xf32>) -> tensor<?xf32> {
  // expected-error@+1 {{callee @helper is no function of this module with an attribute 'symshape.kernel'}}
  %r = "host.launch"(%x, %d) {callee = @helper} : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  return %r : tensor<?xf32>
}

func.func private @helper(%x: tensor<?xf32>, %d: tensor<?xf32>) -> tensor<?xf32> {
  return %x : tensor<?xf32>
}

// -----

func.func private @layer_0(%x: tensor<4xf32>) -> tensor<4xf32> attributes {symshape.layer} {
  // expected-error@+1 {{'host.layer' op calls @layer_0, which it is in}}
  %r = "host.layer"(%x) {callee = @layer_0} : (tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}
