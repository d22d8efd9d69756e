"""Propagates a change of layout: the layouts of results that follow, and copies where the traced layout is required.

Before: %y = conv(%x) : contiguous;    %z = tanh(%y) : contiguous;    %v = view(%z, ...)
After:  %y = conv2(%x) : channels-last; %z = tanh(%y) : channels-last; %c = clone(%z) : contiguous; %v = view(%c, ...)

Operators whose results are laid out as their operands are get new fake values. Operands of all other nodes, and results
of the graph, are copied into the layout that was traced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from symshape.frontend.bridge.layouts import elementwise_order
from symshape.frontend.bridge.operators import is_view
from symshape.frontend.bridge.symbolic_sizes import expression_of

aten: Any = torch.ops.aten
prims: Any = torch.ops.prims

# Laid out as their operands, by their fake rules as by what runs.
_FOLLOWING: Final = frozenset(
    {
        aten._adaptive_avg_pool2d.default,
        aten._to_copy.default,
        aten._unsafe_index.Tensor,
        aten.avg_pool2d.default,
        aten.cat.default,
        aten.clone.default,
        aten.constant_pad_nd.default,
        aten.convolution.default,
        aten.index.Tensor,
        aten.unfold.default,
        prims.convert_element_type.default,
    }
)
# What reads operands in any layout, and has the results that were traced: kernels of ours, and sizes.
_READING: Final = frozenset(
    {
        aten.amax.default,
        aten.amin.default,
        aten.mean.default,
        aten.mean.dim,
        aten.sum.default,
        aten.sum.dim_IntList,
        aten.sym_numel.default,
        aten.sym_size.int,
    }
)
# What sizes and strides alone decide, or memory is addressed with.
_ADDRESSING: Final = frozenset({aten.as_strided.default, aten.view.default, aten._unsafe_view.default})


class Layouts:
    """The fake values of a graph in which nodes are replaced by nodes whose results have another layout."""

    def __init__(self, gm: torch.fx.GraphModule, mode: Any) -> None:
        self._gm, self._mode = gm, mode
        self._traced: dict[Node, torch.Tensor] = {}  # of nodes in another layout: the fake value that was traced
        self._copies: dict[Node, Node] = {}
        self.conversions = 0  # copies that nodes of the graph read, without those that it returns
        self._any_layout: set[Node] = set()
        self._dense: set[Node] = set()  # of those in another layout: with memory of their own

    def replace(self, old: Sequence[Node], new: Node) -> None:
        """``new``, whose result is dense, replaces ``old``, of which only the last node is read elsewhere."""
        old[-1].replace_all_uses_with(new)
        self._dense.add(new)
        self._note(new, old[-1].meta["val"])
        for node in reversed(old):
            self._gm.graph.erase_node(node)

    def takes_any_layout(self, node: Node) -> None:
        """Operands of ``node`` are not copied into the layout that was traced."""
        self._any_layout.add(node)

    def _note(self, node: Node, traced: torch.Tensor) -> None:
        if _strides(node.meta["val"]) != _strides(traced):
            self._traced[node] = traced

    def propagate(self) -> None:
        """Gives nodes new fake values, or copies of their operands. Called once, after all replacements."""
        for node in list(self._gm.graph.nodes):
            changed = [one for one in node.all_input_nodes if one in self._traced]
            if not changed or node in self._any_layout or node.target in _READING:
                continue
            if node.op != "call_function" or not self._follows(node):
                for one in changed:
                    node.replace_input_with(one, self._as_traced(one, node))

    def _follows(self, node: Node) -> bool:
        """Gives a node a new fake value and returns True if its result is laid out as its operands are."""
        traced = node.meta.get("val")
        if not isinstance(traced, torch.Tensor) or not _may_follow(node):
            return False
        with self._mode, torch.no_grad():
            node.meta["val"] = self._elementwise(node, traced)
            if node.meta["val"] is None:
                target: Any = node.target
                args, kwargs = map_arg((node.args, node.kwargs), lambda one: one.meta["val"])
                node.meta["val"] = target(*args, **kwargs)
        self._note(node, traced)
        return True

    def _elementwise(self, node: Node, traced: torch.Tensor) -> torch.Tensor | None:
        """The result of an elementwise operator whose operands of full rank are laid out alike, and dense; else None.
        The operator's own rule takes a hundred times as long."""
        if torch.Tag.pointwise not in getattr(node.target, "tags", ()):
            return None
        full = [one for one in node.all_input_nodes if not _has_fewer_elements(one, traced)]
        layouts = {tuple(_strides(one.meta["val"])) for one in full}
        if len(layouts) != 1 or not self._dense.issuperset(full):
            return None
        self._dense.add(node)
        strides = full[0].meta["val"].stride()
        return torch.empty_strided(traced.shape, strides, dtype=traced.dtype, device=traced.device)

    def _as_traced(self, node: Node, reader: Node) -> Node:
        """A copy of a node's result in the layout that was traced, inserted before its first such reader."""
        if node not in self._copies:
            self.conversions += reader.op != "output"
            order = elementwise_order(self._traced[node])
            with self._gm.graph.inserting_before(reader):
                copy = self._call(node, aten.permute.default, order)
                copy = self._call(copy, aten.clone.default, memory_format=torch.contiguous_format)
                copy = self._call(copy, aten.permute.default, [order.index(dim) for dim in range(len(order))])
            self._copies[node] = copy
        return self._copies[node]

    def _call(self, node: Node, target: Any, *args: Any, **kwargs: Any) -> Node:
        made = self._gm.graph.call_function(target, (node, *args), kwargs)
        with self._mode, torch.no_grad():
            made.meta = {**node.meta, "val": target(node.meta["val"], *args, **kwargs)}
        return made


def _may_follow(node: Node) -> bool:
    target = node.target
    if target in _ADDRESSING or node.kwargs.get("memory_format") not in (None, torch.preserve_format):
        return False
    return target in _FOLLOWING or is_view(target) or torch.Tag.pointwise in getattr(target, "tags", ())


def _has_fewer_elements(node: Node, result: torch.Tensor) -> bool:
    """Whether an operand is not a tensor, has fewer dims than the result, or has size 1 where the result has another
    size."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return True
    if value.dim() != result.dim():
        return value.dim() < result.dim()
    return any(
        isinstance(a, int) and a == 1 and not (isinstance(b, int) and b == 1) for a, b in zip(value.shape, result.shape)
    )


def _strides(value: torch.Tensor) -> list[Any]:
    return [stride if isinstance(stride, int) else expression_of(stride) for stride in value.stride()]
