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
