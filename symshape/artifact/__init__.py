"""The artifacts of a compile, as plain data: programs, kernels, checks. The cache stores them, the runtime loads
them."""
