// RUN: symshape-opt %s | filecheck %s
// RUN: cat %s | symshape-opt - | filecheck %s
// RUN: symshape-opt < %s -o %t && filecheck %s < %t
// RUN: symshape-opt %s --pass-pipeline='builtin.module(func.func(cse), canonicalize{top-down=false})' | filecheck %s --check-prefix=CSE
// RUN: symshape-opt %s --cse --canonicalize='top-down=false region-simplify=disabled' | filecheck %s --check-prefix=CSE
// RUN: symshape-opt %s --cse --disable-pass=cse | filecheck %s
// RUN: symshape-opt %s --mlir-print-op-generic | filecheck %s --check-prefix=GENERIC
// RUN: symshape-opt %s --mlir-print-debuginfo | filecheck %s --check-prefix=LOC
// RUN: symshape-opt %s --cse --symbol-dce --mlir-print-ir-after-all --mlir-print-ir-before-all 2>&1 >/dev/null | filecheck %s --check-prefix=EACH
// RUN: symshape-opt %s --cse --symbol-dce --print-after=symbol-dce 2>&1 >/dev/null | filecheck %s --check-prefix=ONE
// RUN: symshape-opt %s --cse --symbol-dce --mlir-timing 2>&1 >/dev/null | filecheck %s --check-prefix=TIMING
// RUN: symshape-opt %s --from-stage=kernels --to-stage=planned | filecheck %s
// RUN: symshape-opt --list-passes | filecheck %s --check-prefix=LIST

// CHECK-LABEL: func.func @twice(
// CHECK-COUNT-2: arith.addi
// CSE-LABEL: func.func @twice(
// CSE-COUNT-1: arith.addi
// CSE-NOT: arith.addi
// GENERIC: "arith.addi"(%{{.*}}, %{{.*}})
// LOC: arith.addi {{.*}} loc(
// EACH: IR Dump Before cse
// EACH: IR Dump After cse
// EACH: IR Dump Before symbol-dce
// EACH: IR Dump After symbol-dce
// ONE-NOT: cse //
// ONE: IR Dump After symbol-dce
// TIMING: wall time
// TIMING: cse
// TIMING: symbol-dce
// TIMING: (100.0%) total
// LIST-DAG: --fuse-kernels
// LIST-DAG: --lower-aten
func.func @twice(%n: index) -> (index, index) {
  %0 = arith.addi %n, %n : index
  %1 = arith.addi %n, %n : index
  return %0, %1 : index, index
}
