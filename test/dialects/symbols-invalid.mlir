// RUN: symshape-opt %s --split-input-file --verify-diagnostics

func.func @twice(%n: index, %x: tensor<?xf32>) {
  %p0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 9 : i64, divisor = 1 : i64, hint = 8 : i64, source = "x", binding = "arg0"} : () -> index
  // expected-error@+1 {{symbol 's0' is defined twice in this function}}
  %s = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 9 : i64, divisor = 1 : i64, hint = 8 : i64, source = "x", binding = "arg1.size(0)"} : () -> index
  return
}

// -----

func.func @no_name(%n: index, %x: tensor<?xf32>) {
  // expected-error@+1 {{has an empty name}}
  %s = "symshape.symbol"() {name = "", min = 2 : i64, max = 9 : i64, divisor = 1 : i64, hint = 8 : i64, source = "x", binding = "arg0"} : () -> index
  return
}

// -----

func.func @range(%n: index, %x: tensor<?xf32>) {
  // expected-error@+1 {{min 10 is greater than max 9}}
  %s = "symshape.symbol"() {name = "s0", min = 10 : i64, max = 9 : i64, divisor = 1 : i64, hint = -1 : i64, source = "x", binding = "arg0"} : () -> index
  return
}

// -----

func.func @divisor(%n: index, %x: tensor<?xf32>) {
  // expected-error@+1 {{divisor 0 is less than 1}}
  %s = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 9 : i64, divisor = 0 : i64, hint = 8 : i64, source = "x", binding = "arg0"} : () -> index
  return
}

// -----

func.func @hint_low(%n: index, %x: tensor<?xf32>) {
  // expected-error@+1 {{hint 1 is outside of [2, 9]}}
  %s = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 9 : i64, divisor = 1 : i64, hint = 1 : i64, source = "x", binding = "arg0"} : () -> index
  return
}

// -----

func.func @hint_high(%n: index, %x: tensor<?xf32>) {
  // expected-error@+1 {{hint 10 is outside of [2, 9]}}
  %s = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 9 : i64, divisor = 1 : i64, hint = 10 : i64, source = "x", binding = "arg0"} : () -> index
  return
}

// -----

func.func @hint_multiple(%n: index, %x: tensor<?xf32>) {
  // expected-error@+1 {{hint 9 is not a multiple of divisor 2}}
  %s = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 9 : i64, divisor = 2 : i64, hint = 9 : i64, source = "x", binding = "arg0"} : () -> index
  return
}

// -----

func.func @binding_empty(%n: index, %x: tensor<?xf32>) {
  // expected-error@+1 {{binding '' is not one of 'argN', 'argN.size(D)', 'argN.stride(D)' or 'argN.offset'}}
  %s = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 9 : i64, divisor = 1 : i64, hint = 8 : i64, source = "x", binding = ""} : () -> index
  return
}

// -----

func.func @binding_unknown(%n: index, %x: tensor<?xf32>) {
  // expected-error@+1 {{binding 'arg1.shape[0]' is not one of}}
  %s = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 9 : i64, divisor = 1 : i64, hint = 8 : i64, source = "x", binding = "arg1.shape[0]"} : () -> index
  return
}

// -----

func.func @binding_argument(%n: index, %x: tensor<?xf32>) {
  // expected-error@+1 {{binding 'arg2.size(0)' names argument 2, but the function has 2}}
  %s = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 9 : i64, divisor = 1 : i64, hint = 8 : i64, source = "x", binding = "arg2.size(0)"} : () -> index
  return
}

// -----

func.func @binding_dim(%n: index, %x: tensor<?xf32>) {
  // expected-error@+1 {{binding 'arg1.stride(1)' names dim 1 of a tensor of rank 1}}
  %s = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 9 : i64, divisor = 1 : i64, hint = 8 : i64, source = "x", binding = "arg1.stride(1)"} : () -> index
  return
}

// -----

func.func @binding_no_tensor(%n: index, %x: tensor<?xf32>) {
  // expected-error@+1 {{binding 'arg0.offset' needs a tensor argument, not index}}
  %s = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 9 : i64, divisor = 1 : i64, hint = 8 : i64, source = "x", binding = "arg0.offset"} : () -> index
  return
}

// -----

func.func @binding_no_index(%n: index, %x: tensor<?xf32>) {
  // expected-error@+1 {{binding 'arg1' needs an index argument, not tensor<?xf32>}}
  %s = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 9 : i64, divisor = 1 : i64, hint = 8 : i64, source = "x", binding = "arg1"} : () -> index
  return
}

// -----

func.func @missing_attribute(%n: index, %x: tensor<?xf32>) {
  // expected-error@+1 {{attribute "hint" is expected but not provided}}
  %s = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 9 : i64, divisor = 1 : i64, source = "x", binding = "arg0"} : () -> index
  return
}

// -----

func.func @no_index(%n: index, %x: tensor<?xf32>) {
  // expected-error@+1 {{expected}}
  %s = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 9 : i64, divisor = 1 : i64, hint = 8 : i64, source = "x", binding = "arg0"} : () -> i64
  return
}

// -----

func.func @unbacked_twice(%n: index, %x: tensor<?xf32>) {
  %p0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 9 : i64, divisor = 1 : i64, hint = 8 : i64, source = "x", binding = "arg0"} : () -> index
  // expected-error@+1 {{symbol 's0' is defined twice in this function}}
  %s = "symshape.unbacked_symbol"(%x) {name = "s0", min = 0 : i64, max = 9 : i64, kind = "size", dim = 0 : i64} : (tensor<?xf32>) -> index
  return
}

