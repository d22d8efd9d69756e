"""Programs of public issues about dynamic shapes. docs/stories.md tells them; test_stories.py runs them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Inputs = tuple[Any, ...]

WEIGHT = torch.randn(24, 16)
KERNEL = torch.randn(1, 1, 4)
TABLE = torch.randn(8, 8, 1, 4)
PROJECTION = torch.randn(64, 64)


def zero_one(x: Tensor) -> Tensor:
    return torch.softmax(x * 2, -1)


def equal_sizes(hidden: Tensor) -> Tensor:
    return F.linear(hidden, WEIGHT).relu()  # WEIGHT has 16 columns


def at_least_16(x: Tensor) -> Tensor:
    padded = torch.ones(max(x.shape[0], 16), *x.shape[1:])
    return padded + x.sum()


def heads(x: Tensor) -> Tensor:
    batch, length, _ = x.size()
    q = F.linear(x, PROJECTION).view(batch, length, 8, 8).transpose(2, 1)
    y = F.scaled_dot_product_attention(q, q, q)
    return y.transpose(1, 2).reshape(batch, length, 64)


def sliding_window(q: Tensor) -> Tensor:
    i = torch.arange(q.shape[1])
    far = (i[:, None] - i[None, :]).abs() > 3
    scores = (q @ q.transpose(1, 2)).masked_fill(far, float("-inf"))
    return torch.softmax(scores, -1) @ q


def reshape_like(x: Tensor, y: Tensor) -> Tensor:
    return x + y.reshape(x.shape)


def every_other(x: Tensor, y: Tensor) -> Tensor:
    return x + y[::2]


def groups(x: Tensor, y: Tensor) -> list[Tensor]:
    rows = x.view(5, -1)
    return [rows[i] - y for i in range(5)]


def broadcast_of_views(x: Tensor, y: Tensor) -> Tensor:
    return x.view(-1, 4) * y.view(-1, 4)


def chunks(x: Tensor) -> tuple[Tensor, ...]:
    return x.chunk(4)


def parity(x: Tensor) -> Tensor:
    padding = math.ceil((KERNEL.shape[-1] + x.shape[-1] % 2) / 2) - 1
    return F.conv1d(x, KERNEL, padding=padding, stride=2)


def view_of_found(x: Tensor) -> Tensor:
    n = x.nonzero().size(0)
    return torch.ones(n, 7).view(12, -1, 7) * 2


def tiles(x: Tensor, y: Tensor) -> Tensor:
    h, w = y[0].tolist()
    torch._check(h <= 8)
    torch._check(w <= 8)
    x = x.clone()
    x[0, : h * w] += TABLE[:h, :w].reshape(h * w, 1, 4)
    return x


def cat_of_split(x: Tensor, sizes: Tensor) -> Tensor:
    a, b = sizes.tolist()
    left, right = torch.split(x, [a, b])
    return torch.cat([right * 2, left.sin()])


def prefix(n: Tensor, y: Tensor) -> Tensor:
    b = n.item()
    torch._check_is_size(b)
    torch._check(b < y.shape[0])
    return y[:b] * 2


def mixed_product(a: Tensor, b: Tensor) -> Tensor:
    y = torch.ones(a.item(), 18, b.shape[0])
    torch._check(y.numel() % 144 == 0)
    return y.view(-1, 144) + b.sum()


def narrow(x: Tensor, start: Tensor) -> Tensor:
    first = start.max().item()
    return x.narrow(0, first, 3) * 2


def same_rows(x: Tensor, y: Tensor) -> Tensor:
    torch._check(x.size()[0] == y.size()[0])
    return x * 2 + y.sum(1, keepdim=True)


def center_crop(x: Tensor) -> Tensor:
    top, left = (x.shape[-2] - 4) // 2, (x.shape[-1] - 4) // 2
    return x[..., top : top + 4, left : left + 4] * 2


def pairs(x: Tensor) -> Tensor:
    return x[: x.shape[0] // 2 * 2].view(-1, 2).sum(-1)


def joint(x: Tensor) -> Tensor:
    a, b = x.shape
    if a > b:
        return x + 1
    if a < b:
        return x - 1
    if a + b != 10:
        return x + 2
    return x + 3


def two_sided(x: Tensor) -> Tensor:
    if x.shape[0] > 5:
        return x.cos()
    if x.shape[0] < 5:
        return x * 2
    return x.sin()


def wrong_shape(x: Tensor, n: Tensor) -> Tensor:
    y = torch.ones(3, (n * 1).item())
    if y.shape[1] != 7:
        raise RuntimeError("wrong shape")
    return y + x


@dataclass(frozen=True)
class Story:
    """One program, called on ``inputs`` in order. ``eager``: the graphs and graph breaks that plain
    ``torch.compile(dynamic=True, backend="eager")`` of PyTorch 2.13 needs for all of them (symshape: one graph, none).

    ``graphs``: how many symshape needs. ``bad``: inputs that no graph may accept, with what the error says.
    """

    fn: Callable[..., Any]
    inputs: tuple[Inputs, ...]
    eager: tuple[int, int]
    graphs: int = 1
    bad: tuple[Inputs, tuple[str, ...]] | None = None

    @property
    def name(self) -> str:
        return self.fn.__name__


def _random(*shapes: tuple[int, ...]) -> tuple[Inputs, ...]:
    return tuple((torch.randn(shape),) for shape in shapes)


def _pairs(*shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> tuple[Inputs, ...]:
    return tuple((torch.randn(a), torch.randn(b)) for a, b in shapes)


def _with(*rows: tuple[tuple[int, ...], Any]) -> tuple[Inputs, ...]:
    return tuple((torch.randn(shape), torch.tensor(value)) for shape, value in rows)


STORIES = (
    Story(zero_one, _random((2, 3), (5, 3), (7, 2), (64, 33)), (1, 0)),
    Story(equal_sizes, _random((16, 16), (32, 16), (5, 16)), (2, 0)),
    Story(at_least_16, _random((15,), (17,), (2,), (16,), (40,)), (1, 0)),
    Story(heads, _random((2, 7, 64), (3, 16, 64), (8, 8, 64), (4, 64, 64)), (1, 0)),
    Story(sliding_window, _random((2, 7, 8), (8, 8, 8), (3, 16, 8), (4, 33, 8)), (1, 0)),
    Story(reshape_like, _pairs(((4, 4), (2, 8)), ((6, 4), (3, 8)), ((5, 8), (20, 2))), (3, 0)),
    Story(every_other, _pairs(((4,), (8,)), ((4,), (7,)), ((7,), (13,)), ((12,), (24,))), (1, 0)),
    Story(groups, _pairs(((20,), (4,)), ((10,), (2,)), ((45,), (9,))), (1, 0)),
    Story(broadcast_of_views, _pairs(((4,), (8,)), ((4,), (12,)), ((4,), (40,))), (1, 0)),
    Story(chunks, _random(*((4 * n,) for n in range(2, 12))), (1, 0)),
    Story(parity, _random((1, 1, 175), (1, 1, 249), (1, 1, 250), (1, 1, 8)), (1, 0)),
    Story(
        view_of_found,
        tuple((torch.ones(n),) for n in (24, 48, 36)),
        (1, 1),
        bad=((torch.ones(25),), ("% 12 == 0 does not hold for", "= 25", "x.nonzero().size(0)")),
    ),
    Story(
        tiles,
        _with(((2, 20, 1, 4), [[2, 3]]), ((3, 30, 1, 4), [[4, 5]]), ((2, 40, 1, 4), [[8, 4]])),
        (2, 1),
        bad=(_with(((2, 90, 1, 4), [[9, 3]]))[0], ("does not hold for", "= 9", "torch._check(h <= 8)")),
    ),
    Story(
        cat_of_split,
        _with(((10,), [7, 3]), ((12,), [5, 7]), ((9,), [2, 7])),
        (1, 1),
        bad=(_with(((10,), [7, 4]))[0], ("does not hold for", "= 10", "= 7", "= 4")),
    ),
    Story(
        prefix,
        tuple((torch.tensor(n), torch.randn(size)) for n, size in ((4, 10), (2, 5), (9, 12))),
        (1, 1),
        bad=((torch.tensor(11), torch.randn(10)), ("torch._check(b < y.shape[0])",)),
    ),
    Story(
        mixed_product,
        tuple((torch.tensor(n), torch.randn(size)) for n, size in ((4, 8), (8, 4), (12, 6), (24, 9))),
        (3, 1),
        bad=((torch.tensor(5), torch.randn(7)), ("torch._check(y.numel() % 144 == 0)",)),
    ),
    Story(
        narrow,
        _with(((10,), [2]), ((8,), [5]), ((30,), [0]), ((9,), [-4])),
        (3, 1),
        bad=(_with(((10,), [9]))[0], ("does not hold for", "= 9", "= 10")),
    ),
    Story(
        same_rows,
        _pairs(((4, 4), (4, 4)), ((6, 4), (6, 3)), ((9, 5), (9, 2))),
        (2, 0),
        bad=(_pairs(((4, 4), (5, 3)))[0], ("torch._check(x.size()[0] == y.size()[0])",)),
    ),
    Story(center_crop, _random((2, 8, 8), (2, 9, 8), (3, 7, 12), (2, 33, 18)), (2, 0)),
    Story(pairs, _random((7,), (8,), (12,), (33,)), (1, 0)),
)


@dataclass(frozen=True)
class Refusal:
    """A program that asks for more than one graph can give. ``words``: what symshape's error says, among them the line;
    ``eager``: whether PyTorch 2.13 raises an error, too. ``marked``: dims of the first input marked dynamic."""

    fn: Callable[..., Any]
    inputs: Inputs
    words: tuple[str, ...]
    eager: bool
    marked: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        return self.fn.__name__


REFUSALS = (
    Refusal(
        joint,
        (torch.randn(5, 5),),
        ("x.size(0) is marked dynamic", "the value 5 only", "if a > b:", "if a < b:", "if a + b != 10:", "do not mark"),
        eager=False,
        marked=(0, 1),
    ),
    Refusal(
        two_sided,
        (torch.randn(5, 3),),
        ("L['x'].size()[0]", "specialized it to be a constant (5)", "if x.shape[0] < 5:", "remove it"),
        eager=True,
        marked=(0,),
    ),
    Refusal(
        wrong_shape,
        (torch.randn(3, 7), torch.tensor(7)),
        ("if y.shape[1] != 7:", "torch._check"),
        eager=True,
    ),
)
