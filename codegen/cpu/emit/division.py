"""Integer division that never traps: eager's ZeroDivisionError becomes code 2 in the error slot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from symshape.analysis.loops import Instr
from symshape.codegen.cpu.emit import memory, types
from symshape.codegen.cpu.emit.state import State, Value
from symshape.codegen.cpu.vector_math.floats import Floats
from symshape.codegen.cpu.vector_math.small_integers import float_of_small, small_from_float


@dataclass
class _Integers:
    """Shorthands for operations on one integer type."""

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


def divide(state: State, instr: Instr, operands: list[Value], uniform: bool) -> Value:
    """A quotient or remainder. A divisor that would trap is replaced by 1."""
    element = types.register(instr.dtype)
    integers = _Integers(state, element, uniform)
    left, right = (operand.name if uniform else state.lanes(operand) for operand in operands)
    literal, unsigned = operands[1].literal, instr.op.endswith("ui")
    zero, one = integers.constant(0), integers.constant(1)
    if not literal:
        by_zero = integers.compare("eq", right, zero)
        memory.report(state, by_zero, uniform=uniform, code=2)
        right = integers.select(by_zero, one, right)
    if not unsigned and literal in (None, 0, -1):
        # The quotient of the least number and -1 traps too. By 1 it is what wrapping around gives.
        least = integers.compare("eq", left, integers.constant(-1 << (types.bits(element) - 1)))
        minus_one = integers.compare("eq", right, integers.constant(-1))
        right = integers.select(integers.both("andi", least, minus_one), one, right)
    return Value(KINDS[instr.op](integers, left, right), instr.dtype, uniform)


def _quotient(integers: _Integers, signed: str, left: str, right: str) -> str:
    """The truncated quotient. Vectors divide in f64, which is exact below 2**50; x86 has no integer form."""
    width = types.bits(integers.element)
    if integers.uniform or signed == "ui" and width == 64:
        return integers.op(f"div{signed}", left, right)
    state, vector, double = integers.state, integers.type_, integers.state.vector("f64")
    pure = state.writer.pure
    if width == 64:
        quotient = pure(f"arith.divf {float_of_small(state, left)}, {float_of_small(state, right)} : {double}")
        result = small_from_float(state, pure(f"math.trunc {quotient} : {double}"))
        return _unless_large(integers, left, right, result)
    convert, back = ("sitofp", "fptosi") if signed == "si" else ("uitofp", "fptoui")
    quotient = pure(
        f"arith.divf {pure(f'arith.{convert} {left} : {vector} to {double}')}, "
        f"{pure(f'arith.{convert} {right} : {vector} to {double}')} : {double}"
    )
    if width < 32:
        wide = state.vector("i32")
        return pure(f"arith.trunci {pure(f'arith.fptosi {quotient} : {double} to {wide}')} : {wide} to {vector}")
    return pure(f"arith.{back} {quotient} : {double} to {vector}")


def _unless_large(integers: _Integers, left: str, right: str, result: str) -> str:
    """The result, or one division per lane if any operand is too large for f64."""
    state, limit = integers.state, integers.constant(1 << 50)
    double_limit = integers.constant(1 << 51)
    large = [integers.compare("ugt", integers.op("addi", operand, limit), double_limit) for operand in (left, right)]
    state.shared[_PER_LANE.format(width=state.width)] = _helper(state.width)
    call = f"llvm.call @{_PER_LANE.format(width=state.width)}({left}, {right})"
    text = f"{call} : ({integers.type_}, {integers.type_}) -> {integers.type_}"
    floats = Floats(state, "f64", uniform=False)
    condition = integers.both("ori", *large)
    return floats.if_any(condition, lambda: state.writer.emit(text), result, integers.type_)


_PER_LANE = "ss_divide_{width}"


def _helper(width: int) -> str:
    vector = f"vector<{width}xi64>"
    return "\n".join(
        [
            f"llvm.func internal @{_PER_LANE.format(width=width)}(%left: {vector}, %right: {vector}) -> {vector}"
            ' attributes {passthrough = ["noinline"]} {',
            f"  %quotient = arith.divsi %left, %right : {vector}",
            f"  llvm.return %quotient : {vector}",
            "}",
        ]
    )


def _rest(integers: _Integers, quotient: str, left: str, right: str) -> str:
    return integers.op("subi", left, integers.op("muli", quotient, right))


def _truncate(signed: str, integers: _Integers, left: str, right: str) -> str:
    return _quotient(integers, signed, left, right)


def _remainder(signed: str, integers: _Integers, left: str, right: str) -> str:
    return _rest(integers, _quotient(integers, signed, left, right), left, right)


def _rounded(correction: str, integers: _Integers, left: str, right: str) -> str:
    """Corrects a truncated quotient: down ("subi": if rest and divisor differ in sign) or up ("addi": if they
    agree)."""
    quotient = _quotient(integers, "si", left, right)
    rest, zero = _rest(integers, quotient, left, right), integers.constant(0)
    predicate = "slt" if correction == "subi" else "sge"
    signs = integers.compare(predicate, integers.op("xori", rest, right), zero)
    wrong = integers.both("andi", signs, integers.compare("ne", rest, zero))
    return integers.select(wrong, integers.op(correction, quotient, integers.constant(1)), quotient)


KINDS: dict[str, Callable[[_Integers, str, str], str]] = {
    "arith.divsi": partial(_truncate, "si"),
    "arith.divui": partial(_truncate, "ui"),
    "arith.remsi": partial(_remainder, "si"),
    "arith.remui": partial(_remainder, "ui"),
    "arith.floordivsi": partial(_rounded, "subi"),
    "arith.ceildivsi": partial(_rounded, "addi"),
}
