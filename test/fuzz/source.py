"""Programs as plain text: what is generated, printed, shrunk, and saved.

A program is a Python file. ``inputs(s, t)`` makes its arguments, ``program`` is what is compiled; ``SIZES`` are the
values of (s, t) that it is called with, in this order; ``GRADIENT``: floating inputs require it.
"""

from __future__ import annotations

import ast
import linecache
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F

HALVES = (torch.float16, torch.bfloat16)


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Multiples of 1/64 between -4 and 4: rounding to a half type leaves them as they are. The same for one seed under
    every default dtype, of which 16 numbers and more otherwise depend."""
    return ((torch.randn(shape, dtype=torch.float32) * 64).round().clamp(-256, 256) / 64).to(dtype)


def integers(*shape: int, low: int = -9, high: int = 10, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.randint(low, high, shape).to(dtype)


def flags(*shape: int) -> torch.Tensor:
    return torch.rand(shape, dtype=torch.float32) < 0.5


NAMES = {"torch": torch, "F": F, "normal": normal, "integers": integers, "flags": flags}


@dataclass(frozen=True)
class Source:
    """``inputs``: an expression over s and t for each argument, named x0, x1, ... (one may use those before it).
    ``body``: statements over them, ``results``: names that are returned."""

    inputs: tuple[str, ...]
    body: tuple[str, ...]
    results: tuple[str, ...]
    sizes: tuple[tuple[int, int], ...]
    gradient: bool = False

    @property
    def text(self) -> str:
        arguments = [f"x{i}" for i in range(len(self.inputs))]
        returned = ", ".join(self.results) + ("," if len(self.results) == 1 else "")
        lines = [f"SIZES = {list(self.sizes)}", f"GRADIENT = {self.gradient}", "", "", "def inputs(s, t):"]
        lines += [f"    {name} = {value}" for name, value in zip(arguments, self.inputs)]
        lines += [f"    return [{', '.join(arguments)}]", "", "", f"def program({', '.join(arguments)}):"]
        lines += [f"    {line}" for statement in self.body for line in statement.split("\n")]
        return "\n".join([*lines, f"    return ({returned})", ""])

    @classmethod
    def parse(cls, text: str) -> Source:
        """The inverse of ``text``."""
        tree = ast.parse(text)
        functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        values = {
            node.targets[0].id: ast.literal_eval(node.value)
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        *body, returned = functions["program"].body
        assert isinstance(returned, ast.Return) and isinstance(returned.value, ast.Tuple)
        return cls(
            tuple(ast.unparse(node.value) for node in functions["inputs"].body if isinstance(node, ast.Assign)),
            tuple(ast.unparse(node) for node in body),
            tuple(ast.unparse(value) for value in returned.value.elts),
            tuple(values["SIZES"]),
            values.get("GRADIENT", False),
        )

    def load(self, wide: bool = False) -> dict[str, Any]:
        """What the file defines. ``wide``: every floating dtype is float64 (and so the program's float64 reference)."""
        text, name = self.text, f"<program {hash(self.text) & 0xFFFFFFFF:x}{' wide' * wide}>"
        if wide:
            for dtype in ("float16", "bfloat16", "float32"):
                text = text.replace(f"torch.{dtype}", "torch.float64")
            text = text.replace(".to(torch.float64)", ".to(torch.float64, copy=True)")  # as it is where dtypes differ
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)  # for messages and for Dynamo
        found: dict[str, Any] = dict(NAMES)
        exec(compile(text, name, "exec"), found)
        return found

    def with_(self, **changes: Any) -> Source:
        return replace(self, **changes)