// -----

func.func @unbacked_kind(%n: index, %x: tensor<?xf32>) {
  // expected-error@+1 {{kind 'value' is none of 'item', 'size', 'stride', 'number'}}
  %s = "symshape.unbacked_symbol"(%x) {name = "u0", min = 0 : i64, max = 9 : i64, kind = "value"} : (tensor<?xf32>) -> index
  return
}

// -----

func.func @number_of_a_tensor(%x: tensor<?xf32>) {
  // expected-error@+1 {{kind 'number' is not read from tensor<?xf32>}}
  %s = "symshape.unbacked_symbol"(%x) {name = "u0", min = 0 : i64, max = 9 : i64, kind = "number"} : (tensor<?xf32>) -> index
  return
}

// -----

func.func @unbacked_no_dim(%n: index, %x: tensor<?xf32>) {
  // expected-error@+1 {{kind 'size' needs a dim of its tensor, which has rank 1}}
  %s = "symshape.unbacked_symbol"(%x) {name = "u0", min = 0 : i64, max = 9 : i64, kind = "size"} : (tensor<?xf32>) -> index
  return
}

// -----

func.func @unbacked_dim(%n: index, %x: tensor<?xf32>) {
  // expected-error@+1 {{kind 'size' needs a dim of its tensor, which has rank 1}}
  %s = "symshape.unbacked_symbol"(%x) {name = "u0", min = 0 : i64, max = 9 : i64, kind = "size", dim = 1 : i64} : (tensor<?xf32>) -> index
  return
}

// -----

func.func @unbacked_item(%n: index, %x: tensor<?xf32>) {
  // expected-error@+1 {{kind 'item' needs a tensor of one element, not tensor<?xf32>}}
  %s = "symshape.unbacked_symbol"(%x) {name = "u0", min = 0 : i64, max = 9 : i64, kind = "item"} : (tensor<?xf32>) -> index
  return
}

// -----

// expected-error@+1 {{must be inside a function}}
%s = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 9 : i64, divisor = 1 : i64, hint = 8 : i64, source = "x", binding = "arg0"} : () -> index

// -----

func.func @bind_count(%n: index, %x: tensor<?x4xf32>) {
  // expected-error@+1 {{has 4 layout operands, but a tensor of rank 2 needs 5: 2 sizes, 2 strides and an offset}}
  "symshape.bind"(%x, %n, %n, %n, %n) : (tensor<?x4xf32>, index, index, index, index) -> ()
  return
}

// -----

func.func @bind_type(%n: i64, %x: tensor<f32>) {
  // expected-error@+1 {{expected base type 'builtin.index' but got 'builtin.integer'}}
  "symshape.bind"(%x, %n) : (tensor<f32>, i64) -> ()
  return
}

// -----

func.func @bind_device(%n: index, %x: tensor<f32>) {
  // expected-error@+1 {{device is no name of a device}}
  "symshape.bind"(%x, %n) {device = 3 : i64} : (tensor<f32>, index) -> ()
  return
}

// -----

func.func @native_code_of_two_devices(%n: index, %x: tensor<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %n, %c1, %c0) {device = "cpu"} : (tensor<?xf32>, index, index, index) -> ()
  // expected-error@+1 {{reads a tensor that is on cpu, which kernels cannot}}
  %v = "symshape.view"(%x, %n) {map = affine_map<(d0) -> (d0)>} : (tensor<?xf32>, index) -> tensor<?xf32>
  return
}

// -----

func.func @native_code_of_a_negative_view(%n: index, %x: tensor<f32>) {
  "symshape.bind"(%x, %n) {negated} : (tensor<f32>, index) -> ()
  // expected-error@+1 {{reads a tensor that is a negative view}}
  %v = "symshape.view"(%x) {map = affine_map<() -> ()>} : (tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func @a_view_of_a_number_leaves_kernels(%n: index, %x: tensor<f32>) -> tensor<f32> {
  "symshape.bind"(%x, %n) {device = "cpu"} : (tensor<f32>, index) -> ()
  %v = "symshape.view"(%x) {map = affine_map<() -> ()>} : (tensor<f32>) -> tensor<f32>
  // expected-error@+1 {{reads a tensor that is on cpu}}
  return %v : tensor<f32>
}

// -----

// expected-error@+1 {{argument 0 is passed by value, but is no input without dims}}
func.func private @row_by_value(%x: tensor<?xf32>, %dest: tensor<f32>) -> tensor<f32> attributes {symshape.kernel, symshape.by_value = array<i64: 0>, symshape.num_inputs = 1 : i64, symshape.num_outputs = 1 : i64} {
  return %dest : tensor<f32>
}

// -----

func.func private @kernel_0(%x: tensor<f32>, %dest: tensor<f32>) -> tensor<f32> attributes {symshape.kernel, symshape.num_inputs = 1 : i64, symshape.num_outputs = 1 : i64} {
  return %dest : tensor<f32>
}

func.func @address_of_another_device(%n: index, %x: tensor<f32>) -> tensor<f32> {
  "symshape.bind"(%x, %n) {device = "cpu"} : (tensor<f32>, index) -> ()
  %d = tensor.empty() : tensor<f32>
  // expected-error@+1 {{reads a tensor that is on cpu, which kernels cannot}}
  %r = "host.launch"(%x, %d) {callee = @kernel_0} : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return %r : tensor<f32>
}
