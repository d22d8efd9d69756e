"""Builds the instruction list of a loop program, with hoisting to row level, CSE and removal of dead code."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from symshape.analysis.loops import EFFECTS, INTEGER_DIVISIONS, Instr
from symshape.artifact.element_types import HALF
from symshape.errors import KernelError
from symshape.prover.numbers.expr import Expr

# Never hoisted: at row level they would also run for a row without elements, and trap on a zero divisor.
_NOT_HOISTED: Final = (
    frozenset({"reduce", "store", "scatter", "carried", "element", "carry", "scanned", "check_index", "extract"})
    | INTEGER_DIVISIONS
)


class InstrBuilder:
    """Appends instructions in dependence order. Equal instructions are merged; row-invariant ones move to row level."""

    def __init__(self, reduced: frozenset[str], simplify: Callable[[Expr, bool], Expr]) -> None:
        self.code: list[Instr] = []
        self.simplify = simplify
        self._reduced = reduced
        self._known: dict[tuple[Any, ...], Instr] = {}
        self._made: list[Instr] = []  # by value, the instruction that defines it
        self._rounded: set[int] = set()  # values whose rounding to a half type must be kept

    def emit(
        self, op: str, operands: tuple[int, ...], dtype: str, *, row: bool = False, results: int = 1, **fields: Any
    ) -> int:
        """Appends an instruction, or finds an equal one; returns its (first) value, -1 without results. At row level if
        ``row`` requires it, or if it depends on row-level values only."""
        if row and not all(self.is_row(value) for value in operands):
            raise KernelError(f"a row-level {op} uses a full-level value", next_step="this is a bug of the fusion pass")
        row = row or self._hoists(op, operands, fields)
        key = (op, operands, dtype, row, *((name, _key(value)) for name, value in sorted(fields.items())))
        known = self._known.get(key)
        if known is not None:
            return known.results[0] if known.results else -1
        first = len(self._made)
        instr = Instr(op, tuple(range(first, first + results)), operands, dtype, row, **fields)
        self.code.append(instr)
        self._made.extend([instr] * results)
        self._known[key] = instr
        return first if results else -1

    def is_row(self, value: int) -> bool:
        instr = self._made[value]
        return instr.row or (bool(self._reduced) and instr.op == "reduce")

    def index(self, expr: Expr, *, row: bool = False) -> int:
        return self.emit("index", (), "index", row=row, address=self.simplify(expr, row))

    def cast(self, op: str, value: int, source: str, dtype: str, *, row: bool = False, for_good: bool = False) -> int:
        """A cast. A value rounded to a half type and widened again stays the original float32: kernels round at stores,
        and where the program requires it (``for_good``)."""
        maker = self._made[value]
        undoes = {"arith.extf": "arith.truncf", "arith.truncf": "arith.extf"}.get(op)
        exact = op == "arith.truncf" or (source in HALF and dtype == "f32")
        kept = value in self._rounded and op == "arith.extf"
        if undoes is not None and maker.op == undoes and maker.source_dtype == dtype and exact and not kept:
            return maker.operands[0]
        result = self.emit(op, (value,), dtype, row=row, source_dtype=source)
        if for_good:
            self._rounded.add(result)
        return result

    def _hoists(self, op: str, operands: tuple[int, ...], fields: dict[str, Any]) -> bool:
        if not self._reduced or op in _NOT_HOISTED or not all(self.is_row(value) for value in operands):
            return False
        address = fields.get("address")
        exprs = (*fields.get("mask", ()), *(() if address is None else (address,)))
        return all(self._reduced.isdisjoint(expr.symbols) for expr in exprs)

    def finish(self) -> tuple[Instr, ...]:
        """The code without dead instructions, values numbered from 0 in order."""
        return drop_dead(self.code)


def drop_dead(code: Iterable[Instr]) -> tuple[Instr, ...]:
    """Keeps the instructions that those with effects depend on, and renumbers values from 0 in order."""
    code = tuple(code)
    needed: set[int] = set()
    live: list[Instr] = []
    for instr in reversed(code):
        if instr.op in EFFECTS or not needed.isdisjoint(instr.results):
            needed.update(instr.operands)
            live.append(instr)
    numbers: dict[int, int] = {}
    result: list[Instr] = []
    for instr in reversed(live):
        operands = tuple(numbers[value] for value in instr.operands)
        for value in instr.results:
            numbers[value] = len(numbers)
        results = tuple(numbers[value] for value in instr.results)
        unchanged = operands == instr.operands and results == instr.results
        result.append(instr if unchanged else replace(instr, operands=operands, results=results))
    return tuple(result)


def _key(value: Any) -> Any:
    """A key for comparing constants by text: -0.0 differs from 0.0, True from 1, and nan equals itself."""
    return repr(value) if isinstance(value, (bool, int, float)) else value
