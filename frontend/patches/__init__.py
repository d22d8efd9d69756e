"""Changes to PyTorch's tracer while a frame of ours is compiled: one table (``tables/``), made by ``registry.py``."""
