"""Matches what follows a convolution and what its kernel can do: a batch norm, then any pointwise expression.

First a chain of nodes, each the only user of the one before: products and sums with one number per channel, which fold
into weights and bias (as ``torch._inductor.fx_passes.efficient_conv_bn_eval``). Then the largest set of pointwise
operations on the value and on other tensors, of the result's shape or with a number for each channel, of which one is
read elsewhere: the epilogue (`runtime/epilogues.py`). Also what a convolution's image is a product of.

To support another operation: a step in `runtime/epilogues.py`, its code in `runtime/cpu/epilogue_code.py`, and the
operators that are that step in ``_STEPS``.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch.fx import Node

from symshape.frontend.bridge.symbolic_sizes import known_equal
from symshape.runtime.epilogues import COMPARISONS, MOST_OPERANDS, MOST_STEPS, VALUE, Epilogue, Step

aten: Any = torch.ops.aten
Number = int | float
_LARGEST: Final = torch.finfo(torch.float32).max


@dataclass(frozen=True)
class Following:
    """What follows a convolution. Its value is the epilogue of ``steps(convolution)`` and ``operands``.

    ``nodes``: the convolution and all that its kernel computes, the result last; ``folded``: products and sums in
    order, each (operator, operand): "mul", "div", "add", "sub" with the operand on the right, "rsub" with it on the
    left. An operand is a number, or a node with one element per channel or one element.
    """

    nodes: tuple[Node, ...]
    folded: tuple[tuple[str, Node | Number], ...]
    epilogue: Epilogue
    operands: tuple[Node, ...]

    @property
    def last(self) -> Node:
        return self.nodes[-1]


def what_follows(convolution: Node, constants: Collection[Node]) -> Following:
    """The most that the kernel can compute. ``constants``: nodes whose values can be folded into weights."""
    chain: list[Node] = [convolution]
    folded: list[tuple[str, Node | Number]] = []
    while (user := _only_user(chain[-1])) is not None and (step := _folding(chain[-1], user, constants)) is not None:
        chain.append(user)
        folded.append(step)
    found = _largest(chain[-1])
    operands = tuple(name for name in found.names if found.names[name].startswith("a"))
    return Following((*chain, *found.nodes), tuple(folded), Epilogue(tuple(found.steps)), operands)


def _only_user(node: Node) -> Node | None:
    users = list(node.users)
    if len(users) != 1 or users[0].op != "call_function" or users[0].all_input_nodes.count(node) != 1:
        return None
    user = users[0]
    return user if _same_shape_and_type(user, node) and list(user.args).count(node) == 1 else None


def _same_shape_and_type(one: Any, other: Any) -> bool:
    if not _same_shape(one, other):
        return False
    a, b = one.meta["val"].dtype, other.meta["val"].dtype
    return bool(a == b)


def _same_shape(one: Any, other: Any) -> bool:
    a, b = one.meta.get("val"), other.meta.get("val")
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return False
    if a.device != b.device or a.dim() != b.dim() or a.layout != b.layout:
        return False
    return all(known_equal(x, y) for x, y in zip(a.shape, b.shape, strict=True))


_FOLDED: Final = {
    aten.mul.Tensor: "mul",
    aten.div.Tensor: "div",
    aten.add.Tensor: "add",
    aten.sub.Tensor: "sub",
    aten.rsub.Scalar: "rsub",
    aten.rsub.Tensor: "rsub",
}


def _folding(image: Node, user: Node, constants: Collection[Node]) -> tuple[str, Node | Number] | None:
    """The product or sum that ``user`` is of ``image``, if it folds into the weights."""
    kind = _FOLDED.get(user.target)
    if kind is None or not _is_plain(user) or len(user.args) != 2:
        return None
    is_right = user.args[0] is not image
    operand: Any = user.args[0] if is_right else user.args[1]
    if not _folds(operand, image, constants) or (is_right and kind == "div"):
        return None
    swapped = {"sub": "rsub", "rsub": "sub"}
    return swapped.get(kind, kind) if is_right else kind, operand


def _is_plain(node: Node) -> bool:
    """Whether a node has no keyword arguments but a factor of 1."""
    return bool(node.kwargs.get("alpha", 1) == 1) and len(node.kwargs) == ("alpha" in node.kwargs)


def _is_number(operand: Any) -> bool:
    return isinstance(operand, (int, float)) and not isinstance(operand, bool)


def _folds(operand: Any, image: Node, constants: Collection[Node]) -> bool:
    """Whether an operand is a number, or a constant with one element per channel of the image, or one element."""
    if _is_number(operand):
        return True
    if not isinstance(operand, Node) or operand not in constants:
        return False
    value, like = operand.meta["val"], image.meta["val"]
    if value.dtype != like.dtype or value.dim() > like.dim():
        return False
    shape = [1] * (like.dim() - value.dim()) + list(value.shape)
    return all(size == 1 or (dim == 1 and size == like.shape[1]) for dim, size in enumerate(shape))


_UNARY: Final = ("neg", "abs", "exp", "expm1", "log", "log1p", "tanh", "erf", "sigmoid", "sqrt", "rsqrt")
_STEPS: Final = {
    **{getattr(aten, name).default: name for name in _UNARY},
    **{getattr(aten, name).Tensor: name for name in ("add", "sub", "mul", "div", "gt", "ge", "lt", "le")},
    **{getattr(aten, name).Scalar: name for name in ("gt", "ge", "lt", "le")},
    aten.minimum.default: "minimum",
    aten.maximum.default: "maximum",
    aten.rsub.Scalar: "rsub",
    aten.rsub.Tensor: "rsub",
    aten.where.self: "where",
}


@dataclass
class _Growing:
    """An epilogue while nodes are added to it. ``names``: of the nodes that its steps read, ``a0`` and on for operands;
    the values of ``nodes`` are those of their last steps."""

    image: Node
    names: dict[Node, str] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    def copy(self) -> _Growing:
        return _Growing(self.image, dict(self.names), list(self.nodes), list(self.steps))

    @property
    def is_closed(self) -> bool:
        """Whether nothing but the last node is read elsewhere, and that is a tensor of the convolution's type."""
        known = {self.image, *self.nodes}
        last = self.nodes[-1]
        inner = known - {last}
        return last.meta["val"].dtype == self.image.meta["val"].dtype and all(known.issuperset(n.users) for n in inner)

    def add(self, node: Node) -> bool:
        """Adds the steps of a node, if all of it can be computed; whether it was added."""
        steps = _steps_of(node)
        if steps is None or not _same_shape(node, self.image) or len(self.steps) + len(steps) > MOST_STEPS:
            return False
        found = self.copy()
        for operation, operands in steps:
            named = [found.name(one) for one in operands]
            if None in named:
                return False
            found.steps.append(Step(operation, tuple(one for one in named if one is not None)))
        self.names, self.steps = found.names, found.steps
        self.names[node] = f"v{len(self.steps) - 1}"
        self.nodes.append(node)
        return True

    def name(self, operand: Any) -> str | float | None:
        """How a step names an operand; None for what it cannot read. An operand of None is the step before."""
        if operand is None:
            return f"v{len(self.steps) - 1}"
        number = _number_of(operand)
        if number is not None:
            return number
        if operand is self.image:
            return VALUE
        if operand not in self.names:
            taken = sum(name[0] == "a" for name in self.names.values())
            if taken == MOST_OPERANDS or not _is_operand(operand, self.image):
                return None
            self.names[operand] = f"a{taken}"
        return self.names[operand]


