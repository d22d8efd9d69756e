"""The tables of patches to PyTorch, one file per subject. Each file is one flat list, ``ROWS``."""
