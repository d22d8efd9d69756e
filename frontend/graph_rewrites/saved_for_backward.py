"""What forward saves for backward, which may not compute it again.

**What reads an input that is written to.** Autograd refuses to keep what is written to: ``y = x * m.exp(); m.mul_(2)``
would be an error that eager mode has not.

**What two numbers of a half type are compared by.**

A kernel rounds what it stores, and leaves out the rounding of what it hands on: ``exp`` of a stored number is not the
``exp`` that forward had. Next to a threshold that makes no difference. But the gradient of a maximum asks which
elements are the largest one, bit by bit: of those that are computed again from something else none might be, and their
number is divided by.
"""

from __future__ import annotations

import operator
from typing import Any, Final

import torch

from symshape.frontend.bridge.aot_autograd import mutated_inputs

aten: Any = torch.ops.aten
_COMPARISONS: Final = (aten.eq.Tensor, aten.ne.Tensor, aten.lt.Tensor, aten.le.Tensor, aten.gt.Tensor, aten.ge.Tensor)
_PASSED_ON: Final = (operator.getitem, aten._to_copy.default, torch.ops.prims.convert_element_type.default)
_HALF: Final = (torch.float16, torch.bfloat16)


def save_what_is_compared(joint: torch.fx.GraphModule) -> None:
    """Marks the operands for the partitioner. Of views, parts and conversions it is what they are made from that is
    saved."""
    from torch.utils.checkpoint import CheckpointPolicy

    compared = [one for node in joint.graph.nodes if node.target in _COMPARISONS for one in node.all_input_nodes]
    for operand in compared:
        value = operand.meta.get("val")
        if operand.op != "call_function":
            continue
        if operand.target in _PASSED_ON or getattr(operand.target, "is_view", False):
            compared.extend(operand.all_input_nodes)
        elif isinstance(value, torch.Tensor) and value.dtype in _HALF:
            operand.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def save_what_reads_mutated_inputs(joint: torch.fx.GraphModule) -> None:
    """Backward does not compute again from an input that the caller's program writes to, or from a view of one."""
    from torch.utils.checkpoint import CheckpointPolicy

    same = mutated_inputs(joint)
    for node in same:  # and its views, which are added
        for user in node.users:
            if getattr(user.target, "is_view", False):
                same.append(user)
            elif isinstance(user.meta.get("val"), torch.Tensor):
                user.meta["recompute"] = CheckpointPolicy.MUST_SAVE
