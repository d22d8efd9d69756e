// RUN: symshape-opt %s --split-input-file --verify-diagnostics

func.func @form(%c: i1, %b: i8, %n: index) attributes {symshape.kernel, symshape.num_inputs = 0 : i64, symshape.num_outputs = 0 : i64} {
  // expected-error@+1 {{form 'spiral' is none of pointwise, tile, persistent, headed, looped, split}}
  "symshape.variant"(%c) {name = "a", form = "spiral", xblock = 1 : i64, yblock = 0 : i64, rblock = 64 : i64, num_warps = 4 : i64, num_stages = 1 : i64, one_launch = false, index_bits = 32 : i64, aligned = [], dims = []} : (i1) -> ()
  return
}

// -----

func.func @condition(%c: i1, %b: i8, %n: index) attributes {symshape.kernel, symshape.num_inputs = 0 : i64, symshape.num_outputs = 0 : i64} {
  // expected-error@+1 {{condition is i8, not i1}}
  "symshape.variant"(%b) {name = "a", form = "looped", xblock = 1 : i64, yblock = 0 : i64, rblock = 64 : i64, num_warps = 4 : i64, num_stages = 1 : i64, one_launch = false, index_bits = 32 : i64, aligned = [], dims = []} : (i8) -> ()
  return
}

// -----

func.func @no_split_count(%c: i1, %b: i8, %n: index) attributes {symshape.kernel, symshape.num_inputs = 0 : i64, symshape.num_outputs = 0 : i64} {
  // expected-error@+1 {{form 'split' has 0 split counts}}
  "symshape.variant"(%c) {name = "a", form = "split", xblock = 1 : i64, yblock = 512 : i64, rblock = 64 : i64, num_warps = 4 : i64, num_stages = 1 : i64, one_launch = false, index_bits = 32 : i64, aligned = [], dims = []} : (i1) -> ()
  return
}

// -----

func.func @split_count(%c: i1, %b: i8, %n: index) attributes {symshape.kernel, symshape.num_inputs = 0 : i64, symshape.num_outputs = 0 : i64} {
  // expected-error@+1 {{form 'looped' has 1 split counts}}
  "symshape.variant"(%c, %n) {name = "a", form = "looped", xblock = 1 : i64, yblock = 0 : i64, rblock = 64 : i64, num_warps = 4 : i64, num_stages = 1 : i64, one_launch = false, index_bits = 32 : i64, aligned = [], dims = []} : (i1, index) -> ()
  return
}

// -----

func.func @dims(%c: i1, %b: i8, %n: index) attributes {symshape.kernel, symshape.num_inputs = 0 : i64, symshape.num_outputs = 0 : i64} {
  // expected-error@+1 {{form 'tile' has 1 dims}}
  "symshape.variant"(%c) {name = "a", form = "tile", xblock = 1 : i64, yblock = 8 : i64, rblock = 0 : i64, num_warps = 4 : i64, num_stages = 1 : i64, one_launch = false, index_bits = 32 : i64, aligned = [], dims = ["d0"]} : (i1) -> ()
  return
}

// -----

func.func @bits(%c: i1, %b: i8, %n: index) attributes {symshape.kernel, symshape.num_inputs = 0 : i64, symshape.num_outputs = 0 : i64} {
  // expected-error@+1 {{index_bits 16 is neither 32 nor 64}}
  "symshape.variant"(%c) {name = "a", form = "looped", xblock = 1 : i64, yblock = 0 : i64, rblock = 64 : i64, num_warps = 4 : i64, num_stages = 1 : i64, one_launch = false, index_bits = 16 : i64, aligned = [], dims = []} : (i1) -> ()
  return
}

// -----

func.func @no_rblock(%c: i1, %b: i8, %n: index) attributes {symshape.kernel, symshape.num_inputs = 0 : i64, symshape.num_outputs = 0 : i64} {
  // expected-error@+1 {{form 'pointwise' has no rblock}}
  "symshape.variant"(%c) {name = "a", form = "pointwise", xblock = 1 : i64, yblock = 0 : i64, rblock = 64 : i64, num_warps = 4 : i64, num_stages = 1 : i64, one_launch = false, index_bits = 32 : i64, aligned = [], dims = []} : (i1) -> ()
  return
}

