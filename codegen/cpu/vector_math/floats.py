"""Shorthands for floating-point operations on scalars or vectors, in which vector_math's expansions are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from symshape.codegen.cpu.emit import types
from symshape.codegen.cpu.emit.state import State
from symshape.codegen.cpu.vector_math.small_integers import float_of_small, small_from_float
from symshape.machine import float_functions


@dataclass(frozen=True)
class Floats(float_functions.Floats):
    """Operations on values of one float type. Values are SSA names; Python numbers become constants."""

    state: State
    element: str
    uniform: bool

    @property
    def type_(self) -> str:
        return self.element if self.uniform else self.state.vector(self.element)

    @property
    def integer(self) -> str:
        """The integer element type of the same width."""
        return "i64" if self.element == "f64" else "i32"

    @property
    def integers(self) -> str:
        return self.integer if self.uniform else self.state.vector(self.integer)

    def of(self, element: str) -> Floats:
        """The same lanes with another element type."""
        return Floats(self.state, element, self.uniform)

    def constant(self, value: float) -> str:
        return self.state.constant(value, self.element) if self.uniform else self.state.splat(value, self.element)

    def integer_constant(self, value: int) -> str:
        return self.state.constant(value, self.integer) if self.uniform else self.state.splat(value, self.integer)

    def name(self, value: str | float) -> str:
        return value if isinstance(value, str) else self.constant(value)

    def _int_name(self, value: str | int) -> str:
        return value if isinstance(value, str) else self.integer_constant(value)

    @property
    def has_tables(self) -> bool:
        """Of f32 in vectors: where indices known at run time permute a register."""
        return self.element == "f32" and not self.uniform and bool(self.state.target.permutes)

    def pick(self, table: Sequence[float], index: str) -> str:
        """For each lane, the number of the table of 8 that the lowest three bits of its integer say."""
        width, vector = self.state.width, self.type_
        numbers = ", ".join(types.literal(value, "f32") for value in [*table] * (width // len(table)))
        register = self.state.writer.pure(f"arith.constant dense<[{numbers}]> : {vector}")
        name, operands = ("avx512.permvar.sf.512" if width == 16 else "avx2.permps"), f"{register}, {index}"
        return self.state.writer.pure(
            f'llvm.call_intrinsic "llvm.x86.{name}"({operands}) : ({vector}, {self.integers}) -> {vector}'
        )

    def op(self, name: str, *operands: str | float) -> str:
        """Any operation whose operands and result have the float type."""
        return self.state.writer.pure(f"{name} {', '.join(map(self.name, operands))} : {self.type_}")

    def compare(self, predicate: str, left: str | float, right: str | float) -> str:
        return self.state.writer.pure(f"arith.cmpf {predicate}, {self.name(left)}, {self.name(right)} : {self.type_}")

    def select(self, condition: str, left: str | float, right: str | float) -> str:
        bools = "" if self.uniform else f"{self.state.vector('i1')}, "
        pair = f"{self.name(left)}, {self.name(right)}"
        return self.state.writer.pure(f"arith.select {condition}, {pair} : {bools}{self.type_}")

    def cast(self, operation: str, value: str, source: str, target: str) -> str:
        """arith cast between two types given as text."""
        return self.state.writer.pure(f"arith.{operation} {value} : {source} to {target}")

    def bits(self, value: str) -> str:
        """The value's bits."""
        return self.cast("bitcast", value, self.type_, self.integers)

    def from_bits(self, value: str) -> str:
        return self.cast("bitcast", value, self.integers, self.type_)

    def to_int(self, value: str) -> str:
        """An integral float as integer, right for magnitudes below `small_integers.LIMIT`."""
        if self.element == "f64" and not self.uniform:
            return small_from_float(self.state, value)
        return self.cast("fptosi", value, self.type_, self.integers)

    def _to_int_defined(self, value: str) -> str:
        """0 for NaN, whose conversion is poison in LLVM."""
        return self.to_int(self.select(self.compare("uno", value, value), 0.0, value))

    def to_float(self, value: str) -> str:
        """An integer as float, right for magnitudes below `small_integers.LIMIT`."""
        if self.element == "f64" and not self.uniform:
            return float_of_small(self.state, value)
        return self.cast("sitofp", value, self.integers, self.type_)

    def int_op(self, name: str, left: str | int, right: str | int) -> str:
        """arith operation on integers of the same width."""
        return self.state.writer.pure(f"arith.{name} {self._int_name(left)}, {self._int_name(right)} : {self.integers}")

    def int_compare(self, predicate: str, left: str | int, right: str | int) -> str:
        return self.state.writer.pure(
            f"arith.cmpi {predicate}, {self._int_name(left)}, {self._int_name(right)} : {self.integers}"
        )

    def int_select(self, condition: str, left: str | int, right: str | int) -> str:
        bools = "" if self.uniform else f"{self.state.vector('i1')}, "
        pair = f"{self._int_name(left)}, {self._int_name(right)}"
        return self.state.writer.pure(f"arith.select {condition}, {pair} : {bools}{self.integers}")

    def both(self, operation: str, left: str, right: str) -> str:
        """andi or ori on conditions."""
        bools = "i1" if self.uniform else self.state.vector("i1")
        return self.state.writer.pure(f"arith.{operation} {left}, {right} : {bools}")

    def power_of_two(self, exponent: str) -> str:
        """2**exponent for an integer in the normal range."""
        bias, shift = (1023, 52) if self.element == "f64" else (127, 23)
        return self.from_bits(self.int_op("shli", self.int_op("addi", exponent, bias), shift))

    def widen(self, value: str) -> str:
        """An f32 as f64."""
        return self.cast("extf", value, self.type_, self.of("f64").type_)

    def narrow(self, value: str) -> str:
        """An f64 rounded to f32."""
        return self.cast("truncf", value, self.of("f64").type_, self.type_)

    def scale(self, value: str, exponent: str) -> str:
        """value * 2**exponent for an integral float; right for results that are subnormal or overflow."""
        if not self.uniform and self.state.target.scalef:
            return self._scalef(value, exponent)
        number = self._to_int_defined(exponent)
        half = self.int_op("shrsi", number, 1)
        first = self.mul(value, self.power_of_two(half))
        return self.mul(first, self.power_of_two(self.int_op("subi", number, half)))

    def exponent(self, exponent: str) -> str:
        """2**exponent for an integral float, in the normal range."""
        if not self.uniform and self.state.target.scalef:
            return self._scalef(self.constant(1.0), exponent)
        return self.power_of_two(self._to_int_defined(exponent))

    def _scalef(self, value: str, exponent: str) -> str:
        """AVX-512's instruction: 16 floats or 8 doubles at a time."""
        pure, width = self.state.writer.pure, 512 // (64 if self.element == "f64" else 32)
        suffix, part = "pd" if self.element == "f64" else "ps", f"vector<{width}x{self.element}>"
        every, nearest = f"arith.constant -1 : i{width}", "arith.constant 4 : i32"

        def one(left: str, right: str) -> str:
            return pure(
                f'llvm.call_intrinsic "llvm.x86.avx512.mask.scalef.{suffix}.512"({left}, {right}, {left}, '
                f"{pure(every)}, {pure(nearest)}) : ({part}, {part}, {part}, i{width}, i32) -> {part}"
            )

        if width == self.state.width:
            return one(value, exponent)

        def lanes(name: str, start: int) -> str:
            order = ", ".join(map(str, range(start, start + width)))
            return pure(f"vector.shuffle {name}, {name} [{order}] : {self.type_}, {self.type_}")

        halves = [one(lanes(value, at), lanes(exponent, at)) for at in range(0, self.state.width, width)]
        order = ", ".join(map(str, range(self.state.width)))
        return pure(f"vector.shuffle {halves[0]}, {halves[1]} [{order}] : {part}, {part}")

    def if_any(self, condition: str, then: Callable[[], str], otherwise: str, type_: str = "") -> str:
        """then() if the condition holds in any lane, else the other value."""
        writer = self.state.writer
        if not self.uniform:
            condition = writer.pure(f"vector.reduction <or>, {condition} : {self.state.vector('i1')} into i1")
        with writer.within(min(writer.depth, max(writer.floor, writer.depth_of(condition, otherwise)))):
            return writer.branch(condition, [type_ or self.type_], lambda: [then()], lambda: [otherwise])[0]
