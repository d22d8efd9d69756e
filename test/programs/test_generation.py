"""Text generation with a cache of keys and values: one graph for prompts and one for further tokens, of all sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from symshape.tools.measure import Graphs

WIDTH, HEADS, LAYERS, TOKENS = 8, 2, 2, 11


class Cache:
    """As that of transformers: nothing before the prompt, and then what the last step has joined."""

    def __init__(self) -> None:
        self.keys: list[Tensor | None] = [None] * LAYERS

    def joined(self, i: int, keys: Tensor) -> Tensor:
        before = self.keys[i]
        self.keys[i] = torch.cat([keys.new_empty(0) if before is None else before, keys], dim=-2)
        return self.keys[i]  # type: ignore[return-value]


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.project, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, cache: Cache, i: int) -> Tensor:
        both = self.project(self.norm(x)).unflatten(-1, (2, HEADS, -1))
        q, k = both[:, :, 0].transpose(1, 2), cache.joined(i, both[:, :, 1].transpose(1, 2))
        return x + self.out(F.scaled_dot_product_attention(q, k, k).transpose(1, 2).flatten(2))


class Decoder(nn.Module):
    def __init__(self, only_last: bool) -> None:
        super().__init__()
        self.only_last = only_last  # as a decoder with an encoder: its prompt is one token
        self.embed, self.layers = nn.Embedding(TOKENS, WIDTH), nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, tokens: Tensor, cache: Cache) -> Tensor:
        x = self.embed(tokens[:, -1:] if self.only_last else tokens)
        for i, layer in enumerate(self.layers):
            x = layer(x, cache, i)
        return x[:, -1] @ self.embed.weight.t()


def generated(model: Any, tokens: Tensor, count: int) -> Tensor:
    cache, found = Cache(), [tokens]
    for _ in range(count):
        found.append(model(found[-1], cache).argmax(-1, keepdim=True))
    return torch.cat(found, 1)


@pytest.mark.parametrize("only_last", [False, True])
def test_two_graphs(only_last: bool) -> None:
    torch.manual_seed(0)
    model = Decoder(only_last).eval()
    with torch.no_grad(), Graphs() as graphs:
        compiled = torch.compile(model, backend="symshape", dynamic=True)
        for n, length in ((1, 5), (3, 7), (3, 1), (1, 1), (1, 9)):
            prompt = torch.randint(TOKENS, (n, length))
            assert torch.equal(generated(compiled, prompt, 4), generated(model, prompt, 4))
    assert graphs.graphs == 2 and not graphs.breaks
