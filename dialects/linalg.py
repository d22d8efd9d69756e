"""Makes the ops of ``linalg`` known to MLIR's bindings, which look for them in this module.

Theirs has Python functions for the named ops too, and reads their source: 70 ms of each first compile.
"""

from torch_mlir.dialects._linalg_ops_gen import *  # noqa: F403
