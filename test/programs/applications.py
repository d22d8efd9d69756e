"""Programs of other domains than language models, of which every dim may have every size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from program import flags, normal


@dataclass(frozen=True)
class Application:
    """``inputs(**sizes)`` makes the arguments; ``dims``: the sizes that the others have while one of them varies."""

    name: str
    function: Callable[..., Any]
    inputs: Callable[..., tuple[Any, ...]]
    dims: dict[str, int]


def node_features(x: torch.Tensor, edges: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """A layer of a graph network: the mean of the messages of neighbours."""
    source, target = edges
    total = torch.zeros_like(x).index_add(0, target, (x @ w).relu()[source])
    degree = torch.zeros(x.shape[0]).index_add(0, target, torch.ones(target.shape[0]))
    return x + total / degree.clamp(min=1)[:, None]


def loudness(x: torch.Tensor, window: torch.Tensor) -> torch.Tensor:
    """Frames of a signal, four samples each, two apart."""
    emphasised = torch.cat([x[:, :1], x[:, 1:] - 0.97 * x[:, :-1]], 1)
    frames = F.pad(emphasised, (2, 3)).unfold(1, 4, 2) * window
    return (frames.pow(2).mean(-1) + 1e-3).log()


def overlaps(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Of boxes with each other: intersection over union."""
    corner, size = a[:, :2], a[:, 2:].exp()
    corner2, size2 = b[:, :2], b[:, 2:].exp()
    low = torch.maximum(corner[:, None], corner2[None])
    high = torch.minimum((corner + size)[:, None], (corner2 + size2)[None])
    common = (high - low).clamp(min=0).prod(-1)
    union = size.prod(-1)[:, None] + size2.prod(-1)[None] - common
    return common / union, (common / union > 0.1).any(1)


