func.func @noop(%x: tensor<?xf32>, %n: index, %m: index) -> (tensor<?xf32>, tensor<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %n, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %v = "symshape.view"(%x, %n) {map = affine_map<(d0) -> (d0)>} : (tensor<?xf32>, index) -> tensor<?xf32>
  // A slice has the same map, but another size.
  %w = "symshape.view"(%x, %m) {map = affine_map<(d0) -> (d0)>} : (tensor<?xf32>, index) -> tensor<?xf32>
  return %v, %w : tensor<?xf32>, tensor<?xf32>
}
