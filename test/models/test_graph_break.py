"""A forced graph break: the graphs on both sides are dynamic, and no size is compiled again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from symshape.tools.measure import Graphs, relative_error

SHAPES = ((4, 6), (2, 9), (7, 3), (5, 5), (16, 16), (3, 31), (8, 64), (13, 2), (33, 17), (6, 127))


class _Broken(torch.nn.Module):
    """Two halves that Dynamo cannot trace as one; sizes and a Python integer cross the break."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(32, 48)
        self.norm = torch.nn.LayerNorm(48)
        self.second = torch.nn.Linear(48, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.nn.functional.gelu(self.norm(self.first(x)))
        length = hidden.shape[1] + 1
        torch._dynamo.graph_break()
        scaled = torch.softmax(self.second(hidden) / length, dim=1)
        return scaled.reshape(x.shape[0], -1) * length


def test_graph_break_keeps_both_halves_dynamic(compiled: Callable[[Any], Any]) -> None:
    torch.manual_seed(0)
    module = _Broken().eval()
    with Graphs() as graphs, torch.no_grad():
        ours = compiled(module)
        for index, (batch, length) in enumerate(SHAPES):
            x = torch.randn(batch, length, 32, generator=torch.Generator().manual_seed(index))
            assert relative_error(ours(x), module(x)) <= 1e-4
            assert graphs.read().graphs == 2, "a graph was compiled again for another size"
    assert graphs.recompiles == 0
    assert sum(graphs.breaks.values()) >= 1
