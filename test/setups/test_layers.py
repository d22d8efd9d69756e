"""Layers and ways to build models that people use in the first hour: forward and gradients at three sizes."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize
from trials import Inputs, assert_as_eager

Made = tuple[Any, Inputs]
ROWS = (3, 5, 1)
TEXTS = ((2, 4), (3, 7), (1, 5))


def _rows(width: int = 4) -> Inputs:
    return [(torch.randn(n, width),) for n in ROWS]


def _tokens() -> Inputs:
    return [(torch.randint(0, 11, shape),) for shape in TEXTS]


def _sequences(width: int = 8) -> list[Tensor]:
    return [torch.randn(*shape, width) for shape in TEXTS]


class Symmetric(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.triu() + x.triu(1).mT


def symmetric_weight() -> Made:
    layer = nn.Linear(4, 4)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    return layer, _rows()


def weight_norm() -> Made:
    return parametrizations.weight_norm(nn.Linear(4, 6)), _rows()


def spectral_norm() -> Made:
    return parametrizations.spectral_norm(nn.Linear(4, 6)), _rows()


def orthogonal() -> Made:
    return parametrizations.orthogonal(nn.Linear(4, 4)), _rows()


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(11, 6), nn.Linear(6, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embedding(x).tanh())


def tied() -> Made:
    return Tied(), _tokens()


class LowRank(nn.Module):
    """A frozen layer and what is learned beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(4, 6).requires_grad_(False)
        self.down, self.up = nn.Parameter(torch.randn(4, 2)), nn.Parameter(torch.randn(2, 6))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + F.dropout(x, 0.1, self.training) @ self.down @ self.up * 0.5


def low_rank() -> Made:
    return LowRank(), _rows()


