"""Blocks of queries in the block mask of a ``flex_attention``, which only gradients read.

PyTorch hands them to the operator all the same, and where the mask is made in the graph it computes them by sorting.
"""

from __future__ import annotations

from typing import Any, Final

import torch

# Of the tuple that stands for a block mask: after lengths and blocks of keys, before the sizes of a block.
_OF_QUERIES: Final = range(6, 14)


def leave_out_unread_blocks(gm: torch.fx.GraphModule) -> None:
    """On CPUs, where nothing requires gradients, these arguments become None; what computes them is removed when the
    graph is traced."""
    changed = False
    for node in gm.graph.find_nodes(op="call_function", target=torch.ops.higher_order.flex_attention):
        blocks: Any = node.args[4]
        values = [one.meta.get("example_value") for one in node.all_input_nodes]
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        read = any(tensor.requires_grad or tensor.device.type != "cpu" for tensor in tensors)
        if not read and any(blocks[i] is not None for i in _OF_QUERIES):
            node.update_arg(4, tuple(None if i in _OF_QUERIES else block for i, block in enumerate(blocks)))
            changed = True
    if changed:
        gm.recompile()
