"""CPU kernels in this process: object files loaded, instruction sets, matrix products."""
