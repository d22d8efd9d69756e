// RUN: symshape-opt %s --split-input-file --verify-diagnostics

func.func @view_sizes(%x: tensor<?xf32>, %n: index) {
  // expected-error@+1 {{has 1 index operands, but its result has 2 sizes}}
  %v = "symshape.view"(%x, %n) {map = affine_map<(d0, d1) -> (d0 + d1)>} : (tensor<?xf32>, index) -> tensor<?x?xf32>
  return
}

// -----

func.func @view_dims(%x: tensor<?xf32>, %n: index) {
  // expected-error@+1 {{map has 2 dims, but its result has rank 1}}
  %v = "symshape.view"(%x, %n) {map = affine_map<(d0, d1) -> (d0 + d1)>} : (tensor<?xf32>, index) -> tensor<?xf32>
  return
}

// -----

func.func @view_results(%x: tensor<?xf32>, %n: index) {
  // expected-error@+1 {{map has 2 results, but its source has rank 1}}
  %v = "symshape.view"(%x, %n) {map = affine_map<(d0) -> (d0, d0)>} : (tensor<?xf32>, index) -> tensor<?xf32>
  return
}

// -----

func.func @view_symbols(%x: tensor<?xf32>, %n: index) {
  // expected-error@+1 {{map has 1 symbols, but its operands after the sizes are 0}}
  %v = "symshape.view"(%x, %n) {map = affine_map<(d0)[s0] -> (d0 + s0)>} : (tensor<?xf32>, index) -> tensor<?xf32>
  return
}

// -----

func.func @view_type(%x: tensor<?xf32>, %n: index) {
  // expected-error@+1 {{turns f32 into f64: a view keeps the element type}}
  %v = "symshape.view"(%x, %n) {map = affine_map<(d0) -> (d0)>} : (tensor<?xf32>, index) -> tensor<?xf64>
  return
}

// -----

func.func @view_domain(%x: tensor<?xf32>, %n: index) {
  // expected-error@+1 {{domain has (dims, symbols) (1, 1), but the map has (1, 0)}}
  %v = "symshape.view"(%x, %n) {map = affine_map<(d0) -> (d0)>, domain = affine_set<(d0)[s0] : (d0 - s0 >= 0)>} : (tensor<?xf32>, index) -> tensor<?xf32>
  return
}

// -----

func.func @view_domain_kind(%x: tensor<?xf32>, %n: index) {
  // expected-error@+1 {{is no integer set}}
  %v = "symshape.view"(%x, %n) {map = affine_map<(d0) -> (d0)>, domain = affine_map<(d0) -> (d0)>} : (tensor<?xf32>, index) -> tensor<?xf32>
  return
}

// -----

func.func @store_dims(%x: tensor<?xf32>, %d: tensor<?xf32>) {
  // expected-error@+1 {{map has 2 dims, but its value has rank 1}}
  %o = "symshape.store"(%x, %d) {map = affine_map<(d0, d1) -> (d0)>} : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  return
}

// -----

func.func @store_results(%x: tensor<?xf32>, %d: tensor<?xf32>) {
  // expected-error@+1 {{map has 2 results, but its destination has rank 1}}
  %o = "symshape.store"(%x, %d) {map = affine_map<(d0) -> (d0, 0)>} : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  return
}

// -----

func.func @store_symbols(%x: tensor<?xf32>, %d: tensor<?xf32>, %n: index) {
  // expected-error@+1 {{map has 0 symbols, but its operands after the destination are 1}}
  %o = "symshape.store"(%x, %d, %n) {map = affine_map<(d0) -> (d0)>} : (tensor<?xf32>, tensor<?xf32>, index) -> tensor<?xf32>
  return
}

// -----

func.func @store_type(%x: tensor<?xf32>, %d: tensor<?xf64>) {
  // expected-error@+1 {{stores f32 into f64}}
  %o = "symshape.store"(%x, %d) {map = affine_map<(d0) -> (d0)>} : (tensor<?xf32>, tensor<?xf64>) -> tensor<?xf64>
  return
}

// -----

