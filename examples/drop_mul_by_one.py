# RUN: symshape-opt %S/Inputs/mul_by_one.mlir --load-pass=%s --drop-mul-by-one | filecheck %s
# RUN: symshape-opt %S/Inputs/mul_by_one.mlir --load-pass=%s --drop-mul-by-one --mlir-pass-statistics 2>&1 >%t \
# RUN:   | filecheck %s --check-prefix=COUNT
# RUN: symshape ablate %s:scaled --load-pass %s --with drop-mul-by-one --rounds 1 | filecheck %s --check-prefix=ROW
# CHECK-LABEL: func.func @scaled
# CHECK:      ^bb0(%[[IN:[a-z0-9_]+]]: f32,
# CHECK-NOT:  arith.mulf
# CHECK:      linalg.yield %[[IN]]
# CHECK-LABEL: func.func @chained
# CHECK:      ^bb0(%[[IN:[a-z0-9_]+]]: f32,
# CHECK-NOT:  arith.mulf
# CHECK:      linalg.yield %[[IN]]
# COUNT: (S) 5 dropped
# ROW: pipeline
# ROW: with drop-mul-by-one
# ROW: dropped: 2
"""A pass of one's own, and what it is worth: multiplications by 1 go.

symshape-opt examples/Inputs/mul_by_one.mlir --load-pass=examples/drop_mul_by_one.py --drop-mul-by-one
symshape ablate examples/drop_mul_by_one.py:scaled --load-pass examples/drop_mul_by_one.py --with drop-mul-by-one
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch_mlir import ir

from symshape.passes.framework.base import Pass, PassContext


@dataclass(frozen=True)
class DropMulByOne(Pass):
    """In the bodies of ``linalg.generic``, ``x * 1`` is ``x``.

    Before::

        %one = arith.constant 1.0 : f32
        %product = arith.mulf %in, %one : f32
        linalg.yield %product : f32

    After::

        linalg.yield %in : f32
    """

    name: ClassVar[str] = "drop-mul-by-one"
    statistics: ClassVar[dict[str, str]] = {"dropped": "multiplications by 1"}

    def run(self, module: ir.Module, context: PassContext) -> None:
        dropped = 0
        for op in list(products(module)):  # a list: operations are erased on the way
            # Asked when it is the product's turn: its factors may have become other values since the walk.
            kept = op.rhs if is_one(op.lhs) else op.lhs if is_one(op.rhs) else None
            if kept is not None:
                op.result.replace_all_uses_with(kept)
                op.operation.erase()
                dropped += 1
        self.count(context, dropped=dropped)


def products(module: ir.Module) -> Iterator[Any]:
    """The products in the bodies of ``linalg.generic``, in order."""
    for function in module.body.operations:
        for op in function.regions[0].blocks[0].operations:
            if op.operation.name == "linalg.generic":
                yield from (
                    inner for inner in op.regions[0].blocks[0].operations if inner.operation.name == "arith.mulf"
                )


def is_one(value: ir.Value) -> bool:
    owner = value.owner
    constant = not isinstance(owner, ir.Block) and owner.name == "arith.constant"
    return constant and isinstance(owner.attributes["value"], ir.FloatAttr) and owner.attributes["value"].value == 1


def scaled(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x * 1.0, -1) * 1.0 + 2


def inputs() -> tuple[torch.Tensor, ...]:
    """For ``symshape ablate``."""
    return (torch.randn(64, 129),)
