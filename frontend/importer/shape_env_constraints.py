"""Imports a ShapeEnv: facts become ``assume``, deferred assertions ``expect_true``, each with the user's line."""

from __future__ import annotations

import contextlib
from typing import Any

from torch_mlir import ir

from symshape.dialects.conditions import emit_condition
from symshape.dialects.sizes import Sizes
from symshape.frontend.bridge.trace_without_dynamo import guards_are_ours
from symshape.frontend.importer.shape_env_guards import known_conditions, open_guards
from symshape.prover.numbers.condition import Condition
from symshape.prover.numbers.expr import Expr


def import_constraints(sizes: Sizes, env: Any, guards_hold: bool = False) -> None:
    """Emits one ``symshape.assume`` for each distinct guard whose symbols this graph defines.

    Dynamo checks these guards before the compiled code runs, so here they are facts. A guard over symbols of another
    graph is left out. If compiled code itself must check them (``symshape.jit``) they are ``symshape.guard``, unless
    ``guards_hold``: another graph has checked them. Conditions on floats are not in the IR, which has sizes only; the
    entry checks them all the same (``symshape.traced_entry``).
    """
    if guards_are_ours(env) and not guards_hold:
        for constraint in open_guards(env, sizes):
            if constraint.condition.has_reals:
                continue
            with _location(constraint.file, constraint.line):
                attributes = {"reason": ir.StringAttr.get("decided while tracing")}
                ir.Operation.create("symshape.guard", [], [emit_condition(sizes, constraint.condition)], attributes)
        return
    import_facts(sizes, env)


def import_facts(sizes: Sizes, env: Any, predicate: Condition | None = None) -> None:
    """The guards of the graph as facts, and the predicate of the branch that this is."""
    for known in known_conditions(env):
        if not all(Expr.symbol(name) in sizes for name in known.condition.symbols):
            continue
        with _location(known.file, known.line), contextlib.suppress(OverflowError):  # a number of more than 64 bits
            ir.Operation.create("symshape.assume", [], [emit_condition(sizes, known.condition)])
    if predicate is not None and all(Expr.symbol(name) in sizes for name in predicate.symbols):
        ir.Operation.create("symshape.assume", [], [emit_condition(sizes, predicate)])


def _location(file: str, line: int) -> ir.Location:
    if not line:
        return ir.Location.name(file) if file else ir.Location.unknown()
    return ir.Location.file(file, line, 1)
