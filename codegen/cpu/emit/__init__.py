"""Prints a ``LoopKernel`` as MLIR text, vectorised. Entry point: ``kernel.emit_cpu``."""