def _largest(image: Node) -> _Growing:
    """The largest epilogue of a node."""
    growing = _Growing(image)
    best = growing.copy()
    for node in _behind(image):
        if growing.add(node) and growing.is_closed:
            best = growing.copy()
    return best


def _behind(image: Node) -> list[Node]:
    """The nodes that could be in an epilogue, in the order of the graph: those that read what is before them in it."""
    found: list[Node] = []
    seen = {image}
    waiting = list(image.users)
    while waiting and len(found) < MOST_STEPS:
        waiting.sort()
        node = waiting.pop(0)
        if node in seen or _steps_of(node) is None:
            continue
        seen.add(node)
        found.append(node)
        waiting += [user for user in node.users if user not in seen]
    return found


def _steps_of(node: Node) -> list[tuple[str, tuple[Any, ...]]] | None:
    """What a node computes, as operations and operands, where None is the value of the step before; None for what no
    epilogue has."""
    if node.op != "call_function" or not isinstance(node.meta.get("val"), torch.Tensor):
        return None
    bounds = _bounds(node)
    if bounds:
        return bounds
    operation = _STEPS.get(node.target)
    if operation is None or not _is_plain(node):
        return None
    if node.meta["val"].dtype != (torch.bool if operation in COMPARISONS else torch.float32):
        return None
    given = [one.meta["val"] for one in node.args[operation == "where" :] if isinstance(one, Node)]
    if any(not isinstance(value, torch.Tensor) or value.dtype != torch.float32 for value in given):
        return None
    if operation == "rsub":
        return [("sub", tuple(reversed(node.args)))]
    return [(operation, tuple(node.args))]


