"""Rewrites of the joint graph (forward and backward) before PyTorch's partitioner splits it."""

from __future__ import annotations

from collections.abc import Callable

import torch

from symshape.frontend.graph_rewrites.collectives import keep_collectives
from symshape.frontend.graph_rewrites.common_subexpressions import merged_nodes
from symshape.frontend.graph_rewrites.draw_order import keep_draws
from symshape.frontend.graph_rewrites.kept_graphs import keep_graphs
from symshape.frontend.graph_rewrites.known_numbers import fold_numbers
from symshape.frontend.graph_rewrites.saved_for_backward import (
    recompute_addressed_memory,
    save_what_is_compared,
    save_what_reads_mutated_inputs,
    save_what_reads_shared_memory,
)
from symshape.frontend.graph_rewrites.symbols_of_backward import keep_symbols

Rewrite = Callable[[torch.fx.GraphModule], torch.fx.GraphModule]


def ready_to_split(rewrite: Rewrite) -> Rewrite:
    """A rewrite for AOTAutograd's joint graph: ``rewrite``, then CSE, folding of known sizes, opaque calls that keep
    their autograd graph, and tags for PyTorch's partitioner on what must be saved, recomputed, or not moved
    (``meta["recompute"]``)."""

    def prepare(joint: torch.fx.GraphModule) -> torch.fx.GraphModule:
        joint = rewrite(joint)
        save_what_reads_shared_memory(joint)
        joint.graph = merged_nodes(joint.graph)
        fold_numbers(joint)
        keep_graphs(joint)
        save_what_reads_mutated_inputs(joint)
        recompute_addressed_memory(joint)
        save_what_is_compared(joint)
        keep_draws(joint)
        keep_collectives(joint)
        keep_symbols(joint)
        return joint

    return prepare
