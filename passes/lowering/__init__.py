"""Stage ``linalg``: library calls become ``linalg.generic`` and ``symshape.view``."""
