"""The relation of a returned tensor to its memory: the tensor made with it, a view of that for autograd, or an alias.

For results that the caller replaces by an argument, or by a view of one, only sizes and strides are read.
"""

from __future__ import annotations

from typing import Final

OWN: Final = "own"
VIEW: Final = "view"
DETACHED: Final = "detached"
OF_ARGUMENT: Final = "argument"
