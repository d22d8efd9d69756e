#row = affine_map<(d0) -> (d0)>
func.func @scaled(%x: tensor<?xf32>) -> tensor<?xf32> {
  %s0 = "symshape.symbol"() {name = "s0", min = 0 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %e = tensor.empty(%s0) : tensor<?xf32>
  %r = linalg.generic {indexing_maps = [#row, #row], iterator_types = ["parallel"]}
    ins(%x : tensor<?xf32>) outs(%e : tensor<?xf32>) {
    ^bb0(%in: f32, %out: f32):
      %one = arith.constant 1.0 : f32
      %product = arith.mulf %in, %one : f32
      linalg.yield %product : f32
  } -> tensor<?xf32>
  "symshape.bind"(%r, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  return %r : tensor<?xf32>
}
// The result of a product by 1 is the factor of another one; and 1 * 1.
func.func @chained(%x: tensor<?xf32>, %e: tensor<?xf32>) -> tensor<?xf32> {
  %r = linalg.generic {indexing_maps = [#row, #row], iterator_types = ["parallel"]}
    ins(%x : tensor<?xf32>) outs(%e : tensor<?xf32>) {
    ^bb0(%in: f32, %out: f32):
      %one = arith.constant 1.0 : f32
      %p = arith.mulf %in, %one : f32
      %q = arith.mulf %one, %p : f32
      %s = arith.mulf %one, %one : f32
      %t = arith.mulf %q, %s : f32
      linalg.yield %t : f32
  } -> tensor<?xf32>
  return %r : tensor<?xf32>
}
