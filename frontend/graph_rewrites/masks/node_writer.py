"""Writes new nodes into a graph, with the metadata that the rest of the compiler reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node, map_arg

from symshape.frontend.bridge.fake_tensors import shape_env_of_mode
from symshape.frontend.graph_rewrites.masks.mask_space import Cannot, Compact, Space
from symshape.runtime.torch_c import user_lines

aten: Any = torch.ops.aten
prims: Any = torch.ops.prims

# What describes the value of the node that is replaced, not where it comes from.
_OF_THE_VALUE = frozenset({"val", "tensor_meta", "unbacked_bindings", "eager_input_vals", "original_aten"})


class Writer:
    """Inserts nodes before ``at``, with its source location and a fake value."""

    def __init__(self, graph: torch.fx.Graph, mode: Any) -> None:
        self.graph, self.mode, self.env = graph, mode, shape_env_of_mode(mode)
        self.at: Node | None = None
        self.made: dict[Node, Node] = {}  # and the node that each one is part of replacing

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        assert self.at is not None
        with self.graph.inserting_before(self.at):
            node = self.graph.call_function(target, args, kwargs)
        node.meta = {key: value for key, value in self.at.meta.items() if key not in _OF_THE_VALUE}
        self.made[node] = self.at
        read, named = map_arg((args, kwargs), lambda operand: operand.meta["val"])
        try:
            with self.mode:
                node.meta["val"] = target(*read, **named)
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            raise Cannot(f"{target} of the whole tensor cannot be traced: {str(error).splitlines()[0]}") from error
        return node

    def sizes(self, node: Node) -> list[Any]:
        """The sizes of a tensor, each an integer or a node."""
        value = node.meta["val"]
        return [
            size if isinstance(size, int) else self.call(aten.sym_size.int, node, d)
            for d, size in enumerate(value.size())
        ]

    def scalar(self, value: Any, like: torch.Tensor) -> Node:
        return self.call(aten.scalar_tensor.default, value, dtype=like.dtype, device=like.device)

    def cast(self, node: Node, dtype: torch.dtype) -> Node:
        if node.meta["val"].dtype == dtype:
            return node
        return self.call(prims.convert_element_type.default, node, dtype)

    def reshape(self, node: Node, sizes: Sequence[Any]) -> Node:
        """A view with these sizes; of a copy where the strides do not allow a view."""
        try:
            return self.call(aten.view.default, node, list(sizes))
        except Cannot:
            copy = self.call(aten.clone.default, node, memory_format=torch.contiguous_format)
            return self.call(aten.view.default, copy, list(sizes))

    def unsqueeze(self, node: Node, dim: int, times: int = 1) -> Node:
        for _ in range(times):
            node = self.call(aten.unsqueeze.default, node, dim)
        return node

    def count(self, space: Space) -> Node:
        """The number of selected elements, a 0-dim i64 tensor."""
        if space.count is None:
            space.count = self.call(aten.sum.default, space.mask)
        return space.count

    def ranks(self, space: Space) -> Node:
        """The number of selected elements up to and including each element of the flattened mask."""
        if space.ranks is None:
            flat = self.reshape(space.mask, [-1]) if space.rank > 1 else space.mask
            space.ranks = self.call(aten.cumsum.default, flat, 0)
        return space.ranks

    def mask_of(self, space: Space, trailing: int) -> Node:
        """The mask with ``trailing`` dims of size 1 behind its own, so that it broadcasts over a tensor."""
        return self.unsqueeze(space.mask, -1, trailing)

    def selected(self, value: Compact, rank: int, other: Any) -> Node:
        """The full form with ``other`` where the mask is false; ``rank``: that of the compact tensor."""
        mask = self.mask_of(value.space, rank - 1 - value.dim)
        hidden = other if isinstance(other, Node) else self.scalar(other, value.full.meta["val"])
        return self.call(aten.where.self, mask, value.full, hidden)

    def require(self, condition: Node, message: str) -> None:
        """Raises eager mode's RuntimeError where the condition, a 0-dim bool tensor, is false. No synchronisation on a
        GPU."""
        assert self.at is not None
        lines = user_lines(self.at)
        line = f" ({lines[-1][0]}:{lines[-1][1]})" if lines else ""
        self.call(aten._assert_async.msg, condition, message + line)
