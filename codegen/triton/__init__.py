"""A ``LoopKernel`` and its variants as Triton source with a launcher."""