def _bounds(node: Node) -> list[tuple[str, tuple[Any, ...]]] | None:
    """The bounds that a node clamps to, as steps; None for any other node."""
    numbers: list[Any] = [*node.args[1:], node.kwargs.get("min"), node.kwargs.get("max")]
    if any(one is not None and (not _is_number(one) or _number_of(one) is None or math.isnan(one)) for one in numbers):
        return None
    given: Any = (*node.args[1:], None, None)
    low, high = (node.kwargs.get("min", given[0]), node.kwargs.get("max", given[1]))
    if node.target is aten.relu.default:
        low, high = 0.0, None
    elif node.target is aten.clamp_min.default:
        high = None
    elif node.target is aten.clamp_max.default:
        low, high = None, node.kwargs.get("max", given[0])
    elif node.target is aten.hardtanh.default:
        low, high = (-1.0 if low is None else low), (1.0 if high is None else high)
    elif node.target is not aten.clamp.default:
        return None
    steps = [(name, bound) for name, bound in (("low", low), ("high", high)) if bound is not None]
    return [(name, (node.args[0] if number == 0 else None, float(bound))) for number, (name, bound) in enumerate(steps)]


def _number_of(operand: Any) -> float | None:
    """The number that an operand is, or that a tensor without dims is filled with; None for others, and for what
    float32 does not reach."""
    if isinstance(operand, Node) and operand.target in (aten.full.default, aten.scalar_tensor.default):
        value, operand = operand.meta["val"], operand.args[-1]
        if value.dim() != 0 or value.dtype != torch.float32:
            return None
    if not _is_number(operand) or _LARGEST < abs(operand) < math.inf:
        return None
    return float(operand)


def _is_operand(operand: Any, image: Node) -> bool:
    """Whether a tensor has the image's shape and type, or numbers for its channels: (batch or 1, channels, 1, 1)."""
    if not isinstance(operand, Node) or not isinstance(operand.meta.get("val"), torch.Tensor):
        return False
    value, like = operand.meta["val"], image.meta["val"]
    if value.dtype != like.dtype or value.device != like.device or value.layout != torch.strided:
        return False
    if _same_shape(operand, image):
        return True
    if value.dim() != like.dim() or not known_equal(value.shape[1], like.shape[1]):
        return False
    return all(_is_one(size) for size in value.shape[2:]) and (
        _is_one(value.shape[0]) or known_equal(value.shape[0], like.shape[0])
    )


def factors_of(convolution: Node) -> tuple[Node, Node | None]:
    """The image of a convolution as a product that nothing else reads: of an image and of numbers for its channels (a
    gate of squeeze-and-excite). Without such a product the image, and None."""
    x: Any = convolution.args[0]
    if x.target is not aten.mul.Tensor or len(x.users) > 1 or not _is_plain(x):
        return x, None
    for image, factor in (x.args, x.args[::-1]):
        if isinstance(image, Node) and _same_shape_and_type(image, x) and _is_factor(factor, image):
            return image, factor
    return x, None


def _is_factor(operand: Any, image: Node) -> bool:
    return _is_operand(operand, image) and all(_is_one(size) for size in operand.meta["val"].shape[2:])


def _is_one(size: Any) -> bool:
    return isinstance(size, int) and size == 1
