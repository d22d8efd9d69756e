"""CPU kernels: a `LoopKernel` becomes MLIR text (`emit`), then an object file (`objects`)."""