// -----

func.func @block(%c: i1, %b: i8, %n: index) attributes {symshape.kernel, symshape.num_inputs = 0 : i64, symshape.num_outputs = 0 : i64} {
  // expected-error@+1 {{xblock 3 is no power of two}}
  "symshape.variant"(%c) {name = "a", form = "looped", xblock = 3 : i64, yblock = 0 : i64, rblock = 64 : i64, num_warps = 4 : i64, num_stages = 1 : i64, one_launch = false, index_bits = 32 : i64, aligned = [], dims = []} : (i1) -> ()
  return
}

// -----

func.func @no_block(%c: i1, %b: i8, %n: index) attributes {symshape.kernel, symshape.num_inputs = 0 : i64, symshape.num_outputs = 0 : i64} {
  // expected-error@+1 {{rblock 0 is no power of two}}
  "symshape.variant"(%c) {name = "a", form = "looped", xblock = 1 : i64, yblock = 0 : i64, rblock = 0 : i64, num_warps = 4 : i64, num_stages = 1 : i64, one_launch = false, index_bits = 32 : i64, aligned = [], dims = []} : (i1) -> ()
  return
}

// -----

func.func @warps(%c: i1, %b: i8, %n: index) attributes {symshape.kernel, symshape.num_inputs = 0 : i64, symshape.num_outputs = 0 : i64} {
  // expected-error@+1 {{num_warps 64 is more than 32}}
  "symshape.variant"(%c) {name = "a", form = "looped", xblock = 1 : i64, yblock = 0 : i64, rblock = 64 : i64, num_warps = 64 : i64, num_stages = 1 : i64, one_launch = false, index_bits = 32 : i64, aligned = [], dims = []} : (i1) -> ()
  return
}

// -----

func.func @stages(%c: i1) attributes {symshape.kernel, symshape.num_inputs = 0 : i64, symshape.num_outputs = 0 : i64} {
  // expected-error@+1 {{form 'looped' cannot have num_stages 3}}
  "symshape.variant"(%c) {name = "a", form = "looped", xblock = 1 : i64, yblock = 0 : i64, rblock = 64 : i64, num_warps = 4 : i64, num_stages = 3 : i64, one_launch = false, index_bits = 32 : i64, aligned = [], dims = []} : (i1) -> ()
  return
}

// -----

func.func @launches(%c: i1) attributes {symshape.kernel, symshape.num_inputs = 0 : i64, symshape.num_outputs = 0 : i64} {
  // expected-error@+1 {{form 'looped' has no launches to make one of}}
  "symshape.variant"(%c) {name = "a", form = "looped", xblock = 1 : i64, yblock = 0 : i64, rblock = 64 : i64, num_warps = 4 : i64, num_stages = 1 : i64, one_launch = true, index_bits = 32 : i64, aligned = [], dims = []} : (i1) -> ()
  return
}

// -----

func.func @address(%x: tensor<4xf32>) attributes {symshape.kernel, symshape.num_inputs = 1 : i64, symshape.num_outputs = 0 : i64} {
  %y = arith.negf %x : tensor<4xf32>
  // expected-error@+1 {{takes an argument of the kernel only}}
  %a = "symshape.address"(%y) : (tensor<4xf32>) -> index
  return
}

// -----

func.func @twice(%c: i1) attributes {symshape.kernel, symshape.num_inputs = 0 : i64, symshape.num_outputs = 0 : i64} {
  "symshape.variant"(%c) {name = "a", form = "looped", xblock = 1 : i64, yblock = 0 : i64, rblock = 64 : i64, num_warps = 4 : i64, num_stages = 1 : i64, one_launch = false, index_bits = 32 : i64, aligned = [], dims = []} : (i1) -> ()
  // expected-error@+1 {{variant 'a' is defined twice in this function}}
  "symshape.variant"(%c) {name = "a", form = "looped", xblock = 1 : i64, yblock = 0 : i64, rblock = 64 : i64, num_warps = 4 : i64, num_stages = 1 : i64, one_launch = false, index_bits = 32 : i64, aligned = [], dims = []} : (i1) -> ()
  return
}
