"""Converts guards and runtime assertions of a ShapeEnv to conditions, each with its line. Imports no MLIR."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from symshape.errors import CompileError
from symshape.frontend.bridge.guards import deferred_runtime_asserts, is_about_rows, shape_env_guards
from symshape.prover.numbers.condition import TRUE, Condition
from symshape.prover.numbers.expr import Expr
from symshape.prover.numbers.real_conditions import real_condition_from_sympy
from symshape.prover.numbers.sympy_bridge import UnsupportedExpr, condition_from_sympy


@dataclass(frozen=True)
class Known:
    """A condition that holds whenever the compiled code runs, and its source line."""

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


def open_guards(env: Any, sizes: Any) -> list[Known]:
    """The guards of a ShapeEnv that only we check, over the symbols that are left (``sizes``: which there are).

    What ties replaced symbols to those is in the layouts. A guard that floats decide is Python source. CompileError for
    a guard that cannot be expressed: an entry without it would be taken for inputs that it is wrong for.
    """
    found: dict[Condition, Known] = {}
    for guard, (file, line) in shape_env_guards(env):
        relation = env.replace(guard)
        if is_about_rows(env, relation):
            continue
        try:
            condition = _checkable(relation)
        except UnsupportedExpr as error:
            what = f"a guard cannot be expressed: {error}"
            raise CompileError(what, where=f"{file}:{line}", next_step=_DYNAMO) from error
        missing = [name for name in condition.symbols if Expr.symbol(name) not in sizes]
        if missing:
            what = f"`{condition}` cannot be checked: no input has {', '.join(missing)} as a size"
            raise CompileError(what, where=f"{file}:{line}", next_step=_DYNAMO)
        if condition != TRUE:
            found.setdefault(condition, Known(condition, file, line))
    return list(found.values())


def _checkable(relation: Any) -> Condition:
    try:
        return condition_from_sympy(relation)
    except UnsupportedExpr:
        return real_condition_from_sympy(relation)


_DYNAMO = "use symshape.compile, where Dynamo checks such guards"
