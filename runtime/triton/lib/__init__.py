"""What generated Triton kernels call."""
