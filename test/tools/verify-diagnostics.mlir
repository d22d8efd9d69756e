// RUN: symshape-opt %s --split-input-file --verify-diagnostics
// RUN: sed -e s/dynamic/other/ %s | not symshape-opt --split-input-file --verify-diagnostics 2>&1 | filecheck %s
// RUN: not symshape-opt %s --split-input-file -o %t.none 2>/dev/null
// RUN: test ! -e %t.none

// CHECK: <stdin>:17: error: unexpected error: 'tensor.empty' op incorrect number of dynamic sizes
// CHECK: <stdin>:16: error: expected error "number of other sizes" was not produced on line

func.func @fine(%n: index) {
  return
}

// -----

func.func @substring() {
  // expected-error@below {{number of dynamic sizes}}
  %0 = tensor.empty() : tensor<?xf32>
  return
}

// -----

func.func @regex() {
  %0 = tensor.empty() : tensor<?xf32> // expected-error {{has 0, expected \d}}
  return
}

// -----

func.func @note() {
  // expected-note@+1 {{prior use here}}
  %0 = arith.constant 0 : index
  // expected-error@+1 {{expects different type than prior uses}}
  "symshape.assume"(%0) : (i1) -> ()
  return
}

// -----

func.func @above() {
  %0 = tensor.empty() : tensor<?xf32>
  // expected-error@-1 {{incorrect number of dynamic sizes}}
  return
}