func.func @store_result(%x: tensor<?xf32>, %d: tensor<?xf32>) {
  // expected-error@+1 {{result is tensor<4xf32>, but its destination tensor<?xf32>}}
  %o = "symshape.store"(%x, %d) {map = affine_map<(d0) -> (d0)>} : (tensor<?xf32>, tensor<?xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @space_count(%n: index) {
  // expected-error@+1 {{has 1 iterators, but 2 sizes}}
  "symshape.space"(%n, %n) {iterators = ["parallel"]} : (index, index) -> ()
  return
}

// -----

func.func @space_kind(%n: index) {
  // expected-error@+1 {{iterator "window" is neither 'parallel' nor 'reduction'}}
  "symshape.space"(%n) {iterators = ["window"]} : (index) -> ()
  return
}

// -----

func.func @check_message(%n: index) {
  // expected-error@+1 {{'symshape.check_index' op has an empty message}}
  %j = "symshape.check_index"(%n, %n) {message = ""} : (index, index) -> index
  return
}

// -----

func.func @check_outside(%n: index) {
  // expected-error@+1 {{'symshape.check_index' op must be in the body of a linalg.generic}}
  %j = "symshape.check_index"(%n, %n) {message = "out of range"} : (index, index) -> index
  return
}

// -----

func.func @store_outside(%x: tensor<?xf32>, %d: tensor<?xf32>) {
  // expected-error@+1 {{'symshape.store' op must be in a kernel: a function with an attribute 'symshape.kernel'}}
  %o = "symshape.store"(%x, %d) {map = affine_map<(d0) -> (d0)>} : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  return
}

// -----

func.func @two_spaces(%n: index)
    attributes {symshape.kernel, symshape.num_inputs = 0 : i64, symshape.num_outputs = 0 : i64} {
  "symshape.space"(%n) {iterators = ["parallel"]} : (index) -> ()
  // expected-error@+1 {{is the second space of its kernel, which has one}}
  "symshape.space"(%n) {iterators = ["parallel"]} : (index) -> ()
  return
}

// -----

func.func @scatter_dims(%x: tensor<?xf32>, %d: tensor<?xf32>)
    attributes {symshape.kernel, symshape.num_inputs = 2 : i64, symshape.num_outputs = 0 : i64} {
  // expected-error@+1 {{are not all integers}}
  %o = "symshape.scatter"(%x, %x, %d) {dims = ["d0"], combiner = "add"} : (tensor<?xf32>, tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  return
}

// -----

func.func @scatter_dim(%x: tensor<?xf32>, %d: tensor<?xf32>)
    attributes {symshape.kernel, symshape.num_inputs = 2 : i64, symshape.num_outputs = 0 : i64} {
  // expected-error@+1 {{dims [3] are not all -1 or a dim of the value, which has rank 1}}
  %o = "symshape.scatter"(%x, %x, %d) {dims = [3 : i64], combiner = "add"} : (tensor<?xf32>, tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  return
}

// -----

// expected-error@+1 {{is a kernel, and needs an attribute 'symshape.num_inputs'}}
func.func @no_counts() attributes {symshape.kernel} {
  return
}

// -----

// expected-error@+1 {{has 1 tensors as arguments and 0 results, which are not 3 inputs and 0 outputs}}
func.func @counts(%x: tensor<?xf32>) attributes {symshape.kernel, symshape.num_inputs = 3 : i64, symshape.num_outputs = 0 : i64} {
  return
}

// -----

// expected-error@+1 {{kind 'loop' is none of pointwise, reduction, scan, scatter, mixed}}
func.func @kernel_kind() attributes {symshape.kernel, symshape.num_inputs = 0 : i64, symshape.num_outputs = 0 : i64, symshape.kind = "loop"} {
  return
}

// -----

// expected-error@+1 {{needs an attribute 'symshape.kind' of type StringAttr, which 3 : i64 is not}}
func.func @kind_type() attributes {symshape.kernel, symshape.num_inputs = 0 : i64, symshape.num_outputs = 0 : i64, symshape.kind = 3 : i64} {
  return
}

// -----

// expected-error@+1 {{in_place has an odd number of elements}}
func.func @odd(%x: tensor<?xf32>) attributes {symshape.kernel, symshape.num_inputs = 1 : i64, symshape.num_outputs = 0 : i64, symshape.in_place = array<i64: 0>} {
  return
}

// -----

// expected-error@+1 {{in_place pair (0, 7) is no input and output of the kernel}}
func.func @no_pair(%x: tensor<?xf32>) attributes {symshape.kernel, symshape.num_inputs = 1 : i64, symshape.num_outputs = 0 : i64, symshape.in_place = array<i64: 0, 7>} {
  return
}
