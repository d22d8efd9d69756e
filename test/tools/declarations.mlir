// RUN: symshape-opt %s --to-stage=planned | filecheck %s
// Functions without a body are left as they are.

// CHECK: func.func private @declared(tensor<?xf32>) -> tensor<?xf32>
func.func private @declared(tensor<?xf32>) -> tensor<?xf32>

// CHECK: func.func @main
// CHECK-NEXT: return
func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
  return %x : tensor<?xf32>
}
