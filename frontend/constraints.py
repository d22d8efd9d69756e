"""What the ShapeEnv knows becomes ``assume``, what it deferred becomes ``expect_true``, each at the user's line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch_mlir import ir

from symshape.dialects.conditions import emit_condition
from symshape.dialects.sizes import Sizes
from symshape.prover.condition import Condition
from symshape.prover.expr import Expr
from symshape.prover.sympy_bridge import UnsupportedExpr, condition_from_sympy
from symshape.runtime.torch_private import deferred_runtime_asserts, shape_env_guards

__all__ = ["emit_condition", "import_constraints"]


@dataclass(frozen=True)
class Known:
    """A condition that holds whenever the compiled code runs, and the file and line that it comes from."""

    condition: Condition
    file: str
    line: int


def known_conditions(env: Any, *, asserted: bool = False) -> list[Known]:
    """The distinct guards that are conditions over integers; with ``asserted`` the runtime assertions as well."""
    if env is None:
        return []
    found: dict[Any, Known] = {}
    assertions = [(condition, ("", 0)) for condition, _ in deferred_runtime_asserts(env)] if asserted else []
    for relation, (file, line) in (*shape_env_guards(env), *assertions):
        if relation in found:
            continue
        try:
            found[relation] = Known(condition_from_sympy(relation), file, line)
        except UnsupportedExpr:
            continue
    return list(found.values())


def import_constraints(sizes: Sizes, env: Any) -> None:
    """Emits one ``symshape.assume`` for each distinct guard whose symbols this graph defines.

    Dynamo checks these guards before the compiled code runs, so here they are facts. A guard over symbols of another
    graph says nothing about this one and is left out.
    """
    for known in known_conditions(env):
        if not all(Expr.symbol(name) in sizes for name in known.condition.symbols):
            continue
        location = ir.Location.file(known.file, known.line, 1) if known.file else ir.Location.unknown()
        with location:
            ir.Operation.create("symshape.assume", [], [emit_condition(sizes, known.condition)])
