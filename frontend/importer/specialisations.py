"""Specialisations, each with its line: symbols that tracing made constant, or equal to another."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from symshape.errors import ShapeConstraintError
from symshape.frontend.bridge.shape_env import InputSizes, input_sizes, replacements, symbol_sources
from symshape.frontend.importer.shape_env_guards import Known, known_conditions
from symshape.frontend.importer.traced_symbols import facts_of, size_expr
from symshape.prover.numbers.condition import Condition, equals
from symshape.prover.numbers.expr import Expr
from symshape.prover.numbers.sympy_bridge import UnsupportedExpr, from_sympy

_SYMBOL = re.compile(r"\b[a-z]+\d+\b")
_PLAIN = (
    (re.compile(r"\b[LG]\['(\w+)'\]"), r"\1"),
    (re.compile(r"\._(?:modules|parameters|buffers)\['(\w+)'\]"), r".\1"),
    (re.compile(r"\.(size|stride)\(\)\[(\d+)\]"), r".\1(\2)"),
)


@dataclass(frozen=True)
class Specialisation:
    """``text``: the equality ("x.size(0) == 5"), ``reason``: how it came about, ``lines``: the ``file:line`` that
    caused it; empty if it was only observed at the first call."""

    text: str
    reason: str
    lines: tuple[str, ...] = ()

    def __str__(self) -> str:
        shown = [f"{line} ({text})" if (text := _line_text(line)) else line for line in self.lines]
        return f"{self.text}   {self.reason}{' ' if shown else ''}{', '.join(shown)}"


def _line_text(line: str) -> str:
    file, _, number = line.rpartition(":")
    return linecache.getline(file, int(number)).strip() if number.isdigit() else ""


def plain_source(source: str) -> str:
    """Dynamo's name of a value as the user writes it: ``L['x'].size()[0]`` is ``x.size(0)``."""
    for pattern, text in _PLAIN:
        source = pattern.sub(text, source)
    return source


def specialisations(env: Any) -> list[Specialisation]:
    """All specialisations of a trace, each once: first those to constants, then equalities of sizes."""
    if env is None:
        return []
    names = _names(env)
    found = [*_first_call(env), *_replaced(env, names), *_guarded(env, names), *_joint(env), *_duck(env)]
    first: dict[str, Specialisation] = {}
    for one in found:
        first.setdefault(one.text, one)
    return list(first.values())


def check_marked(env: Any) -> None:
    """ShapeConstraintError for a size that the user marked dynamic and that several lines together leave one value.

    PyTorch sees it only where a single line pins the size (pytorch/pytorch issue 191833).
    """
    for tensor in input_sizes(env) if env is not None else ():
        for dim in tensor.marked:
            value = _only_value(env, tensor.sizes[dim])
            if value is not None:
                name = f"{plain_source(tensor.source)}.size({dim})"
                lines = dict.fromkeys(_line(one) for one in _reasons(env, tensor, dim))
                listed = "".join(f"\n    {line}: {_line_text(line)}" for line in lines)
                raise ShapeConstraintError(
                    f"{name} is marked dynamic, but these lines together leave it the value {value} only:{listed}",
                    next_step=f"do not mark {name}: each such size then has a graph of its own; or write the branches "
                    "as tensor operations (torch.where, torch.cond)",
                )


def _names(env: Any) -> dict[str, str]:
    return {str(s): plain_source(sources[0]) for s, sources in symbol_sources(env).items() if sources}


def _text(condition: Condition, names: Mapping[str, str]) -> str:
    return _SYMBOL.sub(lambda match: names.get(match[0], match[0]), str(condition))


def _first_call(env: Any) -> Iterator[Specialisation]:
    for tensor in input_sizes(env):
        for dim in tensor.small:
            text = f"{plain_source(tensor.source)}.size({dim}) == {tensor.sizes[dim]}"
            yield Specialisation(
                text,
                "as at the first call: sizes 0 and 1 have graphs of their own (symshape.compile makes them symbols)",
            )


def _replaced(env: Any, names: Mapping[str, str]) -> Iterator[Specialisation]:
    """Symbols that the ShapeEnv has replaced because of an equality."""
    for symbol, value, (file, line) in replacements(env):
        try:
            condition = equals(Expr.symbol(str(symbol)), from_sympy(value))
        except UnsupportedExpr:
            continue
        name = names.get(str(symbol), str(symbol))
        right = _SYMBOL.sub(lambda match: names.get(match[0], match[0]), str(from_sympy(value)))
        if condition.as_bool() is None:
            yield Specialisation(f"{name} == {right}", "pinned at", (f"{file}:{line}",) if file else ())


def _guarded(env: Any, names: Mapping[str, str]) -> Iterator[Specialisation]:
    """Equality guards that PyTorch cannot solve for a symbol. Without divisibility, which specialises nothing, and
    without those implied by other conditions."""
    solved = {str(symbol) for symbol, _, _ in replacements(env)}
    everything = known_conditions(env)
    for known in everything:
        parts = known.condition.operands if known.condition.kind == "and" else (known.condition,)
        for part in parts:
            if part.kind != "eq" or "%" in str(part) or part.symbols & solved:
                continue
            if not facts_of(env, [other for other in everything if other is not known]).equal(part.expr, 0):
                yield Specialisation(_text(part, names), "pinned at", (_line(known),))


def _joint(env: Any) -> Iterator[Specialisation]:
    for tensor in input_sizes(env):
        for dim, size in enumerate(tensor.sizes):
            value = _only_value(env, size)
            if value is not None:
                lines = tuple(dict.fromkeys(_line(one) for one in _reasons(env, tensor, dim)))
                text = f"{plain_source(tensor.source)}.size({dim}) == {value}"
                yield Specialisation(text, "pinned together at", lines)


def _duck(env: Any) -> Iterator[Specialisation]:
    """Sizes that were equal at the first call and share a symbol."""
    for sources in symbol_sources(env).values():
        first, *others = map(plain_source, sources)
        for other in others:
            yield Specialisation(f"{other} == {first}", "equal at the first call (symshape.compile keeps them apart)")


def _only_value(env: Any, size: Any) -> int | None:
    """The one value that is left for a size that is still symbolic."""
    try:
        expr = size_expr(size)
    except UnsupportedExpr:
        return None
    low, high = (None, None) if expr.as_int() is not None else facts_of(env).bounds(expr)
    return low if low == high else None


def _reasons(env: Any, tensor: InputSizes, dim: int) -> Sequence[Known]:
    """A minimal set of conditions that leave a size only one value."""
    size = size_expr(tensor.sizes[dim])
    kept = known_conditions(env)
    for one in tuple(kept):
        rest = [other for other in kept if other is not one]
        low, high = facts_of(env, rest).bounds(size)
        if low is not None and low == high:
            kept = rest
    return kept


def _line(known: Known) -> str:
    return f"{known.file}:{known.line}"
