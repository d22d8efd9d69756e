"""Passes with a fault in them, which shows at a few calls of a large graph: what `symshape reduce` is to find."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch_mlir import ir

from symshape.dialects.accessors import body_of, call_arguments, call_target, main_functions
from symshape.passes.framework.base import Pass, PassContext, fail

if not hasattr(torch.ops.faulty, "crash"):  # the file may be loaded again

    @torch.library.custom_op("faulty::crash", mutates_args=())
    def crash(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        os.kill(os.getpid(), signal.SIGSEGV)
        return x @ y


@dataclass(frozen=True)
class FaultyCalls(Pass):
    """Is wrong about calls of ``target`` that one of ``upstream`` leads to in at most ``depth`` steps.

    ``action``: "fail", "crash", "invalid" (it leaves invalid IR behind), "arguments" or "target": the text ``old`` of
    them becomes ``new``; "exchange": the first two operands.
    """

    name: ClassVar[str] = "faulty-calls"
    target: str = "aten.erf.default"
    upstream: str = ""
    depth: int = 1
    action: str = "fail"
    old: str = ""
    new: str = ""

    def run(self, module: ir.Module, context: PassContext) -> None:
        for function in main_functions(module):
            for op in body_of(function):
                if op.name == "host.call" and call_target(op) == self.target and self._concerns(op):
                    self._act(op)

    def _concerns(self, op: Any) -> bool:
        if self.action in ("arguments", "crash") and self.old not in call_arguments(op):
            return False
        return not self.upstream or _leads(op, self.upstream, self.depth)

    def _act(self, op: Any) -> None:
        if self.action == "fail":
            fail(op, f"of {len(op.operands)} operands is not understood")
        if self.action == "crash":
            raise KeyError(call_arguments(op))
        if self.action == "invalid":
            op.attributes["arguments"] = ir.StringAttr.get("($7)")
        if self.action == "arguments":
            op.attributes["arguments"] = ir.StringAttr.get(call_arguments(op).replace(self.old, self.new))
        if self.action == "target":
            op.attributes["target"] = ir.StringAttr.get(self.new)
        if self.action == "exchange":
            op.operands[0], op.operands[1] = op.operands[1], op.operands[0]


def _leads(op: Any, upstream: str, depth: int) -> bool:
    """Whether a call of ``upstream`` computes an operand, or an operand of what computes one, and so on."""
    for operand in op.operands:
        if isinstance(operand.owner, ir.Block):
            continue
        producer = operand.owner.operation
        if producer.name == "host.call":
            if call_target(producer) == upstream or (depth > 1 and _leads(producer, upstream, depth - 1)):
                return True
    return False


@dataclass(frozen=True)
class FaultyBodies(Pass):
    """Is wrong about operations ``old`` in bodies of linalg: their operands are exchanged, or they become ``new``."""

    name: ClassVar[str] = "faulty-bodies"
    old: str = "arith.subf"
    new: str = ""

    def run(self, module: ir.Module, context: PassContext) -> None:
        for function in main_functions(module):
            for op in body_of(function):
                if op.name == "linalg.generic":
                    inner = [view.operation for view in op.regions[0].blocks[0].operations]
                    for one in [one for one in inner if one.name == self.old]:
                        self._act(one)

    def _act(self, op: Any) -> None:
        if not self.new:
            op.operands[0], op.operands[1] = op.operands[1], op.operands[0]
            return
        with ir.InsertionPoint(op), op.location:
            made = ir.Operation.create(self.new, [r.type for r in op.results], list(op.operands))
        op.results[0].replace_all_uses_with(made.results[0])
        op.erase()
