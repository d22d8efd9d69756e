"""llvm/torch-mlir#4743: attention of several heads, batch and sequence dynamic, is silently wrong where views are
lowered by guessing which of their sizes belong together. Here batch, heads, sequences and widths meet as equal
numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from symshape.tools.measure import Graphs, relative_error

# batch x queries x keys: equal to each other, to the heads, to the width of a head, and prime.
SHAPES = ((2, 7, 7), (4, 4, 4), (8, 8, 8), (3, 32, 8), (5, 13, 4), (32, 2, 3), (7, 31, 17), (4, 8, 32))
HEADS, WIDTH = 4, 32


class Attention(nn.Module):
    """By hand, with both ways to split heads; the library's own module; a mask for each head."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(WIDTH, 3 * WIDTH)
        self.library = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, memory: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        batch, length, _ = x.shape
        query, _, _ = self.project(x).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        _, key, value = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.project(memory).chunk(3, -1))
        scores = (query @ key.mT) / WIDTH**0.5 + mask[:, None, None, :]
        heads = torch.softmax(scores, -1) @ value
        own = self.out(heads.transpose(1, 2).reshape(batch, length, WIDTH))
        library, weights = self.library(own, memory, memory, need_weights=True)
        return own + library, weights


def test_multi_head_attention(compiled: Callable[[Any], Any]) -> None:
    torch.manual_seed(0)
    module = Attention()
    with Graphs() as graphs:
        ours = compiled(module)
        for batch, queries, keys in SHAPES:
            leaves = torch.randn(batch, queries, WIDTH), torch.randn(batch, keys, WIDTH), torch.randn(batch, keys)
            found = []
            for function in (ours, module):
                module.zero_grad()
                inputs = [leaf.clone().requires_grad_() for leaf in leaves]
                outputs = function(*inputs)
                sum(output.square().sum() for output in outputs).backward()
                found.append([*outputs, *(one.grad for one in inputs), *(p.grad.clone() for p in module.parameters())])
            assert relative_error(*found) <= 2e-4, (batch, queries, keys)
    assert graphs.graphs == 1 and not graphs.breaks
