"""The trace of `symshape.jit`."""
