"""Folds index arithmetic with known values: ``x[arange(n)]`` becomes a plain load, which later steps can merge and
tile.

Before: index d1; muli by 1; addi 0; cmpi slt 0; select (the wrap of negative indices); check_index s1; extract.
After:  load at d0*s1 + d1, with no check and no error slot.

Zero padding becomes a masked load: a masked-out load is zero, so that its select is not needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import copysign
from operator import add, eq, ge, gt, le, lt, mul, ne, sub

from symshape.analysis.kernel_facts import SpaceFacts, space_facts
from symshape.analysis.loops import EFFECTS, Instr, LoopKernel
from symshape.prover.numbers.expr import Expr
from symshape.prover.numbers.facts import Facts

_ARITHMETIC: dict[str, Callable[[Expr, Expr], Expr]] = {"arith.addi": add, "arith.subi": sub, "arith.muli": mul}
_ORDERED: dict[str, Callable[[float, float], bool]] = {
    "oeq": eq,
    "one": ne,
    "une": ne,
    "olt": lt,
    "ole": le,
    "ogt": gt,
    "oge": ge,
}
_AT_LEAST: dict[str, Callable[[Expr, Expr], Expr]] = {  # an expression that is >= 0 exactly if the comparison holds
    "sge": lambda left, right: left - right,
    "sle": lambda left, right: right - left,
    "sgt": lambda left, right: left - right - 1,
    "slt": lambda left, right: right - left - 1,
}
_CHOICES = ("arith.cmpi", "arith.minsi", "arith.maxsi", "holds")
_CASTS = ("arith.index_cast", "arith.index_castui")
_WIDE = ("index", "i64")
_MOST_TERMS, _MOST_FACTORS = 64, 16  # limits for products: larger powers of indices are no addresses
_SMALL = 1 << 31  # limit for coefficients: with larger ones sums and products of sizes might overflow


def fold(kernel: LoopKernel, facts: SpaceFacts | None = None) -> LoopKernel:
    """The same kernel with fewer instructions; ``facts``: of the points at which it is computed, if not of all."""
    return replace(kernel, code=_used(_folded(kernel, facts).code))


def open_choices(kernel: LoopKernel, facts: SpaceFacts | None = None) -> tuple[dict[int, Expr], list[Expr]]:
    """The comparisons of indices that are not decided: for each result of a comparison an expression that is >= 0
    exactly if it holds; and for each minimum and maximum of two indices their difference."""
    if not any(instr.op in _CHOICES for instr in kernel.code):
        return {}, []
    found = _folded(kernel, facts)
    return found.holds, found.extrema


def _folded(kernel: LoopKernel, facts: SpaceFacts | None) -> _Folder:
    folder = _Folder(kernel, facts or space_facts(kernel.args, kernel.dims))
    for instr in kernel.code:
        folder.visit(instr)
    return folder


class _Folder:
    """Visits instructions and records the known values of their results.

    ``exprs``, ``conditions``, ``numbers``: results with known values. ``names``: results that equal an earlier value.
    ``zeros``: results that are +0. ``loads``: results of masked loads, with their masks. ``holds``: results of
    comparisons, as expressions that are >= 0 if they hold. ``extrema``: see `open_choices`.
    """

    def __init__(self, kernel: LoopKernel, facts: SpaceFacts) -> None:
        self.kernel, self.facts = kernel, facts
        self.code: list[Instr] = []
        self.exprs: dict[int, Expr] = {}
        self.conditions: dict[int, bool] = {}
        self.numbers: dict[int, float] = {}
        self.names: dict[int, int] = {}
        self.zeros: set[int] = set()
        self.loads: dict[int, tuple[Expr, ...]] = {}
        self.holds: dict[int, Expr] = {}
        self.extrema: list[Expr] = []

    def visit(self, instr: Instr) -> None:
        """Keeps an instruction, or records the value that replaces it."""
        instr = replace(instr, operands=tuple(self.names.get(operand, operand) for operand in instr.operands))
        facts = self.facts.row if instr.row else self.facts.full
        if instr.op == "extract":
            instr = self._read(instr)
        same = self._same(instr, facts)
        if same is not None:
            self.names[instr.results[0]] = same
            return
        self._learn(instr, facts)
        condition = self.conditions.get(instr.results[0]) if instr.results else None
        if condition is not None:
            instr = Instr("constant", instr.results, (), "i1", instr.row, value=condition)
        self.code.append(instr)

    def _read(self, instr: Instr) -> Instr:
        """Turns an extract at known indices into a load."""
        indices = [self.exprs.get(operand) for operand in instr.operands]
        address = Expr.const(0)
        for index, stride in zip(indices, self.kernel.args[instr.arg].strides, strict=True):
            if index is None:
                return instr
            address = address + index * stride
        return replace(instr, op="load", operands=(), address=address)

    def _learn(self, instr: Instr, facts: Facts) -> None:
        """Records the value of an instruction if it is known."""
        result = instr.results[0] if instr.results else -1
        match instr.op:
            case "load" if instr.mask and not self.kernel.args[instr.arg].by_value:
                self.loads[result] = instr.mask
            case "holds":
                self.holds[result] = instr.mask[0]
            case "index" if instr.address is not None:
                self.exprs[result] = instr.address
            case "constant":
                self._learn_constant(result, instr)
            case "arith.cmpf" if all(operand in self.numbers for operand in instr.operands):
                x, y = (self.numbers[operand] for operand in instr.operands)
                if instr.predicate in _ORDERED and x == x and y == y:
                    self.conditions[result] = _ORDERED[instr.predicate](x, y)
            case _:
                known = [self.exprs[operand] for operand in instr.operands if operand in self.exprs]
                if known and len(known) == len(instr.operands):
                    self._learn_of_indices(result, instr, known, facts)

    def _learn_constant(self, result: int, instr: Instr) -> None:
        value = instr.value
        if value == 0 and copysign(1, value) > 0:
            self.zeros.add(result)
        if instr.dtype == "i1":
            self.conditions[result] = bool(value)
        elif instr.dtype in _WIDE and abs(int(value or 0)) < _SMALL:
            self.exprs[result] = Expr.const(int(value or 0))
        elif isinstance(value, float):
            self.numbers[result] = value

    def _learn_of_indices(self, result: int, instr: Instr, operands: list[Expr], facts: Facts) -> None:
        """Records the value of an operation whose operands are expressions of indices and sizes."""
        if instr.op in _CASTS and instr.dtype in _WIDE:
            self.exprs[result] = operands[0]
        elif instr.op in _ARITHMETIC and instr.dtype in _WIDE:
            left, right = operands
            if instr.op == "arith.muli" and _is_large(left, right):
                return
            value = _ARITHMETIC[instr.op](left, right)
            if all(abs(coefficient) < _SMALL for coefficient, _ in value.terms):
                self.exprs[result] = value
        elif instr.op == "arith.cmpi":
            left, right = operands
            known = _decide(facts, instr.predicate, left, right)
            if known is not None:
                self.conditions[result] = known
            elif instr.predicate in _AT_LEAST:
                self.holds[result] = facts.simplify(_AT_LEAST[instr.predicate](left, right))

    def _same(self, instr: Instr, facts: Facts) -> int | None:
        """The earlier value that an instruction's result equals, or None."""
        operands, conditions = instr.operands, self.conditions
        match instr.op:
            case "check_index":
                return operands[0] if self._in_range(instr, facts) else None
            case "arith.minsi" | "arith.maxsi":
                return self._extremum(instr, facts)
            case "arith.select":
                chosen = conditions.get(operands[0])
                if chosen is not None:
                    return operands[1 if chosen else 2]
                masked = operands[2] in self.zeros and self.holds.get(operands[0]) in self.loads.get(operands[1], ())
                return operands[1] if masked else None
            case "arith.andi" | "arith.ori" if instr.dtype == "i1":
                neutral = instr.op == "arith.andi"
                for known, other in (operands, operands[::-1]):
                    if known in conditions:
                        return other if conditions[known] == neutral else known
            case "arith.xori" if instr.dtype == "i1":
                for known, other in (operands, operands[::-1]):
                    if conditions.get(known) is False:
                        return other
            case "arith.addi" | "arith.subi" if self.exprs.get(operands[1]) == 0:
                return operands[0]
            case "arith.addi" if self.exprs.get(operands[0]) == 0:
                return operands[1]
            case "arith.muli" if self.exprs.get(operands[1]) == 1:
                return operands[0]
            case "arith.muli" if self.exprs.get(operands[0]) == 1:
                return operands[1]
        return None

    def _extremum(self, instr: Instr, facts: Facts) -> int | None:
        left, right = (self.exprs.get(operand) for operand in instr.operands)
        if left is None or right is None:
            return None
        least = instr.op == "arith.minsi"
        if facts.less_equal(left, right):
            return instr.operands[0 if least else 1]
        if facts.less_equal(right, left):
            return instr.operands[1 if least else 0]
        self.extrema.append(left - right)
        return None

    def _in_range(self, instr: Instr, facts: Facts) -> bool:
        index, size = self.exprs.get(instr.operands[0]), instr.address
        if index is None or size is None:
            return False
        return facts.nonnegative(index) and facts.less_equal(index + 1, size)


