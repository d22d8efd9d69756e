"""The ``imported`` stage of a traced function as plain data."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch_mlir import ir

import symshape
from symshape import dialects
from symshape.dialects.conditions import read_condition
from symshape.dialects.locations import source_line
from symshape.dialects.sizes import Layout, Sizes
from symshape.tools.report import GraphReport


@dataclass(frozen=True)
class Op:
    """An operation. ``where``: the user's ``file:line``; ``condition``: of a constraint; ``layout``: of a bind."""

    name: str
    attributes: dict[str, Any]
    where: str
    condition: str = ""
    layout: Layout | None = None


@dataclass(frozen=True)
class Main:
    """The function main. ``ops``: its operations in order; ``arguments``: type and number of uses of each argument."""

    ops: list[Op]
    arguments: list[tuple[str, int]]

    def named(self, name: str) -> list[Op]:
        return [op for op in self.ops if op.name == name]

    def calls(self, target: str) -> list[Op]:
        return [op for op in self.named("host.call") if op.attributes["target"] == target]

    @property
    def symbols(self) -> dict[str, Op]:
        """The ops `symshape.symbol` by their binding, such as ``arg0.size(1)``."""
        return {op.attributes["binding"]: op for op in self.named("symshape.symbol")}


def explain(fn: Callable[..., Any], *args: Any) -> list[GraphReport]:
    """The reports of all graphs of ``fn``, compiled anew."""
    torch._dynamo.reset()
    return symshape.explain(fn, *args).graphs


def imported(fn: Callable[..., Any], *args: Any) -> Main:
    """Main of the stage ``imported``, of the only graph of ``fn``."""
    (graph,) = explain(fn, *args)
    return read(graph.stage("imported"))


def read(text: str) -> Main:
    """Main of a module as text."""
    with dialects.load(ir.Context()):
        module = ir.Module.parse(text)  # kept: its operations do not keep it
        block = module.body.operations[0].regions[0].blocks[0]
        operations = [view.operation for view in block.operations]
        sizes = Sizes(block)
        sizes.learn(operations)
        arguments = [(str(a.type), len(list(a.uses))) for a in block.arguments]
        return Main([_op(op, sizes) for op in operations], arguments)


def _op(op: Any, sizes: Sizes) -> Op:
    attributes = {name: getattr(value, "value", value) for name, value in op.attributes.items()}
    is_constraint = op.name in ("symshape.assume", "symshape.expect_true")
    condition = read_condition(sizes, op.operands[0]) if is_constraint else None
    layout = sizes.layouts[op.operands[0]] if op.name == "symshape.bind" else None
    return Op(op.name, attributes, source_line(op.location), str(condition or ""), layout)


def line(fn: Callable[..., Any], text: str) -> str:
    """``file:line`` of the first line of ``fn`` that contains ``text``."""
    lines, first = inspect.getsourcelines(fn)
    return f"{inspect.getsourcefile(fn)}:{next(first + i for i, content in enumerate(lines) if text in content)}"
