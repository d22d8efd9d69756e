// RUN: symshape-opt %s --split-input-file --verify-diagnostics

func.func @no_message(%c: i1) {
  // expected-error@+1 {{attribute "message" is expected but not provided}}
  "symshape.expect_true"(%c) : (i1) -> ()
  return
}

// -----

func.func @empty_message(%c: i1) {
  // expected-error@+1 {{'symshape.expect_true' op has an empty message: whoever sees it fail needs one}}
  "symshape.expect_true"(%c) {message = ""} : (i1) -> ()
  return
}

// -----

func.func @empty_reason(%c: i1) {
  // expected-error@+1 {{'symshape.guard' op has an empty reason: reports quote it}}
  "symshape.guard"(%c) {reason = ""} : (i1) -> ()
  return
}

// -----

func.func @no_condition(%n: index) {
  // expected-error@+1 {{expected 'i1' but got 'index'}}
  "symshape.assume"(%n) : (index) -> ()
  return
}

// -----

func.func @typo(%c: i1) {
  // expected-error@+1 {{unregistered operation 'symshape.asume' found in dialect ('symshape')}}
  "symshape.asume"(%c) : (i1) -> ()
  return
}
