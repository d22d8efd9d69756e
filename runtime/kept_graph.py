"""An autograd graph of eager mode that lives from a program's forward to its backward.

Between the two a program hands on tensors alone: one small tensor, the ticket, holds the graph as an attribute. It
lives as long as whatever saves it for backward does, and the graph no longer: where backward never comes, where it
comes several times (``retain_graph=True``), or where forward runs several times before. A copy of a ticket (hooks of
saved tensors that move or store them) holds no graph, and one that a backward has used up is gone: what is
differentiated is then computed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from symshape.runtime.torch_c import differentiated, keeps_graph

_HELD = "symshape_graph"


class KeptGraph:
    """What leads from results to the operands that are differentiated by.

    It holds the nodes of the results, and not the results: those are kept by what needs their values.
    """

    def __init__(self, results: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor]) -> None:
        edge = torch.autograd.graph.get_gradient_edge
        self.ends = [edge(result) if result.requires_grad else None for result in results]
        self.leaves = leaves
        self.used_up = False

    def gradients(self, gradients: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """One for each leaf; None where the results that have a gradient do not depend on it."""
        pairs = [(end, g) for end, g in zip(self.ends, gradients, strict=True) if g is not None and end is not None]
        if not pairs:
            return [None] * len(self.leaves)
        # Each part of the graph is freed as soon as in eager mode, if backward does not come again. A batch of tangents
        # does: it runs the program of backward for each, in one backward that keeps nothing.
        kept = keeps_graph()
        self.used_up = not kept
        with differentiated():
            found = torch.autograd.grad(
                [end for end, _ in pairs], self.leaves, [g for _, g in pairs], retain_graph=kept, allow_unused=True
            )
        return list(found)

    def __reduce__(self) -> Any:
        """A copy of a ticket has no graph."""
        return _nothing, ()


def _nothing() -> None:
    return None


def ticket_for(graph: KeptGraph) -> torch.Tensor:
    ticket = new_ticket()
    setattr(ticket, _HELD, graph)
    return ticket


def new_ticket() -> torch.Tensor:
    """One that holds nothing. Not empty: tensors without elements need not be handed on."""
    return torch.zeros(1, dtype=torch.uint8, device="cpu")


def graph_of(ticket: torch.Tensor | None) -> KeptGraph | None:
    """None for a ticket without, and for none."""
    graph: KeptGraph | None = getattr(ticket, _HELD, None)
    return None if graph is None or graph.used_up else graph
