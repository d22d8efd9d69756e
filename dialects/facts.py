"""What a function says of its symbols, as the prover's facts."""

from __future__ import annotations

from typing import Any

from torch_mlir import ir

from symshape.dialects.conditions import read_condition
from symshape.dialects.sizes import Sizes
from symshape.prover.facts import Facts, Row

INT64_MAX = 2**63 - 1


def facts_of(function: Any) -> Facts:
    """Facts from symbol rows and from every ``symshape.assume`` of the function's entry block."""
    block = function.regions[0].blocks[0]
    operations = [view.operation for view in block.operations]
    sizes = Sizes(block)
    sizes.learn(operations)
    rows = {}
    for op in operations:
        if op.name in ("symshape.symbol", "symshape.unbacked_symbol"):
            rows[ir.StringAttr(op.attributes["name"]).value] = row_of(op)
    facts = Facts(rows)
    for op in operations:
        if op.name in ("symshape.assume", "symshape.guard"):  # a guard is checked before anything runs
            condition = read_condition(sizes, op.operands[0])
            if condition is not None:
                assume(facts, condition)
    return facts


def assume(facts: Facts, condition: Any) -> None:
    """Adds a condition to the facts, as far as they can hold it: conjunctions of == and >=."""
    if condition.kind == "and":
        for part in condition.operands:
            assume(facts, part)
    elif condition.kind == "eq":
        facts.assume_equal(condition.expr, 0)
    elif condition.kind == "ge":
        facts.assume_nonnegative(condition.expr)


def row_of(op: Any) -> Row:
    """The range and divisor that a symbol's op states."""
    low, high = ir.IntegerAttr(op.attributes["min"]).value, ir.IntegerAttr(op.attributes["max"]).value
    divisor = ir.IntegerAttr(op.attributes["divisor"]).value if "divisor" in op.attributes else 1
    return Row(None if low <= -INT64_MAX else low, None if high >= INT64_MAX else high, divisor)
