"""What the ShapeEnv knows becomes ``assume``, what it deferred becomes ``expect_true``, each at the user's line."""

from __future__ import annotations

from typing import Any

from torch_mlir import ir

from symshape.dialects.conditions import emit_condition
from symshape.dialects.sizes import Sizes
from symshape.prover.expr import Expr
from symshape.prover.sympy_bridge import UnsupportedExpr, condition_from_sympy
from symshape.runtime.torch_private import shape_env_guards

__all__ = ["emit_condition", "import_constraints"]


def import_constraints(sizes: Sizes, env: Any) -> None:
    """Emits one ``symshape.assume`` for each distinct guard whose symbols this graph defines.

    Dynamo checks these guards before the compiled code runs, so here they are facts. A guard over symbols of another
    graph says nothing about this one and is left out.
    """
    if env is None:
        return
    seen: set[Any] = set()
    for condition, (file, line) in shape_env_guards(env):
        if condition in seen:
            continue
        seen.add(condition)
        try:
            converted = condition_from_sympy(condition)
        except UnsupportedExpr:
            continue
        if not all(Expr.symbol(name) in sizes for name in converted.symbols):
            continue
        location = ir.Location.file(file, line, 1) if file else ir.Location.unknown()
        with location:
            ir.Operation.create("symshape.assume", [], [emit_condition(sizes, converted)])
