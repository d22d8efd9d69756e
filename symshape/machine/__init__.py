"""Properties of this machine and this process that both the compiler and compiled code use."""