def standardised(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Columns of mean 0 and variance 1, and how they go together."""
    z = (x - x.mean(0)) / (x.var(0, correction=0) + 1e-3).sqrt()
    return z, z.t() @ z / max(x.shape[0], 1)


def next_token(query: torch.Tensor, past: torch.Tensor, new: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A step of decoding with a cache that grows."""
    keys = torch.cat([past, new], 1)
    weights = (query @ keys.transpose(1, 2) / 2).softmax(-1)
    return weights @ keys, keys


def segments(x: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
    """The mean of each of five groups of rows."""
    total = torch.zeros(5, x.shape[1]).scatter_add(0, of[:, None].expand(-1, x.shape[1]), x)
    return total / torch.bincount(of, minlength=5).clamp(min=1)[:, None]


def contrast(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Each row of one should be nearest to that of the other."""
    scores = F.normalize(a, dim=1) @ F.normalize(b, dim=1).t() * 5
    wanted = torch.arange(a.shape[0])
    return F.cross_entropy(scores, wanted) + F.cross_entropy(scores.t(), wanted)


def with_positions(x: torch.Tensor) -> torch.Tensor:
    angle = torch.arange(x.shape[1])[:, None] * torch.tensor([1.0, 0.1, 0.01])
    return x + torch.cat([angle.sin(), angle.cos()], -1)


def pooled(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)


def filtered(x: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    """Some steps of a linear filter for a batch of states."""
    state, error = x, torch.eye(a.shape[0]).expand(x.shape[0], -1, -1)
    for _ in range(3):
        state = state @ a.t()
        error = a @ error @ a.t() + torch.eye(a.shape[0])
        gain = error / (error.diagonal(dim1=-2, dim2=-1).sum(-1)[:, None, None] + 1)
        state = state + (gain @ (x - state)[..., None])[..., 0]
    return state


def two_scales(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """A picture, and what is left of it at a smaller scale."""
    fine = F.conv2d(x, w, padding=1).relu()
    coarse = F.adaptive_avg_pool2d(fine, 2)
    return fine.mean((2, 3)) + coarse.flatten(2).amax(2)


def soft_histogram(x: torch.Tensor) -> torch.Tensor:
    centres = torch.linspace(-2, 2, 9)
    return (-(x[:, None] - centres).pow(2) * 4).exp().sum(0) / (x.shape[0] + 1)


def neighbours(x: torch.Tensor, adjacent: torch.Tensor) -> torch.Tensor:
    """Attention over a graph that is given as a matrix; a node without neighbours sees itself."""
    sees = adjacent | torch.eye(x.shape[0], dtype=torch.bool)
    scores = (x @ x.t()).masked_fill(~sees, float("-inf"))
    return scores.softmax(1) @ x


def in_halves(x: torch.Tensor) -> torch.Tensor:
    """The user's own question."""
    if x.shape[0] > 8:
        return torch.cat([x[: x.shape[0] // 2].exp(), x[x.shape[0] // 2 :].sin()])
    return x * 2 if x.shape[0] else x.sum(0)


def seen_before(x: torch.Tensor) -> torch.Tensor:
    """Causal attention, written out."""
    steps = torch.arange(x.shape[1])
    scores = (x @ x.transpose(1, 2)).masked_fill(steps[:, None] < steps, float("-inf"))
    return scores.softmax(-1) @ x


def best(logits: torch.Tensor, table: torch.Tensor) -> tuple[torch.Tensor, ...]:
    found = logits.argmax(-1)
    return found, table[found], logits.gather(-1, found[..., None])[..., 0]


def returns(rewards: torch.Tensor) -> torch.Tensor:
    """Of what comes later, less for each step."""
    discount = 0.9 ** torch.arange(rewards.shape[1])
    return ((rewards * discount).flip(1).cumsum(1).flip(1) / discount).log1p()


def smoothed(x: torch.Tensor) -> torch.Tensor:
    padded = F.pad(x, (1, 1))
    return (padded[:, :-2] + padded[:, 1:-1] * 2 + padded[:, 2:]) / 4 - x.roll(1, 1)


def grouped(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    parts = x.view(x.shape[0], x.shape[1], 2, 3)
    return torch.einsum("bnhd,hde->bnhe", parts, w).reshape(x.shape).cumsum(1)


def ranked(x: torch.Tensor) -> torch.Tensor:
    values, order = x.sort(stable=True, dim=1)
    return values * torch.arange(1, x.shape[1] + 1) + torch.take_along_dim(x, order.argsort(1), 1)


def indices(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, high, shape)


A = Application
APPLICATIONS = [
    A(
        "graph network",
        node_features,
        lambda nodes, edges: (normal(nodes, 4), indices(max(nodes, 1), 2, edges if nodes else 0), normal(4, 4)),
        {"nodes": 6, "edges": 9},
    ),
    A("loudness", loudness, lambda batch, samples: (normal(batch, samples), normal(4)), {"batch": 3, "samples": 11}),
    A("overlaps", overlaps, lambda boxes, others: (normal(boxes, 4), normal(others, 4)), {"boxes": 5, "others": 4}),
    A("standardised", standardised, lambda rows, columns: (normal(rows, columns),), {"rows": 5, "columns": 4}),
    A(
        "next token",
        next_token,
        lambda batch, past: (normal(batch, 2, 8), normal(batch, past, 8), normal(batch, 2, 8)),
        {"batch": 3, "past": 5},
    ),
    A("segments", segments, lambda rows, width: (normal(rows, width), indices(5, rows)), {"rows": 6, "width": 4}),
    A("contrast", contrast, lambda rows, width: (normal(rows, width), normal(rows, width)), {"rows": 6, "width": 4}),
    A("with positions", with_positions, lambda batch, steps: (normal(batch, steps, 6),), {"batch": 3, "steps": 5}),
    A(
        "pooled",
        pooled,
        lambda batch, steps: (normal(batch, steps, 4), flags(batch, steps)),
        {"batch": 3, "steps": 5},
    ),
    A("filtered", filtered, lambda batch: (normal(batch, 3), normal(3, 3) / 4), {"batch": 4}),
    A(
        "two scales",
        two_scales,
        lambda batch, height, width: (normal(batch, 2, height, width), normal(4, 2, 3, 3)),
        {"batch": 3, "height": 5, "width": 6},
    ),
    A("soft histogram", soft_histogram, lambda count: (normal(count),), {"count": 6}),
    A(
        "neighbours",
        neighbours,
        lambda nodes, width: (normal(nodes, width), flags(nodes, nodes)),
        {"nodes": 5, "width": 4},
    ),
    A("in halves", in_halves, lambda rows, columns: (normal(rows, columns),), {"rows": 5, "columns": 4}),
    A("seen before", seen_before, lambda batch, steps: (normal(batch, steps, 4) / 2,), {"batch": 3, "steps": 5}),
    A(
        "best",
        best,
        lambda batch, steps: (normal(batch, steps, 7), normal(7, 3)),
        {"batch": 3, "steps": 5},
    ),
    A("returns", returns, lambda batch, steps: (torch.rand(batch, steps),), {"batch": 3, "steps": 5}),
    A("smoothed", smoothed, lambda batch, steps: (normal(batch, steps),), {"batch": 3, "steps": 5}),
    A("grouped", grouped, lambda batch, steps: (normal(batch, steps, 6), normal(2, 3, 3)), {"batch": 3, "steps": 5}),
    A("ranked", ranked, lambda batch, steps: (normal(batch, steps),), {"batch": 3, "steps": 5}),
]
