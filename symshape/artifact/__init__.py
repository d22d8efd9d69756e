"""What compilation hands to the runtime, as plain data: programs, kernels, checks. A cache keeps it as it is."""
