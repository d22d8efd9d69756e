"""symshape: one compile serves every size, and at every size it runs as if it had been compiled for that size.

``compile``  torch.compile with the settings that give the fewest graphs
``jit``      compiled without Dynamo: many entries in one function, chosen by our own guards
``explain``  compile, run, and tell: a ``Report`` of every graph
``run_ir``   runs IR that was recorded or edited, from any stage
``SpecialisationPolicy``  which sizes are symbols, and for how many values of one a function is compiled
``ConstraintStore``  facts about sizes, and proofs from them, on their own
Attributes are loaded on first use: the command-line tools do not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from symshape.version import VERSION

if TYPE_CHECKING:  # what type checkers see of the names below
    from symshape.api import compile as compile
    from symshape.api import explain as explain
    from symshape.api import jit as jit
    from symshape.errors import ContradictionError as ContradictionError
    from symshape.errors import ShapeConstraintError as ShapeConstraintError
    from symshape.errors import SymshapeError as SymshapeError
    from symshape.policy import SpecialisationPolicy as SpecialisationPolicy
    from symshape.prover.constraint_store import ConstraintStore as ConstraintStore
    from symshape.run_text import run_ir as run_ir
    from symshape.tools.report import GraphReport as GraphReport
    from symshape.tools.report import Report as Report

__version__ = VERSION
_LAZY = {
    "compile": "symshape.api",
    "explain": "symshape.api",
    "jit": "symshape.api",
    "run_ir": "symshape.run_text",
    "ConstraintStore": "symshape.prover.constraint_store",
    "ContradictionError": "symshape.errors",
    "Report": "symshape.tools.report",
    "SpecialisationPolicy": "symshape.policy",
    "GraphReport": "symshape.tools.report",
    "SymshapeError": "symshape.errors",
    "ShapeConstraintError": "symshape.errors",
}
_WITH_MLIR = ("run_ir", "Report", "GraphReport")
__all__ = sorted(_LAZY)


if not TYPE_CHECKING:  # a checker would take every name for one that exists

    def __getattr__(name: str) -> Any:
        if name in _LAZY:
            if name in _WITH_MLIR:
                importlib.import_module("symshape.machine.mlir_library").load_mlir()
            return getattr(importlib.import_module(_LAZY[name]), name)
        raise AttributeError(f"module 'symshape' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_LAZY]
