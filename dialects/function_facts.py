"""Reads the facts about a function's symbols for the prover."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from symshape.dialects.accessors import symbol_hint, symbol_name, symbol_range
from symshape.dialects.conditions import read_condition
from symshape.dialects.sizes import Sizes
from symshape.dialects.symbols import SYMBOLS
from symshape.prover.numbers.condition import Condition
from symshape.prover.numbers.decided import learn
from symshape.prover.numbers.facts import INT64_MAX, Facts, Row


def facts_of(function: Any, sizes: Sizes | None = None) -> Facts:
    """Facts from symbol rows, from every ``symshape.assume`` and ``symshape.guard`` of the function's entry block, and
    from every ``symshape.expect_true`` that is checked before anything that could rely on it runs.

    ``sizes``: those of the whole entry block, where they have been read already.
    """
    block = function.regions[0].blocks[0]
    operations = [(op.name, op) for view in block.operations for op in (view.operation,)]
    if sizes is None:
        sizes = Sizes(block)
        sizes.learn(op for _, op in operations)
    facts = Facts({symbol_name(op): row_of(op) for name, op in operations if name in SYMBOLS})
    for condition in known_conditions(operations, sizes):
        learn(facts, condition)
    return facts


def known_conditions(operations: Sequence[tuple[str, Any]], sizes: Sizes) -> list[Condition]:
    """The conditions that hold everywhere in a function, in addition to the ranges of symbols. ``operations``: of its
    entry block, with their names."""
    known = [
        c for name, op in operations if name in _KNOWN and (c := read_condition(sizes, op.operands[0])) is not None
    ]
    return [*known, *_checked_in_time(sizes, operations, known)]


def _checked_in_time(
    sizes: Sizes, operations: Sequence[tuple[str, Any]], known: Sequence[Condition]
) -> list[Condition]:
    """Checks before which nothing runs that has one of their symbols, or a symbol that a condition ties to those.

    Facts hold for the whole function, and nothing may be compiled with a fact that is checked only after it has run.
    ``operations``: with their names.
    """
    checks: list[tuple[Condition, frozenset[str]]] = []
    used: set[str] = set()
    last = max((i for i, (name, _) in enumerate(operations) if name == _CHECK), default=-1)
    for name, op in operations[: last + 1]:
        if name == _CHECK:
            condition = read_condition(sizes, op.operands[0])
            if condition is not None:
                checks.append((condition, frozenset(used)))
        elif name not in _NO_WORK and not name.startswith("arith."):
            used |= _symbols_of(sizes, op)
    ties = [condition.symbols for condition in (*known, *(check for check, _ in checks))]
    return [condition for condition, before in checks if before.isdisjoint(_tied(condition.symbols, ties))]


def _tied(symbols: frozenset[str], ties: Sequence[frozenset[str]]) -> frozenset[str]:
    """The symbols, and all that conditions connect them with."""
    while True:
        larger = symbols.union(*(tie for tie in ties if not tie.isdisjoint(symbols)))
        if larger == symbols:
            return symbols
        symbols = larger


def _symbols_of(sizes: Sizes, op: Any) -> set[str]:
    """The symbols in the layouts and sizes of an operation's operands and results."""
    found: set[str] = set()
    for value in (*op.operands, *op.results):
        layout = sizes.layouts.get(value)
        exprs = [sizes.expr(value)] if value in sizes else []
        exprs += [*layout.sizes, *layout.strides, layout.offset] if layout is not None else []
        for expr in exprs:
            found |= expr.symbols
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                found |= _symbols_of(sizes, inner.operation)
    return found


_CHECK = "symshape.expect_true"
_KNOWN = ("symshape.assume", "symshape.guard")  # a guard is checked before anything runs
_NO_WORK = frozenset({*SYMBOLS, "symshape.bind", *_KNOWN})


def row_of(op: Any) -> Row:
    """The range, the divisor and the size first seen that a symbol's op states."""
    low, high, divisor = symbol_range(op)
    return Row(None if low <= -INT64_MAX else low, None if high >= INT64_MAX else high, divisor, symbol_hint(op))
