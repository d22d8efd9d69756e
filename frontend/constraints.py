"""What the ShapeEnv knows becomes ``assume``, what it deferred becomes ``expect_true``, each at the user's line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch_mlir import ir

from symshape.dialects.conditions import emit_condition
from symshape.dialects.sizes import Sizes
from symshape.errors import CompileError
from symshape.prover.condition import TRUE, Condition
from symshape.prover.expr import Expr
from symshape.prover.sympy_bridge import UnsupportedExpr, condition_from_sympy
from symshape.runtime.torch_private import deferred_runtime_asserts, shape_env_guards
from symshape.runtime.torch_tracing import guards_are_ours

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
    if guards_are_ours(env):
        for constraint in open_guards(env, sizes):
            with _location(constraint.file, constraint.line):
                attributes = {"reason": ir.StringAttr.get("decided while tracing")}
                ir.Operation.create("symshape.guard", [], [emit_condition(sizes, constraint.condition)], attributes)
        return
    for known in known_conditions(env):
        if not all(Expr.symbol(name) in sizes for name in known.condition.symbols):
            continue
        with _location(known.file, known.line):
            ir.Operation.create("symshape.assume", [], [emit_condition(sizes, known.condition)])


def _location(file: str, line: int) -> ir.Location:
    if not line:
        return ir.Location.name(file) if file else ir.Location.unknown()
    return ir.Location.file(file, line, 1)


def open_guards(env: Any, sizes: Any) -> list[Known]:
    """The guards of a ShapeEnv that only we check, over the symbols that are left (``sizes``: which there are).

    What ties replaced symbols to those is in the layouts. CompileError for a guard that cannot be expressed: an entry
    without it would be taken for inputs that it is wrong for.
    """
    found: dict[Condition, Known] = {}
    for relation, (file, line) in shape_env_guards(env):
        try:
            condition = condition_from_sympy(env.replace(relation))
        except UnsupportedExpr as error:
            what = f"a guard cannot be checked: {error}"
            raise CompileError(what, where=f"{file}:{line}", next_step=_DYNAMO) from error
        missing = [name for name in condition.symbols if Expr.symbol(name) not in sizes]
        if missing:
            raise CompileError(f"no input shows {', '.join(missing)} of {condition}", where=f"{file}:{line}",
                               next_step=_DYNAMO)  # fmt: skip
        if condition != TRUE:
            found.setdefault(condition, Known(condition, file, line))
    return list(found.values())


_DYNAMO = "use symshape.compile, where Dynamo checks such guards"
