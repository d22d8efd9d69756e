"""LLVM IR as text, a function at a time, with loops and branches as Python's context managers.

Mutable values are variables on the stack (``alloca``), which LLVM's mem2reg promotes to registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Function:
    """``parameters``: name (without %) to type. Values are text: names, or numbers."""

    def __init__(self, name: str, parameters: dict[str, str], linkage: str = "internal ") -> None:
        given = ", ".join(f"{type_} %{one}" for one, type_ in parameters.items())
        self._head = f"define {linkage}void @{name}({given}) noinline nounwind {{"
        self._variables: list[str] = []
        self._lines: list[str] = []
        self._count = 0

    def text(self) -> str:
        return "\n".join((self._head, "entry:", *self._variables, *self._lines, "  ret void", "}"))

    def value(self, text: str) -> str:
        name = self._name()
        self._lines.append(f"  {name} = {text}")
        return name

    def effect(self, text: str) -> None:
        self._lines.append(f"  {text}")

    def variable(self, type_: str, first: str) -> str:
        """Its address: see ``get`` and ``set``."""
        name = self._name()
        self._variables.append(f"  {name} = alloca {type_}")
        self.set(name, type_, first)
        return name

    def get(self, variable: str, type_: str) -> str:
        return self.value(f"load {type_}, ptr {variable}")

    def set(self, variable: str, type_: str, value: str) -> None:
        self.effect(f"store {type_} {value}, ptr {variable}")

    # --- int64 ---

    def add(self, a: str, b: str) -> str:
        return self.value(f"add i64 {a}, {b}")

    def sub(self, a: str, b: str) -> str:
        return self.value(f"sub i64 {a}, {b}")

    def mul(self, a: str, b: str) -> str:
        return self.value(f"mul i64 {a}, {b}")

    def div(self, a: str, b: str) -> str:
        """The quotient of two nonnegative integers."""
        return self.value(f"udiv i64 {a}, {b}")

    def min(self, a: str, b: str) -> str:
        return self.value(f"call i64 @llvm.smin.i64(i64 {a}, i64 {b})")

    def max(self, a: str, b: str) -> str:
        return self.value(f"call i64 @llvm.smax.i64(i64 {a}, i64 {b})")

    def compare(self, how: str, a: str, b: str) -> str:
        """``how``: slt, sge, eq, ..."""
        return self.value(f"icmp {how} i64 {a}, {b}")

    def both(self, a: str, b: str) -> str:
        return self.value(f"and i1 {a}, {b}")

    def select(self, condition: str, a: str, b: str, type_: str = "i64") -> str:
        return self.value(f"select i1 {condition}, {type_} {a}, {type_} {b}")

    # --- addresses ---

    def floats(self, address: str, offset: str | int) -> str:
        """The address some elements of float32 after another."""
        return self.value(f"getelementptr float, ptr {address}, i64 {offset}")

    def is_there(self, address: str) -> str:
        return self.value(f"icmp ne ptr {address}, null")

    def word(self, words: str, index: int) -> str:
        address = self.value(f"getelementptr i64, ptr {words}, i64 {index}")
        return self.value(f"load i64, ptr {address}, align 1")

    def address_word(self, words: str, index: int) -> str:
        return self.value(f"inttoptr i64 {self.word(words, index)} to ptr")

    # --- blocks ---

    @contextmanager
    def loop(self, first: str, end: str, step: str = "1") -> Iterator[str]:
        """A loop; yields the index, from ``first``, while it is less than ``end``."""
        index = self.variable("i64", first)
        with self.repeat(index, end):
            i = self.get(index, "i64")
            yield i
            self.set(index, "i64", self.add(i, step))

    @contextmanager
    def repeat(self, index: str, end: str) -> Iterator[None]:
        """A loop that runs while a variable, which the block changes, is less than ``end``."""
        head, body, done = (self._label() for _ in range(3))
        self.effect(f"br label %{head}")
        self._lines.append(f"{head}:")
        more = self.compare("slt", self.get(index, "i64"), end)
        self.effect(f"br i1 {more}, label %{body}, label %{done}")
        self._lines.append(f"{body}:")
        yield
        self.effect(f"br label %{head}")
        self._lines.append(f"{done}:")

    @contextmanager
    def when(self, condition: str, wanted: bool = True) -> Iterator[None]:
        """Runs the block if the condition has the wanted value."""
        body, done = self._label(), self._label()
        labels = (body, done) if wanted else (done, body)
        self.effect(f"br i1 {condition}, label %{labels[0]}, label %{labels[1]}")
        self._lines.append(f"{body}:")
        yield
        self.effect(f"br label %{done}")
        self._lines.append(f"{done}:")

    def _name(self) -> str:
        self._count += 1
        return f"%v{self._count}"

    def _label(self) -> str:
        self._count += 1
        return f"b{self._count}"
