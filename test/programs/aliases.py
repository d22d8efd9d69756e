"""Aliases, mutation, layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from program import BF16, NONEMPTY, P, Program, integers, matrix, normal, pair


def add_to(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x * 2


def add_to_view(x: torch.Tensor) -> torch.Tensor:
    x[1:].mul_(2)
    x[:, 0] = 7
    x.t()[2:4] += x[0, 0]
    return x.sum(0)


def fill_slice(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros(x.shape[0] + 2, x.shape[1])
    y[1:-1] = x.exp()
    y[0] = 5
    y[::2] += 1
    return y


def mutate_two(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.add_(y)
    y.mul_(x)
    return x - y


def swap(x: torch.Tensor, y: torch.Tensor) -> None:
    old = x.clone()
    x.copy_(y)
    y.copy_(old)


def read_before_write(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    before = x * 2
    x.zero_()
    return before, x + 1


def mutate_and_alias(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x.mul_(3)
    return x.view(-1)[1:], x.t()


def overlapping_copy(x: torch.Tensor) -> torch.Tensor:
    x[1:] = x[:-1].clone() + 1
    return x.flip(0)


def out_of_composite(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """What a composite operator writes into ``out``, and what a structured one does, of one and of several results."""
    rank, best, at = torch.zeros((), dtype=torch.int64), torch.zeros(len(out)), torch.zeros(len(out), dtype=torch.int64)
    pair = torch.max(y, 1, out=(best, at))
    return torch.linalg.matrix_rank(x, out=rank), torch.sum(y, 1, out=out), pair[0] + best, rank + 1


def shift_in_place(x: torch.Tensor) -> None:
    x[:, 1:] -= x[:, :-1].clone()


def intermediate_views(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x.exp()
    return y, y[1:], y.t(), y


def set_transposed(x: torch.Tensor, y: torch.Tensor) -> None:
    x.t().copy_(y.t() * 2)


def transposed(n: int) -> tuple[torch.Tensor, ...]:
    return (normal(n + 3, n).t(),)


LAYOUTS: dict[str, Callable[[int], torch.Tensor]] = {
    "transposed": lambda n: normal(n + 3, n).t(),
    "sliced": lambda n: normal(n + 4, 2 * n + 6)[2:-2, ::2],
    "offset": lambda n: normal(n * (n + 3) + 5)[5:].view(n, n + 3),
    "expanded": lambda n: normal(n, 1).expand(n, n + 3),
    "expanded scalar": lambda n: normal().expand(n, n + 3),
    "gaps": lambda n: torch.empty_strided((n, n + 3), (2 * n + 8, 2)).normal_(),
    "permuted": lambda n: normal(n + 3, 4, n).permute(2, 1, 0)[:, 1],
}


def over_layouts(name: str, function: Callable[..., Any], gradient: bool = False) -> list[Program]:
    return [
        P(f"{name} {kind}", function, lambda n, make=make: (make(n),), (7, 16, 17, 2, 1, 0), gradient)
        for kind, make in LAYOUTS.items()
    ]


ALIASES = [
    P("identity", lambda x: x, matrix),
    P("input among outputs", lambda x: (x, x + 1, x), matrix),
    P("view of input", lambda x: (x.t(), x.view(-1), x[1:], x + 1), matrix),
    P("view of input gradient", lambda x: (x.t(), x[1:] * 2), matrix, gradient=True),
    P("views of intermediate", intermediate_views, matrix),
    P("views of intermediate gradient", intermediate_views, matrix, gradient=True),
    P("duplicates", lambda x: (lambda y: (y, y, [y, {"a": y}]))(x * 2), matrix),
    P("none", lambda x: (None, x * 2, None, 3, "text"), matrix),
    P("nothing", lambda x: None, matrix),
    P("no computation", lambda x: (x.shape[0], 5), matrix),
    P("constant output", lambda x: (torch.ones(3), torch.tensor([1, 2]), torch.arange(x.shape[0])), matrix),
    P("detached", lambda x: (x.detach(), (x * 2).detach(), x * 2), matrix, gradient=True),
    P(
        "dictionary",
        lambda d: {"sum": d["a"] + d["b"], "view": d["a"].t()},
        lambda n: ({"a": normal(n, 3), "b": normal(n, 3)},),
    ),
    P("list input", lambda xs: torch.stack(xs).sum(0), lambda n: ([normal(n), normal(n), normal(n)],)),
    P("same input twice", lambda x, y: x * y + y, lambda n: (lambda t: (t, t))(normal(n, 3))),
    P("two views of one", lambda x, y: x * y, lambda n: (lambda t: (t[1:], t[:-1]))(normal(n + 1, 3))),
    P("add in place", add_to, matrix),
    P("add in place transposed", add_to, transposed),
    P("in place on views", add_to_view, lambda n: (normal(n, 6),), NONEMPTY),
    P("in place on views transposed", add_to_view, lambda n: (normal(6, n).t(),), NONEMPTY),
    P("fill slice", fill_slice, matrix, gradient=True),
    P("mutate two", mutate_two, pair),
    P("swap", swap, pair),
    P("mutate aliases", mutate_two, lambda n: (lambda t: (t[:n], t[n:]))(normal(2 * n, 3))),
    P("mutate same", lambda x, y: x.add_(1) + y, lambda n: (lambda t: (t, t.view(-1)))(normal(n)), (7, 16, 1)),
    P("read before write", read_before_write, matrix),
    P("mutate and alias", mutate_and_alias, matrix),
    P("out of a composite", out_of_composite, lambda n: (normal(4, 4), torch.ones(n, 3), torch.ones(n)), NONEMPTY),
    P("overlapping copy", overlapping_copy, matrix, NONEMPTY),
    P("shift in place", shift_in_place, matrix),
    P("copy transposed", set_transposed, pair),
    P("in place on integers", lambda x: x.floor_divide_(2).bitwise_and_(3), lambda n: (integers(n, 3),)),
    P("in place on half", lambda x: x.mul_(0.1).add_(1), lambda n: (normal(n, 3, dtype=BF16),)),
    P("index assign", lambda x, i: x.index_fill_(0, i, 2.0) + 1, lambda n: (normal(n, 3), torch.randperm(n)[: n // 2])),
    P("masked assign", lambda x: x.__setitem__(x > 0, 1.0), matrix),
    P("out strides", lambda x: (x.t() * 2, x.t().contiguous() * 2, x.t().sum(1), x.t().exp().t()), matrix),
    P("channels last", lambda x: x.to(memory_format=torch.channels_last) * 2, lambda n: (normal(2, 3, n, n + 1),)),
    P(
        "channels last input",
        lambda x: (x * 2, x.sum(1), x.contiguous() + 1, x.mean((2, 3))),
        lambda n: (normal(2, 3, n, n + 1).to(memory_format=torch.channels_last),),
    ),
    P(
        "mixed layouts",
        lambda x, y: (x + y, y + x, x.t() * 2 + y.t()),
        lambda n: (normal(n, n + 3), normal(n + 3, n).t()),
        gradient=True,
    ),
    P("gradient of expanded", lambda x, y: x * y, lambda n: (normal(n, 1), normal(1, n + 2)), gradient=True),
    *over_layouts("pointwise of", lambda x: (x * 2 + 1).exp()),
    *over_layouts("sums of", lambda x: (x.sum(0), x.sum(1), x.softmax(-1))),
    *over_layouts("merge of", lambda x: (x.reshape(-1) * 2, x.t().reshape(-1), x[1:, 1:] + 1)),
]
