"""Keeps the messages of ``torch._check`` that is decided at call time. PyTorch inserts such a check into Dynamo's graph
as an assertion; before 2.13 with a text of its own instead of the user's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._dynamo import output_graph

from symshape.frontend.patches.patch import Changes

OWN_TEXT = "Runtime assertion failed for expression "
_END = " on node "


def asserts_keep_messages(changes: Changes) -> None:
    """Gives the assertion the user's message if that is constant, as PyTorch does since 2.13."""
    changes.wrap(output_graph, "insert_deferred_runtime_asserts", _inserting)


@functools.cache
def _inserting(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def insert(gm: torch.fx.GraphModule, shape_env: Any, name: str, export: bool = False) -> None:
        messages: dict[str, str] = {}
        for condition, message in _checks(gm):
            messages.setdefault(condition, message)
        original(gm, shape_env, name, export=export)
        for node in gm.graph.find_nodes(op="call_function", target=torch.ops.aten._assert_scalar.default):
            text = str(node.args[1])
            condition = text.removeprefix(OWN_TEXT).rpartition(_END)[0]
            if text.startswith(OWN_TEXT) and condition in messages:
                node.update_arg(1, messages[condition])

    return insert


def _checks(gm: torch.fx.GraphModule) -> Iterator[tuple[str, str]]:
    """Pairs of each checked condition over sizes, in PyTorch's text, and its message."""
    for node in gm.graph.find_nodes(op="call_function", target=torch._check):
        condition, message = (*node.args, None, None)[:2]
        value = condition.meta.get("example_value") if isinstance(condition, torch.fx.Node) else None
        text = _constant(gm, message)
        if isinstance(value, torch.SymBool) and text is not None:
            yield str(value.node.expr), text


def _constant(gm: torch.fx.GraphModule, message: Any) -> str | None:
    """The result of a message function without arguments and free names; None for other messages."""
    if not isinstance(message, torch.fx.Node) or message.op != "get_attr":
        return None
    code = getattr(getattr(gm, str(message.target), None), "__code__", None)
    if code is None or code.co_names or code.co_freevars or code.co_argcount:
        return None
    return str(getattr(gm, str(message.target))())
