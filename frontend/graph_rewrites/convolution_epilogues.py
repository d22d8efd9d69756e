"""Matches the epilogue of a convolution: the pointwise operations on its result that its kernel can do.

A chain of nodes, each the only user of the one before: first products and sums with one number per channel (a batch
norm in eval mode), which fold into weights and bias; then the sum with another tensor of the same shape; then limits
(relu, hardtanh, clamp). (As ``torch._inductor.fx_passes.efficient_conv_bn_eval`` and ``mkldnn_fusion``.)

To support another operation: match it in ``_extend``, add a field to ``Epilogue``, pass it in ``packed_convolutions``,
and compute it in the kernel (``runtime/packed_convolutions.py``).
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch.fx import Node

from symshape.frontend.bridge.symbolic_sizes import known_equal

aten: Any = torch.ops.aten
Number = int | float


@dataclass
class Epilogue:
    """A convolution and its epilogue, ``nodes``. Its value is ``clamp(steps(convolution) + other, low, high)``.

    ``steps``: products and sums in order, each (operator, operand): "mul", "div", "add", "sub" with the operand on the
    right, "rsub" with it on the left. An operand is a number, or a node with one element per channel or one element.
    """

    nodes: list[Node]
    steps: list[tuple[str, Node | Number]] = field(default_factory=list)
    other: Node | None = None
    low: float = -math.inf
    high: float = math.inf

    @property
    def last(self) -> Node:
        return self.nodes[-1]

    @property
    def has_limits(self) -> bool:
        return self.low != -math.inf or self.high != math.inf


def epilogue_of(convolution: Node, constants: Collection[Node]) -> Epilogue:
    """The longest epilogue of a convolution. ``constants``: nodes whose values can be folded into weights."""
    found = Epilogue([convolution])
    while (user := _only_user(found.last)) is not None and _extend(found, user, constants):
        found.nodes.append(user)
    return found


def _only_user(node: Node) -> Node | None:
    users = list(node.users)
    if len(users) != 1 or users[0].op != "call_function" or users[0].all_input_nodes.count(node) != 1:
        return None
    user = users[0]
    return user if _same_shape_and_type(user, node) and list(user.args).count(node) == 1 else None


def _same_shape_and_type(one: Any, other: Any) -> bool:
    a, b = one.meta.get("val"), other.meta.get("val")
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return False
    if a.dtype != b.dtype or a.device != b.device or a.dim() != b.dim() or a.layout != b.layout:
        return False
    return all(known_equal(x, y) for x, y in zip(a.shape, b.shape, strict=True))


_ARITHMETIC: Final = {
    aten.mul.Tensor: "mul",
    aten.div.Tensor: "div",
    aten.add.Tensor: "add",
    aten.sub.Tensor: "sub",
    aten.rsub.Scalar: "rsub",
    aten.rsub.Tensor: "rsub",
}


def _extend(found: Epilogue, user: Node, constants: Collection[Node]) -> bool:
    """Adds ``user`` to the epilogue, if the kernel can compute it; whether it does."""
    if found.has_limits:
        return _limit(found, user)
    kind = _ARITHMETIC.get(user.target)
    if kind is None:
        return _limit(found, user)
    if user.kwargs.get("alpha", 1) != 1 or len(user.kwargs) > ("alpha" in user.kwargs) or len(user.args) != 2:
        return False
    is_right = user.args[0] is not found.last
    operand: Any = user.args[0] if is_right else user.args[1]
    if found.other is None and _is_for_channels(operand, found.last, constants):
        if is_right and kind == "div":
            return False
        swapped = {"sub": "rsub", "rsub": "sub"}
        found.steps.append((swapped.get(kind, kind) if is_right else kind, operand))
        return True
    if kind == "add" and found.other is None and isinstance(operand, Node) and _same_shape_and_type(operand, user):
        found.other = operand
        return True
    return False


def _is_for_channels(operand: Any, image: Node, constants: Collection[Node]) -> bool:
    """Whether an operand is a number, or a constant with one element per channel of the image, or one element."""
    if isinstance(operand, (int, float)) and not isinstance(operand, bool):
        return True
    if not isinstance(operand, Node) or operand not in constants:
        return False
    value, like = operand.meta["val"], image.meta["val"]
    if value.dtype != like.dtype or value.dim() > like.dim():
        return False
    shape = [1] * (like.dim() - value.dim()) + list(value.shape)
    return all(size == 1 or (dim == 1 and size == like.shape[1]) for dim, size in enumerate(shape))


def _limit(found: Epilogue, user: Node) -> bool:
    """Adds a limit to the epilogue: the value is ``min(max(x, low), high)``, in this order."""
    limits = _limits(user)
    if limits is None or any(math.isnan(limit) for limit in limits):
        return False
    low, high = limits
    if low > found.high or low > high:
        return False
    found.low, found.high = max(found.low, low), min(found.high, high)
    return True


def _limits(user: Node) -> tuple[float, float] | None:
    """The bounds (low, high) that a node clamps to; None for any other node."""
    numbers = [*user.args[1:], user.kwargs.get("min"), user.kwargs.get("max")]
    if any(not isinstance(number, (int, float, type(None))) or isinstance(number, bool) for number in numbers):
        return None
    if user.target is aten.relu.default:
        return 0.0, math.inf
    given: Any = (*user.args[1:], None, None)
    low, high = (user.kwargs.get("min", given[0]), user.kwargs.get("max", given[1]))
    if user.target is aten.clamp_min.default:
        high = None
    elif user.target is aten.clamp_max.default:
        low, high = None, user.kwargs.get("max", given[0])
    elif user.target is aten.hardtanh.default:
        low, high = (-1.0 if low is None else low), (1.0 if high is None else high)
    elif user.target is not aten.clamp.default:
        return None
    return (-math.inf if low is None else float(low)), (math.inf if high is None else float(high))
