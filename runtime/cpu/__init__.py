"""CPU kernels in this process: object files loaded, convolutions, attention, matrix products."""
