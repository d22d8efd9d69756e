"""What two numbers of a half type are compared by is saved for backward, and not computed again.

A kernel rounds what it stores, and leaves out the rounding of what it hands on: ``exp`` of a stored number is not the
``exp`` that forward had. Next to a threshold that makes no difference. But the gradient of a maximum asks which
elements are the largest one, bit by bit: of those that are computed again from something else none might be, and their
number is divided by.
"""

from __future__ import annotations

from typing import Any, Final

import torch

aten: Any = torch.ops.aten
_COMPARISONS: Final = (aten.eq.Tensor, aten.ne.Tensor, aten.lt.Tensor, aten.le.Tensor, aten.gt.Tensor, aten.ge.Tensor)
_HALF: Final = (torch.float16, torch.bfloat16)


def save_what_is_compared(joint: torch.fx.GraphModule) -> None:
    """Marks the operands for the partitioner. Those that are views stay views: it is their bases that are saved."""
    from torch.utils.checkpoint import CheckpointPolicy

    compared = [one for node in joint.graph.nodes if node.target in _COMPARISONS for one in node.all_input_nodes]
    for operand in compared:
        value = operand.meta.get("val")
        if operand.op != "call_function" or not isinstance(value, torch.Tensor) or value.dtype not in _HALF:
            continue
        if getattr(operand.target, "is_view", False):
            compared.extend(operand.all_input_nodes)
        else:
            operand.meta["recompute"] = CheckpointPolicy.MUST_SAVE
