"""On GPUs, splits matrix products with a bias: the product alone, and an addition that fuses with its readers.

Before: %h = addmm(%bias, %a, %b); %y = gelu(view(%h))
After:  %p = mm(%a, %b); %h = add(%p, %bias); %y = gelu(view(%h)), where the addition is in gelu's kernel

cuBLAS adds a bias in the epilogue of a product, and then does not use its split-K kernels, the fastest ones for few
rows. (As Inductor's ``unfuse_bias_add_to_pointwise``.)
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.fx import Node

from symshape.frontend.bridge.fake_tensors import fake_mode_of
from symshape.frontend.bridge.operators import is_view

aten: Any = torch.ops.aten
# In narrower types the sum would be rounded twice: cuBLAS adds in float32.
_TYPES: Final = (torch.float32, torch.float64)


def split_biases(gm: torch.fx.GraphModule) -> None:
    """Splits every ``addmm`` with a bias of one row and factors of 1 whose users are all pointwise, in place. Nodes
    need ``meta["val"]``."""
    mode = fake_mode_of(gm)
    for node in gm.graph.find_nodes(op="call_function", target=aten.addmm.default):
        if mode is None or node.kwargs or not _is_row(node) or not _read_by_kernels(node):
            continue
        bias, a, b = node.args
        value = node.meta["val"]
        with gm.graph.inserting_before(node):
            product = gm.graph.call_function(aten.mm.default, (a, b))
        with mode:
            made = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=value.device)
        product.meta = {**node.meta, "val": made}
        node.target, node.args = aten.add.Tensor, (product, bias)


def _is_row(node: Node) -> bool:
    bias: Any = node.args[0]
    return bias.meta["val"].dim() == 1 and node.meta["val"].dtype in _TYPES


def _read_by_kernels(node: Node) -> bool:
    """Whether all users of a tensor, and of its views, are pointwise operators."""
    return all(
        _read_by_kernels(user)
        if is_view(user.target) or user.target is aten._unsafe_view.default
        else user.op == "call_function" and torch.Tag.pointwise in getattr(user.target, "tags", ())
        for user in node.users
    )
