"""Values that forward saves for backward, because backward must not recompute them.

**What reads an input that is written to.** Autograd refuses to keep what is written to: ``y = x * m.exp(); m.mul_(2)``
would be an error that eager mode has not.

**What reads memory that the caller can write to, and that eager mode does not save.** A result is free to save, so the
partitioner takes it: of ``y = x + 1; return y, y.tanh()`` it would save ``y`` where eager mode saves ``tanh(y)``. A
caller that then writes to ``y`` (``logits[:, pad] = -inf``) would get an error that eager mode has not; one that writes
to an input behind autograd's back (an environment that fills one buffer of observations) would get a wrong gradient.
Parameters are left out: eager mode saves most of them, and they change between two steps.

**What is not saved: a part of a copy of memory that is read by address.** What forward writes a part into is the memory
that it returns, whatever is around it: backward copies and writes again.

**What two numbers of a half type are compared by.**

A kernel rounds what it stores, and leaves out the rounding of what it hands on: ``exp`` of a stored number is not the
``exp`` that forward had. Next to a threshold that makes no difference. But the gradient of a maximum asks which
elements are the largest one, bit by bit: of those that are computed again from something else none might be, and their
number is divided by.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import Any, Final

import torch

from symshape.frontend.bridge.aot_autograd import is_recomputed, mutated_inputs, shared_with_the_caller
from symshape.frontend.bridge.symbolic_sizes import known_equal

aten: Any = torch.ops.aten
_COMPARISONS: Final = (aten.eq.Tensor, aten.ne.Tensor, aten.lt.Tensor, aten.le.Tensor, aten.gt.Tensor, aten.ge.Tensor)
_PASSED_ON: Final = (operator.getitem, aten._to_copy.default, torch.ops.prims.convert_element_type.default)
_HALF: Final = (torch.float16, torch.bfloat16)

_BY_ADDRESS: Final = (aten.as_strided.default, aten.as_strided_scatter.default)
# Their results are where the first operand is, in a copy of the memory that it is in.
COPYING: Final = frozenset(
    {
        aten.as_strided_scatter.default,
        aten.slice_scatter.default,
        aten.select_scatter.default,
        aten.diagonal_scatter.default,
    }
)


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


def recompute_addressed_memory(joint: torch.fx.GraphModule) -> None:
    """Backward does not read the memory around what forward has written to a part of."""
    from torch.utils.checkpoint import CheckpointPolicy

    copies = [node for op in COPYING for node in joint.graph.find_nodes(op="call_function", target=op)]
    for copy in copies:
        same = [copy]
        for node in same:  # and its views, which are added
            same += [user for user in node.users if user.args[0] is node and _is_there(user)]
        users = [(node, user) for node in same for user in node.users]
        if _is_part(copy) and any(user.target in _BY_ADDRESS and user.args[0] is node for node, user in users):
            copy.meta["recompute"] = CheckpointPolicy.MUST_RECOMPUTE


def _is_there(node: torch.fx.Node) -> bool:
    """Whether a result is in the memory of its first operand, or in a copy of that."""
    return node.target not in _BY_ADDRESS and (node.target in COPYING or getattr(node.target, "is_view", False))


def _is_part(node: torch.fx.Node) -> bool:
    """Whether there may be other elements in the memory of a result."""
    value = node.meta["val"]
    return not known_equal(value.untyped_storage().nbytes(), value.numel() * value.element_size())


def save_what_reads_mutated_inputs(joint: torch.fx.GraphModule) -> None:
    """Backward does not compute again from an input that the caller's program writes to, or from a view of one."""
    from torch.utils.checkpoint import CheckpointPolicy

    same = mutated_inputs(joint)
    for node in same:  # and its views, which are added
        same += _views(node)
    for made in _tensors_of([user for node in same for user in node.users]):
        made.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def save_what_reads_shared_memory(joint: torch.fx.GraphModule) -> None:
    """Backward does not compute again from an input or a result that no operator of backward reads itself, that is,
    which eager mode does not save. Runs before equal calls are merged: after that, the tags of backward are lost."""
    from torch.utils.checkpoint import CheckpointPolicy

    seen = set[torch.fx.Node]()
    for shared in shared_with_the_caller(joint):
        same = [owner_of(shared)]
        if same[0] in seen:
            continue
        for node in same:  # and its views, which are added
            same += _views(node)
        seen.update(same)
        users = [user for node in same for user in node.users if user not in seen]
        if all(user.op == "output" or _is_forward(user) for user in users):
            for made in _tensors_of(users):
                if not is_recomputed(made):
                    made.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def _views(node: torch.fx.Node) -> list[torch.fx.Node]:
    return [user for user in node.users if getattr(user.target, "is_view", False)]


def _tensors_of(calls: Iterable[torch.fx.Node]) -> Iterator[torch.fx.Node]:
    """The results of calls that are no views; of a call with several results each of them."""
    for call in calls:
        parts = [user for user in call.users if user.target is operator.getitem]
        for one in (call, *parts):
            if isinstance(one.meta.get("val"), torch.Tensor) and not getattr(one.target, "is_view", False):
                yield one


def owner_of(node: torch.fx.Node) -> torch.fx.Node:
    """What a view, or a view of a view, is made from."""
    while getattr(node.target, "is_view", False) and isinstance(node.args[0], torch.fx.Node):
        node = node.args[0]
    return node


def _is_forward(node: torch.fx.Node) -> bool:
    return node.meta.get("partitioner_tag") in ("is_forward", "must_be_in_forward")
