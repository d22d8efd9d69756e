# RUN: env SYMSHAPE_RECORD=%t symshape explain %S/explain_model.py:forward
# RUN: symshape reduce %t/0000-*/imported.mlir --load-pass=%s --pass-pipeline=drop-halves --wrong -o %t.mlir
# RUN: symshape-opt %t.mlir --pretty | filecheck %s
# CHECK:     host.call @aten.mul.Tensor(%{{.*}}, 0.5)
# CHECK-NOT: host.call
"""A pass that computes wrong numbers, and how `symshape reduce` finds where: it takes ``x * 0.5`` for ``x``.

symshape reduce imported.mlir --load-pass=examples/drop_halves.py --pass-pipeline='builtin.module(drop-halves)' --wrong
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from symshape.dialects.accessors import body_of, call_arguments, call_target, main_functions
from symshape.passes.framework.base import Pass, PassContext


@dataclass(frozen=True)
class DropHalves(Pass):
    """``aten.mul(x, 0.5)`` is ``x``, which is wrong."""

    name: ClassVar[str] = "drop-halves"
    statistics: ClassVar[dict[str, str]] = {"dropped": "multiplications by 0.5"}

    def run(self, module: ir.Module, context: PassContext) -> None:
        calls = [op for function in main_functions(module) for op in body_of(function) if op.name == "host.call"]
        halves = [op for op in calls if (call_target(op), call_arguments(op)) == ("aten.mul.Tensor", "($0, 0.5)")]
        for op in halves:
            op.results[0].replace_all_uses_with(op.operands[0])
        self.count(context, dropped=len(halves))
