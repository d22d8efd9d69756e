"""Blocks of queries in the block mask of a ``flex_attention``, which only gradients on GPUs read.

PyTorch hands them to the operator all the same, and where the mask is made in the graph it computes them by sorting.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.fx import Node

# Of the tuple that stands for a block mask: after lengths and blocks of keys, before the sizes of a block.
_OF_QUERIES: Final = range(6, 14)


def leave_out_unread_blocks(gm: torch.fx.GraphModule) -> None:
    """On CPUs these arguments become None; what computes them is removed when the graph is traced."""
    changed = False
    for node in gm.graph.find_nodes(op="call_function", target=torch.ops.higher_order.flex_attention):
        query, blocks = node.args[0], node.args[4]
        if _device(query) == "cpu" and any(blocks[i] is not None for i in _OF_QUERIES):
            left = tuple(None if i in _OF_QUERIES else block for i, block in enumerate(blocks))
            node.update_arg(4, left)
            changed = True
    if changed:
        gm.recompile()


def _device(node: Any) -> str:
    value = node.meta.get("example_value") if isinstance(node, Node) else None
    return value.device.type if isinstance(value, torch.Tensor) else ""
