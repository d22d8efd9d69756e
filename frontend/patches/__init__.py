"""Patches of PyTorch's tracer, in force while a frame is compiled: one table (``tables/``), applied by
``registry.py``."""
