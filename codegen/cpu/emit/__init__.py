"""A ``LoopKernel`` as MLIR text."""
