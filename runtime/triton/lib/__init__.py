"""Triton functions that generated kernels call."""
