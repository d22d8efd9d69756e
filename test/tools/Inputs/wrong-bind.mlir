func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
  %s0 = "symshape.symbol"() {name = "s0", min = 0 : i64, max = 9 : i64, divisor = 1 : i64, hint = 8 : i64, source = "", binding = "arg0.size(0)"} : () -> index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  %r = "host.call"(%x) {target = "aten.sum.default", arguments = "($0)"} : (tensor<?xf32>) -> tensor<?xf32>
  "symshape.bind"(%r, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  return %r : tensor<?xf32>
}
