func.func private @kernel_0(%x: tensor<?xf32>, %d: tensor<?xf32>, %n: index) -> tensor<?xf32>
    attributes {symshape.kernel, symshape.kind = "pointwise", symshape.num_inputs = 1 : i64, symshape.num_outputs = 1 : i64} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %n, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  "symshape.bind"(%d, %n, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  "symshape.space"(%n) {iterators = ["parallel"]} : (index) -> ()
  return %d : tensor<?xf32>
}
