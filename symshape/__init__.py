"""symshape: one compile serves every size, and at every size it runs as if it had been compiled for that size.

``compile``  torch.compile with the settings that give the fewest graphs
``jit``      compiled without Dynamo: many entries in one function, chosen by our own guards
``explain``  compile, run, and tell: a ``Report`` of every graph
``ConstraintStore``  facts about sizes, and proofs from them, on their own
Attributes are loaded on first use: the command-line tools do not import torch.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"
_LAZY = {
    "compile": "symshape.api",
    "explain": "symshape.api",
    "jit": "symshape.api",
    "ConstraintStore": "symshape.prover.store",
    "ContradictionError": "symshape.errors",
    "Report": "symshape.tools.report",
    "GraphReport": "symshape.tools.report",
    "SymshapeError": "symshape.errors",
    "ShapeConstraintError": "symshape.errors",
}
__all__ = sorted(_LAZY)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'symshape' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_LAZY]
