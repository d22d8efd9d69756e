"""Patches of PyTorch's tracer, in force during a compile: one table (``tables/``), applied by ``registry.py``."""
