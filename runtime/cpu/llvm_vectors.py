"""Vectors of float32 in the text of an LLVM function."""

from __future__ import annotations

from symshape.runtime.cpu.llvm_text import Function


class Vectors:
    """Operations on vectors with a number of lanes."""

    def __init__(self, function: Function, lanes: int) -> None:
        self.function, self.lanes = function, lanes
        self.type = f"<{lanes} x float>"

    def load(self, address: str, mask: str | None = None) -> str:
        if mask is None:
            return self.function.value(f"load {self.type}, ptr {address}, align 4")
        call = f"call {self.type} @llvm.masked.load.v{self.lanes}f32.p0"
        masked = f"<{self.lanes} x i1> {mask}"
        return self.function.value(f"{call}(ptr {address}, i32 4, {masked}, {self.type} zeroinitializer)")

    def store(self, value: str, address: str, mask: str | None = None) -> None:
        if mask is None:
            self.function.effect(f"store {self.type} {value}, ptr {address}, align 4")
            return
        call = f"call void @llvm.masked.store.v{self.lanes}f32.p0"
        self.function.effect(f"{call}({self.type} {value}, ptr {address}, i32 4, <{self.lanes} x i1> {mask})")

    def splat(self, value: str, type_: str = "float") -> str:
        vector = f"<{self.lanes} x {type_}>"
        one = self.function.value(f"insertelement {vector} poison, {type_} {value}, i32 0")
        lanes = f"<{self.lanes} x i32> zeroinitializer"
        return self.function.value(f"shufflevector {vector} {one}, {vector} poison, {lanes}")

    def multiply_add(self, a: str, b: str, c: str) -> str:
        """Rounded once where the processor can."""
        arguments = ", ".join(f"{self.type} {one}" for one in (a, b, c))
        return self.function.value(f"call {self.type} @llvm.fmuladd.v{self.lanes}f32({arguments})")

    def add(self, a: str, b: str) -> str:
        return self.function.value(f"fadd {self.type} {a}, {b}")

    def mul(self, a: str, b: str) -> str:
        return self.function.value(f"fmul {self.type} {a}, {b}")

    def clamp(self, value: str, low: str, high: str) -> str:
        """NaN stays."""
        for how, bound in (("olt", low), ("ogt", high)):
            outside = self.function.value(f"fcmp {how} {self.type} {value}, {bound}")
            mask = f"<{self.lanes} x i1> {outside}"
            value = self.function.value(f"select {mask}, {self.type} {bound}, {self.type} {value}")
        return value

    def below(self, end: str, first: int = 0) -> str:
        """A mask of the lanes whose number, counted from ``first``, is less than ``end``, which fits into 32 bits."""
        return self._lanes("slt", end, first)

    def from_(self, start: str) -> str:
        """A mask of the lanes from this one on."""
        return self._lanes("sge", start, 0)

    def _lanes(self, how: str, bound: str, first: int) -> str:
        numbers = ", ".join(f"i32 {first + lane}" for lane in range(self.lanes))
        narrow = self.function.value(f"trunc i64 {bound} to i32")
        return self.function.value(f"icmp {how} <{self.lanes} x i32> <{numbers}>, {self.splat(narrow, 'i32')}")
