// RUN: symshape-opt %s --split-input-file --mlir-print-debuginfo --fold-layers | filecheck %s

// Of seven layers, the first of which begins inside of the run, the first three and the last are kept.
// CHECK-LABEL: func.func @main(
// CHECK-SAME:    symshape.folded_layers = [{arguments = [array<i64: 1>
module {
}
