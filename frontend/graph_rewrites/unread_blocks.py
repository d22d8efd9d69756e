"""Removes the lists of query blocks from the block mask of a ``flex_attention``; only gradients read them.

PyTorch passes them to the operator in any case, and where the mask is computed in the graph, it computes them by
sorting.
"""

from __future__ import annotations

from typing import Any, Final

import torch

# Of the tuple that stands for a block mask: after the lengths and the blocks of keys, before the sizes of a block and
# the mask function. Its length differs between versions of PyTorch.
_OF_QUERIES: Final = slice(6, -3)


def drop_unread_blocks(gm: torch.fx.GraphModule) -> None:
    """Replaces these arguments by None in a Dynamo graph, on CPUs, where nothing requires gradients. Dead code
    elimination removes what computes them."""
    changed = False
    for node in gm.graph.find_nodes(op="call_function", target=torch.ops.higher_order.flex_attention):
        blocks: Any = node.args[4]
        values = [one.meta.get("example_value") for one in node.all_input_nodes]
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        read = any(tensor.requires_grad or tensor.device.type != "cpu" for tensor in tensors)
        unread = blocks[_OF_QUERIES]
        if not read and any(block is not None for block in unread):
            node.update_arg(4, (*blocks[: _OF_QUERIES.start], *(None for _ in unread), *blocks[_OF_QUERIES.stop :]))
            changed = True
    if changed:
        gm.recompile()
