// RUN: symshape-opt %s --load-pass=%S/../../examples/drop_noop_views.py --drop-noop-views | filecheck %s
// RUN: symshape-opt --load-pass=%S/../../examples/drop_noop_views.py --list-passes | filecheck %s --check-prefix=LIST
// RUN: symshape-opt %s --load-pass=%S/../../examples/drop_noop_views.py --pass-pipeline='builtin.module(canonicalize,drop-noop-views{limit=0})' | filecheck %s --check-prefix=LIMIT
// RUN: symshape-opt %s --load-pass=%S/../../examples/drop_noop_views.py --drop-noop-views=limit=0 --mlir-pass-statistics 2>&1 >%t | filecheck %s --check-prefix=COUNT

// COUNT: (S) 0 dropped
// LIST: --drop-noop-views  {{.*}}Removes views that change nothing

// CHECK-LABEL: func.func @noop(
// CHECK-SAME:    %[[X:.*]]: tensor<?xf32>, %[[N:.*]]: index
// LIMIT-LABEL: func.func @noop(
func.func @noop(%x: tensor<?xf32>, %n: index, %m: index) -> (tensor<?xf32>, tensor<?xf32>) {
  // CHECK-NEXT: "symshape.bind"
  "symshape.bind"(%x, %n, %n, %n) : (tensor<?xf32>, index, index, index) -> ()
  // LIMIT: "symshape.view"
  // LIMIT: "symshape.view"
  %v = "symshape.view"(%x, %n) {map = affine_map<(d0) -> (d0)>} : (tensor<?xf32>, index) -> tensor<?xf32>
  // A slice has the same map, but another size.
  // CHECK-NEXT: %[[W:.*]] = "symshape.view"
  %w = "symshape.view"(%x, %m) {map = affine_map<(d0) -> (d0)>} : (tensor<?xf32>, index) -> tensor<?xf32>
  // CHECK-NEXT: return %[[X]], %[[W]]
  return %v, %w : tensor<?xf32>, tensor<?xf32>
}
