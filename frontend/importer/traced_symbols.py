"""The symbols of a traced graph: ranges, facts, and where their values are read."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch

from symshape.errors import CompileError
from symshape.frontend.bridge.guards import guard_counts
from symshape.frontend.bridge.shape_env import env_of_size, symbol_hint, symbol_range, symbol_source, symbols_of
from symshape.frontend.bridge.symbolic_sizes import expression_of
from symshape.frontend.importer.shape_env_guards import Known, known_conditions
from symshape.prover.numbers.decided import learn
from symshape.prover.numbers.expr import Expr, has_functions
from symshape.prover.numbers.facts import INT64_MAX, Facts, Row
from symshape.prover.numbers.sympy_bridge import from_sympy
from symshape.runtime.torch_c import first_seen


@dataclass(frozen=True)
class SymbolRow:
    """A backed symbol: inclusive bounds, hint (-1: none), the framework's name, and its binding: where it is read."""

    name: str
    min: int
    max: int
    hint: int
    source: str
    binding: str


class _Names:
    """The names of symbols. An integer function that size expressions lack (``int(0.3 * s0)``) is a symbol too, named
    after its text, and defined where it is computed or is a size."""

    def __call__(self, symbol: Any) -> str:
        return str(symbol)

    def opaque(self, expr: Any) -> str:
        return f"z{hashlib.sha1(str(expr).encode()).hexdigest()[:8]}"


_NAMES = _Names()


def size_expr(value: Any) -> Expr:
    """An int or SymInt as an expression; 1 where the guards leave no other value.

    PyTorch replaces a symbol that a guard specialises, but not an expression. That a size is 1 must be known, since
    such a dim broadcasts (``x.view(-1, 4) * y`` for an x of 4 elements).
    """
    if type(value) is int or not isinstance(value, torch.SymInt):
        return Expr.const(value)
    expr, divides = _read(expression_of(value))
    return Expr.const(1) if divides and _is_one(value, expr) else expr


@functools.lru_cache(maxsize=1 << 13)
def _read(expr: Any) -> tuple[Expr, bool]:
    """An expression, and whether it contains functions. Cached: each size of a graph occurs in the layouts of many
    tensors."""
    named = named_expr(expr)
    return named, has_functions(named)


def named_expr(expr: Any) -> Expr:
    """An integer expression of the tracer, with a symbol for each part that is computed via floats."""
    return from_sympy(expr, _NAMES)


def _is_one(value: torch.SymInt, expr: Expr) -> bool:
    hint = first_seen(value)
    return hint in (None, 1) and facts_of(env_of_size(value)).equal(expr, 1)


# By ShapeEnv: how much it knew, and the facts of that.
_FACTS: WeakKeyDictionary[Any, tuple[int, Facts]] = WeakKeyDictionary()


def facts_of(env: Any, conditions: Sequence[Known] | None = None) -> Facts:
    """The facts of the guards and runtime assertions so far; or only of ``conditions``."""
    if conditions is not None:
        return _facts(env, conditions)
    guards, _, asserted = guard_counts(env)
    state = guards + asserted  # neither list ever shrinks
    known = _FACTS.get(env)
    if known is None or known[0] != state:
        known = _FACTS[env] = state, _facts(env, known_conditions(env, asserted=True))
    return known[1]


def _facts(env: Any, conditions: Sequence[Known]) -> Facts:
    symbols = symbols_of(env).items()
    facts = Facts({name: Row(*symbol_range(env, one), seen=symbol_hint(env, one)) for name, one in symbols})
    for one in conditions:
        learn(facts, one.condition)
    return facts


def layout_of(tensor: torch.Tensor) -> tuple[list[Expr], list[Expr], Expr] | None:
    """Sizes, strides and storage offset; None for a tensor without strides (sparse, mkldnn)."""
    if tensor.layout != torch.strided:
        return None
    sizes = [size_expr(s) for s in tensor.size()]
    return sizes, [size_expr(s) for s in tensor.stride()], size_expr(tensor.storage_offset())


def _readings(values: list[Any]) -> Iterable[tuple[str, Expr]]:
    """All places where a call's inputs have an integer: sizes first, then integer arguments, then strides and offsets.
    (An argument may be a stride equal to a size, which no guard checks for a dim of size 1 or an empty tensor.)"""
    layouts = [(i, layout_of(value)) for i, value in enumerate(values) if isinstance(value, torch.Tensor)]
    known = [(i, layout) for i, layout in layouts if layout is not None]
    for i, (sizes, _, _) in known:
        yield from ((f"arg{i}.size({d})", s) for d, s in enumerate(sizes))
    for i, value in enumerate(values):
        if isinstance(value, torch.SymInt):
            yield f"arg{i}", size_expr(value)
    for i, (_, strides, offset) in known:
        yield from ((f"arg{i}.stride({d})", s) for d, s in enumerate(strides))
        yield f"arg{i}.offset", offset


def collect_symbols(
    values: list[Any], env: Any, *, all_needed: bool = True, offsets_needed: bool = True
) -> list[SymbolRow]:
    """One row per free symbol of the inputs, in order of occurrence.

    Raises CompileError for a symbol that occurs only inside expressions from which it cannot be solved; without
    ``all_needed`` it is left out. Without ``offsets_needed`` an unbacked symbol that only offsets of inputs have is
    bound to one of these offsets: where an input starts then affects no result, since kernels and views count from
    there. (A tangent is traced with the offset of an output, which it does not have.)
    """
    bindings: dict[str, str] = {}
    needed: dict[str, str] = {}
    for reading, expr in _readings(values):
        for name in sorted(expr.symbols):
            needed.setdefault(name, reading)
            if expr == Expr.symbol(name):
                bindings.setdefault(name, reading)
    for reading, expr in _readings(values):
        solved = None if bindings.keys() >= expr.symbols else _solved(expr, reading)
        if solved:
            bindings.setdefault(*solved)
    symbols, loose = symbols_of(env), {}
    for name in needed if all_needed else ():
        if name in bindings:
            continue
        if not offsets_needed and needed[name].endswith(".offset") and symbol_hint(env, symbols.get(name)) is None:
            loose[name] = SymbolRow(name, -INT64_MAX, INT64_MAX, -1, "", needed[name])
        else:
            raise CompileError(
                f"symbol {name} cannot be read from any input",
                where=f"{needed[name]} of the graph",
                next_step="pass a tensor or integer whose size is the symbol itself",
            )
    return [*(_row(name, symbols.get(name), env, binding) for name, binding in bindings.items()), *loose.values()]


def _solved(expr: Expr, reading: str) -> tuple[str, str] | None:
    """(symbol, where it is read) for a size such as ``2 * s0 + 4``, solved for the symbol: a tangent's size may be the
    only occurrence."""
    if len(expr.symbols) != 1 or has_functions(expr) or reading.endswith(".offset"):
        return None
    (name,) = expr.symbols
    rest = expr.evaluate({name: 0})
    factor = expr.evaluate({name: 1}) - rest
    if expr != Expr.symbol(name) * factor + rest or factor == 0:
        return None
    return name, f"({reading} - {rest}) // {factor}"


def _row(name: str, symbol: Any, env: Any, binding: str) -> SymbolRow:
    if symbol is None:
        return SymbolRow(name, -INT64_MAX, INT64_MAX, -1, "", binding)
    low, high = symbol_range(env, symbol)
    hint = symbol_hint(env, symbol)
    return SymbolRow(
        name,
        -INT64_MAX if low is None else low,
        INT64_MAX if high is None else high,
        -1 if hint is None else hint,
        symbol_source(env, symbol),
        binding,
    )
