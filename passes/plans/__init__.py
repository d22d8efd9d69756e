"""Planning kernels: what a plan needs to know of a kernel, and the table of variants in its function."""
