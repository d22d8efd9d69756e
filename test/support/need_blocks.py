"""A pass outside of the package that requires something of inputs: what it does is right only for sizes that divide
into blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from symshape.passes.framework.base import Pass, PassContext
from symshape.prover.numbers.condition import equals
from symshape.prover.numbers.expr import Expr


@dataclass(frozen=True)
class NeedBlocks(Pass):
    """Requires that a block divides every size of a graph of one ``kind``: of blocks of 4, 2 and 1 the largest that
    divides the size first seen, or the one that is given."""

    name: ClassVar[str] = "need-blocks"
    kind: str = "backward"
    block: int = 0

    def run(self, module: ir.Module, context: PassContext) -> None:
        if context.options["kind"] != self.kind:
            return
        for function in module.body.operations:
            for view in function.regions[0].blocks[0].operations:
                if view.operation.name == "symshape.symbol":
                    attributes = view.operation.attributes
                    hint = ir.IntegerAttr(attributes["hint"]).value
                    block = self.block or next(size for size in (4, 2, 1) if hint % size == 0)
                    size = Expr.symbol(ir.StringAttr(attributes["name"]).value)
                    context.require(equals(size % block, 0), f"{self.name} works in blocks of {block}")
