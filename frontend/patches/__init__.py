"""Patches of PyTorch's tracer, in force during a compile: one table, in a folder per subject, applied by
``registry.py``."""
