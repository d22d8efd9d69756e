// RUN: symshape-opt %s --unroll-reductions --outline-scatters --mlir-pass-statistics 2>&1 >%t | filecheck %s

// What each pass declares is there, also where nothing was counted; MLIR's own passes count elsewhere.
// CHECK:      ... Pass statistics report ...
// CHECK-NEXT: unroll-reductions
// CHECK-NEXT:   (S)     0 unrolled     - reductions that became pointwise
// CHECK-NEXT: outline-scatters
// CHECK-NEXT:   (S)     1 kernels      - different kernels
func.func @rows(%x: tensor<?x8xf32>, %v: tensor<?x8xf32>, %i: tensor<?xi64>) -> tensor<?x8xf32> {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %s1 = "symshape.symbol"() {name = "s1", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg1.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  "symshape.bind"(%x, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%v, %s1, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%i, %s1, %c1, %c0) : (tensor<?xi64>, index, index, index) -> ()
  %r = "host.call"(%x, %v, %s1, %c8, %i) {target = "symshape.scatter.default", arguments = "($0, $1, (0, 1), True, ($2, $3, ), (-1, 1), [$4], (0,), 'add', True)", fresh} : (tensor<?x8xf32>, tensor<?x8xf32>, index, index, tensor<?xi64>) -> tensor<?x8xf32>
  "symshape.bind"(%r, %s0, %c8, %c8, %c1, %c0) : (tensor<?x8xf32>, index, index, index, index, index) -> ()
  return %r : tensor<?x8xf32>
}
