"""Tags for PyTorch's partitioner: values that forward must save for backward, or that backward must recompute.

The partitioner chooses by cost (minimum cut). ``joint_graph`` runs these functions before it.

**Must be saved: values computed from an input that is mutated later.** Autograd rejects saving a tensor that is
mutated: ``y = x * m.exp(); m.mul_(2)`` would be an error that eager mode does not raise.

**Must be saved: values computed from memory that the caller can write to, if eager mode does not save that memory.**
Saving a result costs nothing, so the partitioner saves it: for ``y = x + 1; return y, y.tanh()`` it would save ``y``
where eager mode saves ``tanh(y)``. A caller that then writes to ``y`` (``logits[:, pad] = -inf``) would get an error
that eager mode does not raise; one that writes to an input without autograd noticing (an environment that fills one
buffer of observations) would get a wrong gradient. Parameters are excluded: eager mode saves most of them, and they
change between two steps.

**Must be saved: operands of comparisons of a half type.** A kernel rounds values that it stores, but not values that it
passes on in registers: ``exp`` of a stored value is not the ``exp`` that forward computed. Near a threshold that does
not matter. But the gradient of a maximum compares elements with it bit by bit: if they were recomputed from other
values, none might be equal, and the gradient divides by their number.

**Must be recomputed: a copy of memory that was written in part, if it is read by address (``as_strided``).** Forward
writes the part into memory that it returns, with other data around it; backward makes its own copy.
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
    """Tags operands of comparisons of a half type as saved. For views, parts of results and conversions their source is
    tagged."""
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
    """Tags copies that are written in part and read by address as recomputed: backward must not read forward's memory
    around the part."""
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
    """Whether a result is in the memory of its first operand, or in a copy of it at the same address."""
    return node.target not in _BY_ADDRESS and (node.target in COPYING or getattr(node.target, "is_view", False))


def _is_part(node: torch.fx.Node) -> bool:
    """Whether the memory of a result may hold other elements than its own."""
    value = node.meta["val"]
    return not known_equal(value.untyped_storage().nbytes(), value.numel() * value.element_size())


def save_what_reads_mutated_inputs(joint: torch.fx.GraphModule) -> None:
    """Tags values computed from a mutated input, or from a view of one, as saved."""
    from torch.utils.checkpoint import CheckpointPolicy

    same = mutated_inputs(joint)
    for node in same:  # and its views, which are added
        same += _views(node)
    for made in _tensors_of([user for node in same for user in node.users]):
        made.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def save_what_reads_shared_memory(joint: torch.fx.GraphModule) -> None:
    """Tags values computed from an input or a result that backward does not read directly (so that eager mode does not
    save it) as saved. Must run before CSE, which drops the tags of backward nodes."""
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
    """The tensor results of calls that are not views; for a call with several results each of them."""
    for call in calls:
        parts = [user for user in call.users if user.target is operator.getitem]
        for one in (call, *parts):
            if isinstance(one.meta.get("val"), torch.Tensor) and not getattr(one.target, "is_view", False):
                yield one


def owner_of(node: torch.fx.Node) -> torch.fx.Node:
    """The node whose memory a view, or a view of a view, shares."""
    while getattr(node.target, "is_view", False) and isinstance(node.args[0], torch.fx.Node):
        node = node.args[0]
    return node


def _is_forward(node: torch.fx.Node) -> bool:
    return node.meta.get("partitioner_tag") in ("is_forward", "must_be_in_forward")
