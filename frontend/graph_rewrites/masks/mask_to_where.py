"""The table of the rewrite mask-to-where: rules by operator, and the report of each mask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from symshape.frontend.bridge.fake_tensors import fake_mode_of
from symshape.frontend.graph_rewrites.common_subexpressions import common_subexpressions
from symshape.frontend.graph_rewrites.masks import indexed_accesses
from symshape.frontend.graph_rewrites.masks import masked_assignments as assignments
from symshape.frontend.graph_rewrites.masks import masked_reads as reads
from symshape.frontend.graph_rewrites.masks import masked_reductions as reductions
from symshape.frontend.graph_rewrites.masks import masked_shapes as shapes
from symshape.frontend.graph_rewrites.masks import pointwise_operations as pointwise
from symshape.frontend.graph_rewrites.masks.graph_walk import Found, Rewriter
from symshape.frontend.graph_rewrites.masks.mask_space import Component
from symshape.runtime.torch_c import user_lines

NAME = "mask-to-where"
SOURCES = reads.SOURCES | assignments.SOURCES
RULES: dict[Any, Callable[[Rewriter, Node], Found]] = {
    **pointwise.RULES,
    **shapes.RULES,
    **reductions.RULES,
    **indexed_accesses.RULES,
    **assignments.RULES,
    **reads.RULES,
}


@dataclass(frozen=True)
class MaskReport:
    """The outcome for the values under one mask. ``mask``: its name in the graph; ``source``: ``file:line`` of its
    first use; ``operations``: those that were rewritten, or would have been; ``reason``: why they were not rewritten,
    else ""."""

    mask: str
    source: str
    operations: tuple[str, ...]
    reason: str = ""

    def __str__(self) -> str:
        chain = ", ".join(self.operations)
        what = f"kept: {self.reason}" if self.reason else f"rewritten: {chain}"
        return f"mask {self.mask} ({self.source}): {what}" if self.source else f"mask {self.mask}: {what}"


def rewrite_masks(gm: torch.fx.GraphModule) -> tuple[torch.fx.GraphModule, list[MaskReport]]:
    """The graph with every mask rewritten that can be, and a report for each group of values under masks.

    Nodes need ``meta["val"]``. The graph is the given one, changed in place, or a copy with equal nodes merged (so that
    equal masks are one).
    """
    if not any(_begins(node) for node in gm.graph.nodes):
        return gm, []
    gm = common_subexpressions(gm)
    mode = fake_mode_of(gm)
    if mode is None:
        return gm, []
    rewriter = Rewriter(gm.graph, mode)
    components = rewriter.run(RULES, SOURCES, pointwise.pointwise)
    gm.graph.lint()
    gm.recompile()
    return gm, [_report(rewriter, component) for component in components if component.spaces]


def _begins(node: Node) -> bool:
    """Whether a node may select by a mask. Most graphs have no such node."""
    if node.target not in SOURCES:
        return False
    if node.target not in (reads.aten.index.Tensor, *assignments.INDEXED):
        return True
    indices: Any = node.args[1]
    return any(i is not None and i.meta["val"].dtype == torch.bool for i in indices)


def _report(rewriter: Rewriter, component: Component) -> MaskReport:
    nodes = [node for node, own in rewriter.components.items() if own.root() is component]
    masks = dict.fromkeys(space.origin.name for space in component.spaces)
    lines = next((found for node in nodes if (found := user_lines(node))), [])
    line = f"{lines[-1][0]}:{lines[-1][1]}" if lines else ""
    reason = ""
    if component.reasons:
        why, node = component.reasons[0]
        at = user_lines(node)
        reason = f"{why} ({at[-1][0]}:{at[-1][1]})" if at else why
    return MaskReport(", ".join(masks), line, tuple(dict.fromkeys(component.patterns)), reason)
