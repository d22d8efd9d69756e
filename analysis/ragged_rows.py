"""Ragged rows: reductions in which a condition on the index replaces points beyond a row's end by a constant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from symshape.analysis.loops import EFFECTS, Instr
from symshape.prover.numbers.expr import Expr

_CASTS: Final = frozenset({"arith.extf", "arith.truncf"})
_NEUTRAL: Final = {"add": 0, "mul": 1}
_IDEMPOTENT: Final = frozenset({"max", "min", "or", "and"})


@dataclass(frozen=True)
class RaggedRow:
    """The points of a row that contribute to a reduction: those at index ``i`` along the dim with ``start + i < stop``.

    ``start``, ``stop``: values that are constant along the row; no ``start`` means 0. ``code``: the full-level
    instructions that compute them. ``padded``: one point beyond the end, if there is one, contributes too.
    """

    code: tuple[Instr, ...]
    start: int | None
    stop: int
    padded: bool


def ragged_row(code: Sequence[Instr], rows: Iterable[Instr], dim: str, along: frozenset[str]) -> RaggedRow | None:
    """The ragged row of a sweep with full-level instructions ``code``, so that a loop can end early. Each reduction
    must be of ``select(start + i < stop, value, constant)``, where repeating the constant changes nothing: 0 for sums,
    1 for products, any for extrema. ``rows``: instructions of row-level values; ``along``: the dims that vary in the
    sweep.

    None if no such form is found, or if skipping points would drop an effect: an index check or a store.
    """
    if not any(instr.op == "arith.select" for instr in code):
        return None  # the common case, without further work
    made = {number: instr for instr in (*rows, *code) for number in instr.results}
    varying = _varying(made.values(), along)
    if any(i.op in EFFECTS and (i.op != "check_index" or not varying.isdisjoint(i.results)) for i in code):
        return None
    conditions, padded = set(), False
    for reduce in (instr for instr in code if instr.op == "reduce"):
        chosen = made[reduce.operands[0]]
        while chosen.op in _CASTS:
            chosen = made[chosen.operands[0]]
        if chosen.op != "arith.select" or made[chosen.operands[2]].op != "constant":
            return None
        neutral = _NEUTRAL.get(reduce.combiner, None) == made[chosen.operands[2]].value
        if not neutral and reduce.combiner not in _IDEMPOTENT:
            return None
        padded |= not neutral
        conditions.add(chosen.operands[0])
    if len(conditions) != 1:
        return None
    compared = made[conditions.pop()]
    if (compared.op, compared.predicate) != ("arith.cmpi", "slt") or compared.source_dtype not in ("i64", "index"):
        return None
    position, stop = compared.operands
    found, start = _start(made, position, dim, varying)
    if not found or stop in varying:
        return None
    wanted = [number for number in (start, stop) if number is not None]
    return RaggedRow(_needed(code, wanted), start, stop, padded)


def _varying(code: Iterable[Instr], along: frozenset[str]) -> frozenset[int]:
    """Values that vary along these dims."""
    found: set[int] = set()
    for instr in code:
        mentioned = instr.address.symbols if instr.address is not None else frozenset()
        mentioned = mentioned.union(*(e.symbols for e in instr.mask))
        if instr.op == "reduce" or not along.isdisjoint(mentioned) or not found.isdisjoint(instr.operands):
            found.update(instr.results)
    return frozenset(found)


def _start(made: dict[int, Instr], position: int, dim: str, varying: frozenset[int]) -> tuple[bool, int | None]:
    """Whether a value is the index along ``dim`` plus a row-constant value, and that value (None for 0)."""
    if _is_index(made, position, dim):
        return True, None
    instr = made[position]
    if instr.op == "arith.addi" and instr.dtype in ("i64", "index"):
        for start, index in (instr.operands, instr.operands[::-1]):
            if start not in varying and _is_index(made, index, dim):
                return True, start
    return False, None


def _is_index(made: dict[int, Instr], number: int, dim: str) -> bool:
    instr = made[number]
    while instr.op == "arith.index_cast" and {instr.dtype, instr.source_dtype} <= {"i64", "index"}:
        instr = made[instr.operands[0]]
    return instr.op == "index" and instr.address == Expr.symbol(dim)


def _needed(code: Sequence[Instr], wanted: Sequence[int]) -> tuple[Instr, ...]:
    """The instructions that compute these values, in order."""
    numbers, found = set(wanted), []
    for instr in reversed(code):
        if not numbers.isdisjoint(instr.results):
            numbers.update(instr.operands)
            found.append(instr)
    return tuple(reversed(found))
