"""Builds a guard stub by itself, for measurements: a function that binds symbols and checks them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from symshape.artifact.constraint_checks import CheckText
from symshape.codegen.host.guard_stub import Constraint, check_lines, check_texts
from symshape.prover.numbers.condition import at_least
from symshape.prover.numbers.expr import Expr


@dataclass(frozen=True)
class Binding:
    """A symbol, the Python text that reads its value, where that is in the user's terms (see ``Origin.parse``), and its
    inclusive bounds where it has any."""

    symbol: str
    reading: str
    source: str = ""
    minimum: int | None = None
    maximum: int | None = None


@dataclass(frozen=True)
class StubText:
    """``source`` defines ``stub(...)`` of the arguments that it was made for; it calls ``fail(values)``."""

    source: str
    checks: tuple[CheckText, ...]


def emit_stub(arguments: Sequence[str], bindings: Sequence[Binding], constraints: Sequence[Constraint]) -> StubText:
    """``stub(args)``: unpacks ``args`` into the named arguments, binds the symbols, checks bounds and constraints."""
    checked = [*bounds(bindings), *constraints]
    sources = {binding.symbol: binding.source for binding in bindings}
    lines = ["def stub(args):"]
    if arguments:
        lines.append(f"    {', '.join(arguments)}{',' if len(arguments) == 1 else ''} = args")
    lines += [f"    {b.symbol} = {b.reading}" for b in bindings if b.reading != b.symbol]
    lines += [f"    {line}" for line in check_lines(checked, "fail({values})")]
    return StubText("\n".join([*lines, "    return None"]) + "\n", check_texts(checked, sources))


def bounds(bindings: Sequence[Binding]) -> list[Constraint]:
    """The declared ranges as constraints."""
    found = []
    for binding in bindings:
        symbol, message = Expr.symbol(binding.symbol), "outside the declared range"
        if binding.minimum is not None:
            found.append(Constraint(at_least(symbol, binding.minimum), message))
        if binding.maximum is not None:
            found.append(Constraint(at_least(binding.maximum, symbol), message))
    return found
