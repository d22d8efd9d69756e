"""Items at a data-dependent index that only kernels read become gathers.

Before: %n = _local_scalar_dense(%i); %v = select(%x, 1, %n); %s = sum(%v)
After:  %v = index(%x, [None, %i]);                           %s = sum(%v)

A view at a number of the host passes on the memory of all of ``x``: a cache that is written and read at one index would
be copied. A kernel reads the index itself. An item that other operators read stays a view, since a gather would copy
it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from symshape.frontend.bridge.fake_tensors import fake_mode_of

aten: Any = torch.ops.aten
_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64)
_VIEWS = (
    aten.alias.default,
    aten.detach.default,
    aten.permute.default,
    aten.slice.Tensor,
    aten.t.default,
    aten.transpose.int,
    aten.unsqueeze.default,
)


def gather_items(gm: torch.fx.GraphModule) -> None:
    """Replaces every such ``select`` by an ``index``, in place. Nodes need ``meta["val"]``."""
    mode = fake_mode_of(gm)
    for node in gm.graph.find_nodes(op="call_function", target=aten.select.int):
        x, dim, number = node.args
        if mode is None or not isinstance(number, Node) or number.target is not aten._local_scalar_dense.default:
            continue
        index: Any = number.args[0]
        like, at = x.meta["val"], index.meta["val"]
        if at.dtype not in _INTEGERS or at.dim() or at.device != like.device or not _read_by_kernels(node):
            continue
        node.target, node.args = aten.index.Tensor, (x, [*[None] * (dim % like.dim()), index])
        with mode:
            node.meta["val"] = torch.empty(node.meta["val"].shape, dtype=like.dtype, device=like.device)
            _lay_out_views(node)


def _lay_out_views(node: Node) -> None:
    """Recomputes the fake values of a node's views, whose memory has changed."""
    for user in node.users:
        if user.target in _VIEWS:
            view: Any = user.target
            user.meta["val"] = view(*map_arg(user.args, lambda one: one.meta["val"]))
            _lay_out_views(user)


def _read_by_kernels(node: Node) -> bool:
    """Whether all users of a tensor, and of its views, are operators that kernels compute."""
    return all(
        _read_by_kernels(user)
        if user.target in _VIEWS
        else user.op == "call_function"
        and not {torch.Tag.pointwise, torch.Tag.reduction}.isdisjoint(getattr(user.target, "tags", ()))
        for user in node.users
    )
