"""Replaces nodes of a traced graph whose values are known numbers by these numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.node import map_arg


def fold_numbers(joint: torch.fx.GraphModule) -> None:
    """Replaces sizes of a joint graph that are known numbers (of a slice of an empty tensor: 0) by these, in place.

    PyTorch's partitioner asks for the cost of saving each value, and fails for a number.
    """
    folded = [node for node in joint.graph.nodes if _is_known(node)]
    for user in {user: None for node in folded for user in node.users}:
        user.args, user.kwargs = map_arg((user.args, user.kwargs), _known)
    for node in reversed(folded):
        joint.graph.erase_node(node)


def _is_known(node: torch.fx.Node) -> bool:
    return node.op == "call_function" and type(node.meta.get("val")) in (int, float, bool)


def _known(arg: torch.fx.Node) -> Any:
    return arg.meta["val"] if _is_known(arg) else arg
