"""Arithmetic on vectors of float32 as LLVM IR, by the names of MLIR's dialects: what float functions are written in."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from symshape.machine.float_functions import Floats
from symshape.runtime.cpu.llvm_text import Function

_INSTRUCTIONS: Final = {"arith.addf": "fadd", "arith.subf": "fsub", "arith.mulf": "fmul", "arith.divf": "fdiv"}
_INTRINSICS: Final = {
    "math.fma": "fma",
    "math.absf": "fabs",
    "math.sqrt": "sqrt",
    "math.copysign": "copysign",
    "math.roundeven": "roundeven",
}
_EXTREMES: Final = {"arith.minimumf": "olt", "arith.maximumf": "ogt"}
_INTEGERS: Final = {"addi": "add", "subi": "sub", "shli": "shl", "shrsi": "ashr"}
_SCALEF: Final = 16  # lanes of AVX-512's instruction


class LlvmFloats(Floats):
    """``Floats`` of `symshape/machine/float_functions.py`, in a function. ``declarations``: of what is called."""

    def __init__(self, function: Function, lanes: int) -> None:
        self._f, self._lanes = function, lanes
        self.type = f"<{lanes} x float>"
        self._integers = f"<{lanes} x i32>"
        self.declarations: set[str] = set()

    @property
    def has_tables(self) -> bool:
        """Vectors of 8 lanes are AVX2's (`shape_of` in `convolution_words`)."""
        return self._lanes >= 8

    def pick(self, table: Sequence[float], index: str) -> str:
        """For each lane, the number of the table of 8 that the lowest three bits of its integer say."""
        numbers = ", ".join(f"float {self._bits(value)}" for value in [*table] * (self._lanes // len(table)))
        symbol = "@llvm.x86.avx512.permvar.sf.512" if self._lanes == 16 else "@llvm.x86.avx2.permps"
        self.declarations.add(f"declare {self.type} {symbol}({self.type}, {self._integers})")
        return self._f.value(f"call {self.type} {symbol}({self.type} <{numbers}>, {self._integers} {index})")

    def _splat(self, element: str, value: str) -> str:
        return f"<{', '.join([f'{element} {value}'] * self._lanes)}>"

    def name(self, value: str | float) -> str:
        """A value, or a number in all lanes."""
        return value if isinstance(value, str) else self._splat("float", self._bits(value))

    @staticmethod
    def _bits(value: float) -> str:
        """A number in LLVM's text: the bits of the f64 that is equal to the f32."""
        (exact,) = struct.unpack("=f", struct.pack("=f", value))
        return f"0x{struct.unpack('=Q', struct.pack('=d', exact))[0]:016X}"

    def _integer(self, value: str | int) -> str:
        return value if isinstance(value, str) else self._splat("i32", str(value))

    def _call(self, intrinsic: str, type_: str, suffix: str, *operands: str) -> str:
        symbol = f"@llvm.{intrinsic}.v{self._lanes}{suffix}"
        self.declarations.add(f"declare {type_} {symbol}({', '.join([type_] * len(operands))})")
        return self._f.value(f"call {type_} {symbol}({', '.join(f'{type_} {one}' for one in operands)})")

    def op(self, name: str, *operands: str | float) -> str:
        """An operation of MLIR. KeyError for one that no float function uses."""
        names = [self.name(one) for one in operands]
        if name in _EXTREMES:
            return self._extreme(_EXTREMES[name], *names)
        if name in _INTRINSICS:
            return self._call(_INTRINSICS[name], self.type, "f32", *names)
        return self._f.value(f"{_INSTRUCTIONS[name]} {self.type} {', '.join(names)}")

    def _extreme(self, predicate: str, left: str, right: str) -> str:
        """NaN if one of them is: LLVM's own minimum orders zeros too, in three times as many instructions."""
        first = self.select(self.compare("uno", left, left), left, right)
        return self.select(self.compare(predicate, left, right), left, first)

    def compare(self, predicate: str, left: str | float, right: str | float) -> str:
        return self._f.value(f"fcmp {predicate} {self.type} {self.name(left)}, {self.name(right)}")

    def select(self, condition: str, left: str | float, right: str | float) -> str:
        pair = f"{self.type} {self.name(left)}, {self.type} {self.name(right)}"
        return self._f.value(f"select <{self._lanes} x i1> {condition}, {pair}")

    def bits(self, value: str) -> str:
        return self._f.value(f"bitcast {self.type} {value} to {self._integers}")

    def from_bits(self, value: str) -> str:
        return self._f.value(f"bitcast {self._integers} {value} to {self.type}")

    def to_float(self, value: str) -> str:
        return self._f.value(f"sitofp {self._integers} {value} to {self.type}")

    def int_op(self, name: str, left: str | int, right: str | int) -> str:
        a, b = self._integer(left), self._integer(right)
        if name == "maxsi":
            return self._call("smax", self._integers, "i32", a, b)
        return self._f.value(f"{_INTEGERS[name]} {self._integers} {a}, {b}")

    def power_of_two(self, exponent: str) -> str:
        """2**exponent for an integer in the normal range."""
        return self.from_bits(self.int_op("shli", self.int_op("addi", exponent, 127), 23))

    def _to_int(self, value: str) -> str:
        """0 for NaN, whose conversion is poison."""
        number = self.select(self.compare("uno", value, value), 0.0, value)
        return self._f.value(f"fptosi {self.type} {number} to {self._integers}")

    def scale(self, value: str, exponent: str) -> str:
        """value * 2**exponent for an integral float; right for results that are subnormal or overflow."""
        if self._lanes == _SCALEF:
            return self._scalef(value, exponent)
        number = self._to_int(exponent)
        half = self.int_op("shrsi", number, 1)
        first = self.mul(value, self.power_of_two(half))
        return self.mul(first, self.power_of_two(self.int_op("subi", number, half)))

    def exponent(self, exponent: str) -> str:
        """2**exponent for an integral float, in the normal range."""
        if self._lanes == _SCALEF:
            return self._scalef(self.name(1.0), exponent)
        return self.power_of_two(self._to_int(exponent))

    def _scalef(self, value: str, exponent: str) -> str:
        symbol = "@llvm.x86.avx512.mask.scalef.ps.512"
        self.declarations.add(f"declare {self.type} {symbol}({self.type}, {self.type}, {self.type}, i16, i32)")
        operands = ", ".join(f"{self.type} {one}" for one in (value, exponent, value))
        return self._f.value(f"call {self.type} {symbol}({operands}, i16 -1, i32 4)")
