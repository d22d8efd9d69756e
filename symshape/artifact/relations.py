"""How a returned tensor relates to its memory: made with it, a view of that to autograd, or another tensor there.

Of those in whose place the caller returns an argument, or a view of one, it reads the sizes and strides only.
"""

from __future__ import annotations

from typing import Final

OWN: Final = "own"
VIEW: Final = "view"
DETACHED: Final = "detached"
OF_ARGUMENT: Final = "argument"
