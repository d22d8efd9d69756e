"""Opaque calls of forward keep their autograd graph for backward, where the gradient would run them again.

Before: ``results = opaque_call(call, tensors, sizes)``, and in backward ``opaque_call_gradient(call, tensors, sizes,
wanted, gradients)``. After: ``*results, ticket = opaque_call_kept(call, tensors, sizes, wanted)`` and
``opaque_call_gradient(..., ticket)`` (`runtime/kept_graph.py`).

What the graph keeps is alive until backward, so operands are saved too: to compute them again would take time, and be
for nothing. Calls of a checkpoint are run again in backward, and it is that run's graph that is differentiated there.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any, Final

import torch

from symshape.frontend.bridge.aot_autograd import is_recomputed
from symshape.frontend.graph_rewrites.saved_for_backward import owner_of
from symshape.runtime.opaque_call import opaque_call, opaque_call_gradient, opaque_call_kept
from symshape.runtime.opaque_random_call import (
    opaque_random_call,
    opaque_random_call_gradient,
    opaque_random_call_kept,
)

_GRADIENTS: Final[Mapping[Any, tuple[Any, Any]]] = {
    opaque_call_gradient: (opaque_call, opaque_call_kept),
    opaque_random_call_gradient: (opaque_random_call, opaque_random_call_kept),
}


def keep_graphs(joint: torch.fx.GraphModule) -> None:
    """Changes the opaque calls of a joint graph that a gradient in it runs again."""
    for target, (plain, kept) in _GRADIENTS.items():
        for gradient in joint.graph.find_nodes(op="call_function", target=target):
            wanted = gradient.args[-2]
            calls = [call for one in (plain, kept) for call in joint.graph.find_nodes(op="call_function", target=one)]
            found = next((call for call in calls if _is_gradient_of(gradient, call, wanted)), None)
            if found is not None:
                gradient.args = (*gradient.args, _ticket(found, kept, wanted))


def _is_gradient_of(gradient: torch.fx.Node, call: torch.fx.Node, wanted: Any) -> bool:
    """Whether a gradient is that of this call, by these operands."""
    if list(call.args[:3]) != list(gradient.args[:3]) or call.args[3:] not in ((), (wanted,)):
        return False
    state = gradient.args[3]
    return not isinstance(state, torch.fx.Node) or state.args[0] is call  # of two calls that draw each has its own


def _ticket(call: torch.fx.Node, kept: Any, wanted: Any) -> torch.fx.Node:
    """The ticket of a call, which is made one that has it."""
    from torch.utils.checkpoint import CheckpointPolicy

    count = len(call.meta["val"]) - (call.target is kept)
    if call.target is kept:
        return next(user for user in call.users if user.args[1] == count)
    call.target, call.args = kept, (*call.args, wanted)
    (like, *_) = call.meta["val"]
    value = like.new_empty((1,), dtype=torch.uint8, device="cpu")
    call.meta["val"] = [*call.meta["val"], value]
    with call.graph.inserting_after(call):
        ticket = call.graph.call_function(operator.getitem, (call, count))
    ticket.meta.update({k: v for k, v in call.meta.items() if k != "unbacked_bindings"}, val=value)
    operands: Any = call.args[1]
    if not is_recomputed(call):
        for node in (ticket, *map(owner_of, operands)):
            if node.op == "call_function":
                node.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    return ticket
