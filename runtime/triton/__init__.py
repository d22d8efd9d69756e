"""Compiles, launches and tunes Triton kernels in this process."""
