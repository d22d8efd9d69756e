"""Passes that fail in each of the ways there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from symshape.passes.framework.base import Pass, PassContext, fail


@dataclass(frozen=True)
class FailAtOp(Pass):
    """Reports an error at the first function."""

    name: ClassVar[str] = "fail-at-op"
    text: str = "is not welcome"

    def run(self, module: ir.Module, context: PassContext) -> None:
        fail(module.body.operations[0], self.text)


@dataclass(frozen=True)
class Crash(Pass):
    """Raises what no pass should."""

    name: ClassVar[str] = "crash"

    def run(self, module: ir.Module, context: PassContext) -> None:
        raise ZeroDivisionError("no pass should")


@dataclass(frozen=True)
class BreakIR(Pass):
    """Leaves a launch without its kernel behind."""

    name: ClassVar[str] = "break-ir"

    def run(self, module: ir.Module, context: PassContext) -> None:
        for op in module.body.operations[0].regions[0].blocks[0].operations:
            if op.operation.name == "host.launch":
                op.operation.attributes["callee"] = ir.FlatSymbolRefAttr.get("gone")


@dataclass(frozen=True)
class Demand(Pass):
    """Requires something of an input."""

    name: ClassVar[str] = "demand"

    def run(self, module: ir.Module, context: PassContext) -> None:
        context.require("s0 % 16 == 0", "the tile is 16 wide")
