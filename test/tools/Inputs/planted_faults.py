"""A pass with a fault that the environment enables: PLANTED=crash, PLANTED=wrong."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, ClassVar

from torch_mlir import ir

from symshape.passes.framework.base import Pass, PassContext, fail


@dataclass(frozen=True)
class PlantedFault(Pass):
    """crash: raises where it meets a sine. wrong: 3.0 becomes 3.5."""

    name: ClassVar[str] = "planted-fault"

    def run(self, module: ir.Module, context: PassContext) -> None:
        fault = os.environ.get("PLANTED", "")

        def visit(op: Any) -> ir.WalkResult:
            if fault == "crash" and op.name == "math.sin":
                fail(op, "is a planted fault")
            value = op.attributes["value"] if op.name == "arith.constant" else None
            if fault == "wrong" and isinstance(value, ir.FloatAttr) and value.value == 3.0:
                with op.location:
                    op.attributes["value"] = ir.FloatAttr.get(value.type, 3.5)
            return ir.WalkResult.ADVANCE

        module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
