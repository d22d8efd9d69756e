"""Fills in the values of nodes of a traced graph, where a pass of PyTorch's has not set ``meta["val"]``."""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.utils._pytree as pytree

from symshape.frontend.bridge.fake_tensors import fake_mode_of


def fill_values(gm: torch.fx.GraphModule) -> None:
    """Gives every call of a graph a fake value: from its ``getitem`` users, else by running it on the fake values of
    its operands. A call that cannot be run gets none, and is a library call without known results."""
    missing = [node for node in gm.graph.nodes if node.op == "call_function" and "val" not in node.meta]
    for node in missing:
        node.meta["val"] = _from_parts(node) or _run(gm, node)


def _from_parts(node: torch.fx.Node) -> tuple[Any, ...] | None:
    parts: dict[Any, Any] = {
        user.args[1]: user.meta["val"] for user in node.users if user.target is operator.getitem and "val" in user.meta
    }
    if len(parts) < len(node.users) or not all(isinstance(position, int) for position in parts):
        return None
    return tuple(parts.get(i) for i in range(max(parts, default=-1) + 1))


def _run(gm: torch.fx.GraphModule, node: torch.fx.Node) -> Any:
    def value(one: torch.fx.Node) -> Any:
        return getattr(gm, str(one.target)) if one.op == "get_attr" and "val" not in one.meta else one.meta["val"]

    mode = fake_mode_of(gm)
    if mode is None or not callable(node.target):
        return None
    args, kwargs = pytree.tree_map_only(torch.fx.Node, value, (node.args, node.kwargs))
    try:
        with mode:
            return node.target(*args, **kwargs)
    except Exception:  # noqa: BLE001 - whatever has no rule for traced values
        return None
