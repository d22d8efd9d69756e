"""Integer division that never traps: eager's ZeroDivisionError becomes code 2 in the error slot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from symshape.codegen.cpu import memory
from symshape.codegen.cpu.state import State
from symshape.codegen.loops import Instr


@dataclass
class _Integers:
    """Short names for operations on one integer type."""

    state: State
    element: str
    uniform: bool

    @property
    def type_(self) -> str:
        return self.element if self.uniform else self.state.vector(self.element)

    def constant(self, value: int) -> str:
        return self.state.constant(value, self.element) if self.uniform else self.state.splat(value, self.element)

    def op(self, name: str, left: str, right: str) -> str:
        return self.state.writer.pure(f"arith.{name} {left}, {right} : {self.type_}")

    def compare(self, predicate: str, left: str, right: str) -> str:
        return self.state.writer.pure(f"arith.cmpi {predicate}, {left}, {right} : {self.type_}")

    def both(self, name: str, left: str, right: str) -> str:
        return self.state.writer.pure(f"arith.{name} {left}, {right} : {self.bools}")

    @property
    def bools(self) -> str:
        return "i1" if self.uniform else self.state.vector("i1")

    def select(self, condition: str, left: str, right: str) -> str:
        prefix = "" if self.uniform else f"{self.bools}, "
        return self.state.writer.pure(f"arith.select {condition}, {left}, {right} : {prefix}{self.type_}")


def _divide(kind: str, state: State, instr: Instr, names: list[str], element: str, uniform: bool) -> str:
    integers = _Integers(state, element, uniform)
    left, divisor = names
    zero, one = integers.constant(0), integers.constant(1)
    by_zero = integers.compare("eq", divisor, zero)
    memory.report(state, by_zero, uniform=uniform, code=2)
    replaced = by_zero
    if not kind.endswith("ui"):  # the quotient of the least number and -1 traps too; by 1 it is what wrapping gives
        least = integers.compare("eq", left, integers.constant(-1 << (int(element[1:]) - 1)))
        minus_one = integers.compare("eq", divisor, integers.constant(-1))
        replaced = integers.both("ori", by_zero, integers.both("andi", least, minus_one))
    right = integers.select(replaced, one, divisor)
    return _KINDS[kind](integers, left, right)


def _quotient(integers: _Integers, signed: str, left: str, right: str) -> str:
    """The truncated quotient. Vectors of up to 32 bits divide in f64, which is exact; x86 has no integer form."""
    width = int(integers.element[1:])
    if integers.uniform or width > 32:
        return integers.op(f"div{signed}", left, right)
    state, vector, double = integers.state, integers.type_, integers.state.vector("f64")
    convert, back = ("sitofp", "fptosi") if signed == "si" else ("uitofp", "fptoui")
    pure = state.writer.pure
    quotient = pure(f"arith.divf {pure(f'arith.{convert} {left} : {vector} to {double}')}, "
                    f"{pure(f'arith.{convert} {right} : {vector} to {double}')} : {double}")
    if width == 32:
        return pure(f"arith.{back} {quotient} : {double} to {vector}")
    wide = state.vector("i32")
    return pure(f"arith.trunci {pure(f'arith.fptosi {quotient} : {double} to {wide}')} : {wide} to {vector}")


def _rest(integers: _Integers, quotient: str, left: str, right: str) -> str:
    return integers.op("subi", left, integers.op("muli", quotient, right))


def _truncate(signed: str, integers: _Integers, left: str, right: str) -> str:
    return _quotient(integers, signed, left, right)


def _remainder(signed: str, integers: _Integers, left: str, right: str) -> str:
    return _rest(integers, _quotient(integers, signed, left, right), left, right)


def _rounded(correction: str, integers: _Integers, left: str, right: str) -> str:
    """Rounded down ("subi": when rest and divisor differ in sign) or up ("addi": when they agree)."""
    quotient = _quotient(integers, "si", left, right)
    rest, zero = _rest(integers, quotient, left, right), integers.constant(0)
    predicate = "slt" if correction == "subi" else "sge"
    signs = integers.compare(predicate, integers.op("xori", rest, right), zero)
    wrong = integers.both("andi", signs, integers.compare("ne", rest, zero))
    return integers.select(wrong, integers.op(correction, quotient, integers.constant(1)), quotient)


_KINDS: dict[str, Callable[[_Integers, str, str], str]] = {
    "divsi": partial(_truncate, "si"),
    "divui": partial(_truncate, "ui"),
    "remsi": partial(_remainder, "si"),
    "remui": partial(_remainder, "ui"),
    "floordivsi": partial(_rounded, "subi"),
    "ceildivsi": partial(_rounded, "addi"),
}

OPERATIONS = {f"arith.{kind}": partial(_divide, kind) for kind in _KINDS}
