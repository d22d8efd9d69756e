// RUN: symshape-opt %s --from-stage=kernels --to-stage=planned --target=triton | filecheck %s --check-prefix=TRITON
// RUN: symshape-opt %s --from-stage=kernels --to-stage=planned | filecheck %s --check-prefix=TRITON
// RUN: symshape-opt %s --from-stage=kernels --to-stage=planned --target=cpu | filecheck %s --check-prefix=CPU
// RUN: not symshape-opt %s --target=cpu 2>&1 | filecheck %s --check-prefix=ALONE

// TRITON: "symshape.variant"
// CPU-NOT: "symshape.variant"
// ALONE: symshape-opt: error: --target does nothing without passes
func.func private @flat(%x: tensor<?xf32>, %dest: tensor<?xf32>, %s0: index) -> tensor<?xf32>
    attributes {symshape.kernel, symshape.kind = "pointwise", symshape.num_inputs = 1 : i64, symshape.num_outputs = 1 : i64} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  "symshape.bind"(%dest, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  "symshape.space"(%s0) {iterators = ["parallel"]} : (index) -> ()
  %v = "symshape.view"(%x, %s0) {map = affine_map<(d0) -> (d0)>} : (tensor<?xf32>, index) -> tensor<?xf32>
  %i = tensor.empty(%s0) : tensor<?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
    iterator_types = ["parallel"]} ins(%v : tensor<?xf32>) outs(%i : tensor<?xf32>) {
    ^bb0(%a: f32, %b: f32):
      %s = math.exp %a : f32
      linalg.yield %s : f32
  } -> tensor<?xf32>
  %o = "symshape.store"(%r, %dest) {map = affine_map<(d0) -> (d0)>} : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  return %o : tensor<?xf32>
}
