"""Calls of ``torch.autograd.grad`` in a graph: which can be traced, and which break it.

The gradients are a part of the graph, and can be differentiated. Calls that fail in a trace, or would lose gradients,
run in eager mode.
"""

from __future__ import annotations

from typing import NoReturn

import torch

from symshape.errors import SymshapeError
from symshape.frontend.opaque_calls.frame_decisions import break_graph

_CREATE_GRAPH = 4  # its position


def is_gradient(node: torch.fx.Node) -> bool:
    return node.target is torch.autograd.grad


def refuse_lost_gradients(node: torch.fx.Node) -> None:
    """Breaks the graph if gradients will be differentiated again through a ``torch.autograd.Function``: Dynamo makes it
    an operator whose own gradient has no gradient, and raises no error."""
    if not is_gradient(node) or not _is_differentiated(node):
        return
    if any(str(one.target) == "autograd_function_apply" for one in node.graph.nodes):
        break_graph(node, "the gradient of a torch.autograd.Function cannot be differentiated in a graph")


def _is_differentiated(node: torch.fx.Node) -> bool:
    given = node.args[_CREATE_GRAPH] if len(node.args) > _CREATE_GRAPH else node.kwargs.get("create_graph", False)
    return bool(given)


def break_at_gradient(node: torch.fx.Node, error: Exception) -> NoReturn:
    """Eager mode computes what cannot be traced, or raises its own error."""
    break_graph(node, cannot_be_traced(error.__cause__ or error), error)


def cannot_be_traced(error: BaseException) -> str:
    return f"its gradients cannot be traced: {(str(error).splitlines() or [type(error).__name__])[0]}"


def failing_gradient(gm: torch.fx.GraphModule, error: Exception) -> torch.fx.Node | None:
    """The first call whose gradients may be what PyTorch cannot trace: an operator in them may have none."""
    if isinstance(error, SymshapeError):
        return None
    return next((node for node in gm.graph.nodes if is_gradient(node)), None)
