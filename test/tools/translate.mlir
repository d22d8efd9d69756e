// RUN: symshape-translate %s --from-stage=kernels --to=program | filecheck %s --check-prefix=PROGRAM
// RUN: symshape-translate < %s --from-stage=kernels --to=cpu -o %t && filecheck %s --check-prefix=CPU < %t
// RUN: symshape-translate %s --from-stage=kernels --to=loops | filecheck %s --check-prefix=LOOPS
// RUN: echo "func.func @f( {" | not symshape-translate --to=cpu 2>&1 | filecheck %s --check-prefix=INVALID
// RUN: not symshape-translate %s --to=cpu --from-stage=none 2>&1 | filecheck %s --check-prefix=STAGE
// RUN: echo "func.func @f() { return }" | not symshape-translate --to=cpu --from-stage=planned 2>&1 | filecheck %s --check-prefix=EMPTY

// PROGRAM: def program(args):
// PROGRAM: s0 = arg0.size(0)
// PROGRAM: kernel_0(
// CPU: llvm.func @kernel_0(
// LOOPS: LoopKernel(name='kernel_0'
// INVALID: symshape-translate: error: invalid IR: expected non-function type
// STAGE: symshape-translate: error: unknown stage 'none'
// EMPTY: symshape-translate: error: there are no kernels in the module

func.func @main(%arg0: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, source = "L['x'].size()[0]", binding = "arg0.size(0)"} : () -> index
  %c4 = arith.constant 4 : index
  %c1 = arith.constant 1 : index
  %c0 = arith.constant 0 : index
  "symshape.bind"(%arg0, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> ()
  %e = tensor.empty(%s0) : tensor<?x4xf32>
  "symshape.bind"(%e, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> ()
  %r = "host.launch"(%arg0, %e, %s0) {callee = @kernel_0} : (tensor<?x4xf32>, tensor<?x4xf32>, index) -> tensor<?x4xf32>
  "symshape.bind"(%r, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> ()
  return %r : tensor<?x4xf32>
}
func.func private @kernel_0(%x: tensor<?x4xf32>, %dest: tensor<?x4xf32>, %s0: index) -> tensor<?x4xf32>
    attributes {symshape.kernel, symshape.kind = "pointwise", symshape.num_inputs = 1 : i64, symshape.num_outputs = 1 : i64} {
  %c4 = arith.constant 4 : index
  %c1 = arith.constant 1 : index
  %c0 = arith.constant 0 : index
  "symshape.bind"(%x, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> ()
  "symshape.bind"(%dest, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32>, index, index, index, index, index) -> ()
  "symshape.space"(%s0, %c4) {iterators = ["parallel", "parallel"]} : (index, index) -> ()
  %0 = "symshape.view"(%x, %s0, %c4) {map = affine_map<(d0, d1) -> (d0, d1)>} : (tensor<?x4xf32>, index, index) -> tensor<?x4xf32>
  %i = tensor.empty(%s0) : tensor<?x4xf32>
  %1 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
    ins(%0 : tensor<?x4xf32>) outs(%i : tensor<?x4xf32>) {
    ^bb0(%a: f32, %b: f32):
      %2 = arith.addf %a, %a : f32
      linalg.yield %2 : f32
  } -> tensor<?x4xf32>
  %o = "symshape.store"(%1, %dest) {map = affine_map<(d0, d1) -> (d0, d1)>} : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
  return %o : tensor<?x4xf32>
}
