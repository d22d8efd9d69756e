// RUN: rm -rf %t && mkdir %t
// RUN: not symshape-opt %s --load-pass=%S/Inputs/failing_passes.py --debug-dir=%t/debug --cse --fail-at-op --canonicalize -o %t/out 2>&1 | filecheck %s
// RUN: test ! -e %t/out
// RUN: filecheck %s --check-prefix=DUMP < %t/debug/fail-at-op-0.mlir
// RUN: not symshape-opt %s --load-pass=%S/Inputs/failing_passes.py --debug-dir=%t/debug --crash 2>&1 | filecheck %s --check-prefix=CRASH
// RUN: not symshape-opt %s --load-pass=%S/Inputs/failing_passes.py --debug-dir=%t/debug --break-ir 2>&1 | filecheck %s --check-prefix=BREAK
// RUN: not symshape-opt %s --load-pass=%S/Inputs/failing_passes.py --debug-dir=%t/debug --demand 2>&1 | filecheck %s --check-prefix=DEMAND

// CHECK: failing-pass.mlir:{{[0-9]+:[0-9]+}}: error: 'func.func' op is not welcome
// CHECK-NEXT: func.func @f(
// CHECK-NEXT: ^
// CHECK-NEXT: symshape-opt: error: pass 'fail-at-op' failed: 'func.func' op is not welcome
// CHECK-NEXT:   at: {{.*}}failing-pass.mlir:[[#]]:{{[0-9]+}}
// CHECK-NEXT:   next: the IR before this pass is in {{.*}}fail-at-op-0.mlir; replay it with
// CHECK-NEXT: symshape-opt {{.*}}fail-at-op-0.mlir '--pass-pipeline=builtin.module(fail-at-op)' --load-pass={{.*}}failing_passes.py

// The state before the pass: one addition is gone.
// DUMP-LABEL: func.func @f(
// DUMP-COUNT-1: arith.addi
// DUMP-NOT: arith.addi

// CRASH: Traceback
// CRASH: ZeroDivisionError: no pass should
// CRASH: symshape-opt: error: pass 'crash' failed: ZeroDivisionError: no pass should

// BREAK: error: 'host.launch' op callee @gone is no function of this module
// BREAK: symshape-opt: error: pass 'break-ir' failed

// DEMAND: pass 'demand' failed: a pass requires `s0 % 16 == 0` of an input: the tile is 16 wide

func.func @f(%n: index) -> (index, index) {
  %0 = arith.addi %n, %n : index
  %1 = arith.addi %n, %n : index
  "host.launch"(%n) {callee = @kernel_0} : (index) -> ()
  return %0, %1 : index, index
}

func.func private @kernel_0(%n: index) attributes {symshape.kernel, symshape.num_inputs = 0 : i64, symshape.num_outputs = 0 : i64}
