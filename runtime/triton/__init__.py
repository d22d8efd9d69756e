"""Triton kernels in this process: compiled, launched, tuned."""