class Language(nn.Module):
    def __init__(self, packed: bool) -> None:
        super().__init__()
        self.embedding, self.head, self.packed = nn.Embedding(11, 6), nn.Linear(10, 11), packed
        self.layer = nn.GRU(6, 5, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        h = self.embedding(x)
        if self.packed:
            rows = nn.utils.rnn.pack_padded_sequence(h, lengths, batch_first=True, enforce_sorted=False)
            h, _ = nn.utils.rnn.pad_packed_sequence(self.layer(rows)[0], batch_first=True)
        else:
            h, _ = self.layer(h)
        return self.head(h).tanh()


def recurrent() -> Made:
    return Language(False), [(x, torch.tensor([])) for (x,) in _tokens()]


def packed() -> Made:
    return Language(True), [(x, x.shape[1] - torch.arange(x.shape[0])) for (x,) in _tokens()]


class Bags(nn.Module):
    def __init__(self, mode: str) -> None:
        super().__init__()
        self.bags = nn.EmbeddingBag(11, 6, mode=mode)

    def forward(self, x: Tensor, offsets: Tensor) -> Tensor:
        return self.bags(x, offsets).tanh()


def bags() -> Made:
    return Bags("mean"), [
        (torch.randint(0, 11, (n,)), torch.tensor(at)) for n, at in ((5, [0, 2]), (7, [0, 1, 3]), (3, [0]))
    ]


class Sparse(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(11, 6, sparse=True), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embedding(x)).tanh()


def sparse_gradients() -> Made:
    return Sparse(), _tokens()


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        with_weights, weights = self.attention(x, x, x, need_weights=True)
        without, _ = self.attention(x, x, x, need_weights=False)
        return with_weights, weights, without


def attention_with_and_without_weights() -> Made:
    return Attention(), [(x,) for x in _sequences()]


def attention_in_eval_mode() -> Made:
    return Attention().eval().requires_grad_(False), [(x,) for x in _sequences()]


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        return self.encoder(x, src_key_padding_mask=padding)


def encoder_of_padded_texts() -> Made:
    return Encoder(), [
        (x, torch.arange(x.shape[1]) >= x.shape[1] - torch.arange(x.shape[0])[:, None] % 2) for x in _sequences()
    ]


class Spectral(nn.Module):
    """FNet's mixing of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(torch.fft.fft2(x).real)


def spectral() -> Made:
    return Spectral(), [(x,) for x in _sequences(4)]


def convolutions_in_channels_last() -> Made:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.SiLU(),
        nn.Conv2d(8, 8, 3, groups=8, padding=1),
        nn.Hardswish(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 4),
    ).to(memory_format=torch.channels_last)
    images = [torch.randn(b, 3, h, w) for b, h, w in ((2, 8, 8), (3, 10, 7), (4, 6, 6))]
    return net, [(x.to(memory_format=torch.channels_last),) for x in images]


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.time, self.inward, self.norm = nn.Linear(8, 8), nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8)
        self.down, self.up = nn.Conv2d(8, 8, 3, stride=2, padding=1), nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.outward = nn.Conv2d(16, 3, 1)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        angles = t[:, None].float() * torch.exp(-math.log(1e4) * torch.arange(4) / 4)
        h = F.silu(self.norm(self.inward(x))) + self.time(torch.cat([angles.sin(), angles.cos()], -1))[..., None, None]
        small = self.up(F.silu(self.down(h)))
        return self.outward(torch.cat([h, F.interpolate(small, size=h.shape[-2:])], 1))


def denoising_step() -> Made:
    return Denoiser(), [(torch.randn(b, 3, h, w), torch.arange(b)) for b, h, w in ((2, 8, 8), (3, 10, 7), (1, 6, 6))]


class Experts(nn.Module):
    """Each row goes to two of three experts."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = nn.Linear(4, 3), nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.gate(x).softmax(-1).topk(2)
        result = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows, which = torch.where(chosen == i)
            result.index_add_(0, rows, expert(x[rows]) * weights[rows, which, None])
        return result


def experts() -> Made:
    return Experts(), _rows()


class Messages(nn.Module):
    """A layer of a graph network: messages along edges, added, counted and maximised at their ends."""

    def __init__(self) -> None:
        super().__init__()
        self.node, self.message = nn.Linear(4, 4), nn.Linear(8, 4)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        sent = self.message(torch.cat([x[source], x[target]], -1)).relu()
        total = torch.zeros_like(x).index_add(0, target, sent)
        count = torch.zeros(len(x)).scatter_add(0, target, torch.ones(target.shape[0])).clamp(min=1)
        largest = torch.zeros_like(x).scatter_reduce(0, target[:, None].expand_as(sent), sent, "amax")
        return self.node(total / count[:, None]) + largest


def graph_messages() -> Made:
    return Messages(), [(torch.randn(n, 4), torch.randint(0, n, (2, e))) for n, e in ((4, 7), (6, 3), (3, 1))]


def hooks() -> Made:
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    net[0].register_forward_hook(lambda module, inputs, output: output.tanh())
    net[1].register_forward_pre_hook(lambda module, inputs: (inputs[0] * 2,))
    net[1].register_full_backward_hook(lambda module, inputs, outputs: (inputs[0] * 3,))
    return net, [(x.requires_grad_(),) for (x,) in _rows()]


FAST = (tied, low_rank)
LAYERS: tuple[Callable[[], Made], ...] = (
    *FAST,
    bags,
    symmetric_weight,
    weight_norm,
    spectral_norm,
    orthogonal,
    recurrent,
    packed,
    sparse_gradients,
    attention_with_and_without_weights,
    attention_in_eval_mode,
    encoder_of_padded_texts,
    spectral,
    convolutions_in_channels_last,
    denoising_step,
    experts,
    graph_messages,
    hooks,
)


@pytest.mark.parametrize("make", [m if m in FAST else pytest.param(m, marks=pytest.mark.long) for m in LAYERS])
def test_layers(make: Callable[[], Made]) -> None:
    assert_as_eager(make)


@pytest.mark.long
def test_a_frozen_copy_learns_nothing() -> None:
    """A target network: a copy without gradients, run in the same compiled function as its original."""
    online = nn.Linear(4, 3)
    target = copy.deepcopy(online).requires_grad_(False)
    assert_as_eager(lambda: (lambda x: F.mse_loss(online(x), target(x * 2)), _rows()))
    assert all(p.grad is None for p in target.parameters())
