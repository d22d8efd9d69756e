"""Prints a ``LoopKernel`` and its variants as Triton source with a launcher. Entry point: `kernel.emit_triton`."""
