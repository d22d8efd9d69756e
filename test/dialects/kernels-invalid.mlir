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