def _is_large(left: Expr, right: Expr) -> bool:
    """Whether the product has more terms or factors than any useful address."""
    degrees = [max((len(atoms) for _, atoms in side.terms), default=0) for side in (left, right)]
    return len(left.terms) * len(right.terms) > _MOST_TERMS or sum(degrees) > _MOST_FACTORS


def _decide(facts: Facts, predicate: str, left: Expr, right: Expr) -> bool | None:
    """The result of a signed comparison if it is the same at all points, else None."""
    match predicate:
        case "slt":
            return _either(facts, left + 1, right)
        case "sle":
            return _either(facts, left, right)
        case "sgt":
            return _either(facts, right + 1, left)
        case "sge":
            return _either(facts, right, left)
        case "eq" | "ne" if facts.equal(left, right):
            return predicate == "eq"
        case "eq" | "ne" if facts.less_equal(left + 1, right) or facts.less_equal(right + 1, left):
            return predicate == "ne"
    return None


def _either(facts: Facts, low: Expr, high: Expr) -> bool | None:
    """True if ``low <= high`` at all points, False if at none, None if not proven."""
    if facts.less_equal(low, high):
        return True
    return False if facts.less_equal(high + 1, low) else None


def _used(code: list[Instr]) -> tuple[Instr, ...]:
    """The instructions that stores, scatters, carries and index checks depend on."""
    needed: set[int] = set()
    kept = []
    for instr in reversed(code):
        if instr.op in EFFECTS or not needed.isdisjoint(instr.results):
            kept.append(instr)
            needed.update(instr.operands)
    return tuple(reversed(kept))
