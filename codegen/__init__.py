"""From kernels and the main function to program text: CPU code, Triton code, host program, guard stub."""
