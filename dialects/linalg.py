"""Registers the ops of ``linalg`` with MLIR's Python bindings, which look for them in this module.

The bindings' own module also defines the named ops in Python, by reading their source: 70 ms of each first compile.
"""

from torch_mlir.dialects._linalg_ops_gen import *  # noqa: F403
