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

func.func private @kernel_0(%a: tensor<f32>, %n: index) -> tensor<f32>

func.func @launch_arity(%a: tensor<f32>) {
  // expected-error@+1 {{has 1 operands, but @kernel_0 has 2}}
  %r = "host.launch"(%a) {callee = @kernel_0} : (tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func private @kernel_0(%a: tensor<f32>, %n: index) -> tensor<f32>

func.func @launch_operand(%a: tensor<f32>) {
  // expected-error@+1 {{operand 1 is tensor<f32>, but @kernel_0 says index}}
  %r = "host.launch"(%a, %a) {callee = @kernel_0} : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func private @kernel_0(%a: tensor<f32>) -> tensor<f32>

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
  // expected-error@+1 {{branch @branch is no function of this module}}
  "host.cond"(%p) {true = @branch, false = @branch} : (tensor<i1>) -> ()
  return
}

// -----

func.func @function() {
  return
}

func.func @cond_no_branch(%p: tensor<i1>) {
  // expected-error@+1 {{@function is no branch: it has no attribute 'symshape.branch'}}
  "host.cond"(%p) {true = @function, false = @function} : (tensor<i1>) -> ()
  return
}

// -----

func.func @branch() attributes {symshape.branch} {
  return
}

func.func @cond_predicate(%p: tensor<2xi1>) {
  // expected-error@+1 {{needs a predicate: an i1, or a tensor with one element}}
  "host.cond"(%p) {true = @branch, false = @branch} : (tensor<2xi1>) -> ()
  return
}

// -----

func.func @branch(%x: tensor<?xf32>) -> tensor<2xf32> attributes {symshape.branch} {
  %r = "host.call"(%x) {target = "aten.neg.default", arguments = "($0)"} : (tensor<?xf32>) -> tensor<2xf32>
  return %r : tensor<2xf32>
}

func.func @cond_argument(%p: i1, %x: tensor<?xi64>) {
  // expected-error@+1 {{argument 0 is tensor<?xi64>, but @branch says tensor<?xf32>}}
  %r = "host.cond"(%p, %x) {true = @branch, false = @branch} : (i1, tensor<?xi64>) -> tensor<2xf32>
  return
}

// -----

func.func @branch(%x: tensor<?xf32>) -> tensor<2xf32> attributes {symshape.branch} {
  %r = "host.call"(%x) {target = "aten.neg.default", arguments = "($0)"} : (tensor<?xf32>) -> tensor<2xf32>
  return %r : tensor<2xf32>
}

func.func @cond_result(%p: i1, %x: tensor<?xf32>) {
  // expected-error@+1 {{result 0 is tensor<3xf32>, but @branch says tensor<2xf32>}}
  %r = "host.cond"(%p, %x) {true = @branch, false = @branch} : (i1, tensor<?xf32>) -> tensor<3xf32>
  return
}
