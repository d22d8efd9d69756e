"""Programs over boolean masks: every form of which nothing must be selected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from program import BF16, F16, F64, I32, I64


@dataclass(frozen=True)
class Case:
    """A size, and how much of the masks is true. ``poison``: NaN and infinities where they are false."""

    n: int
    share: float
    poison: bool = False

    def mask(self, *shape: int) -> torch.Tensor:
        found = torch.rand(shape) < self.share
        if 0 < self.share < 1:
            found.view(-1)[:1] = True  # an extremum of nothing is an error: `NOTHING` has those
        return found

    def values(self, mask: torch.Tensor, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Of ``shape``; the mask's dims are its first ones."""
        x = torch.randn(shape).to(dtype) if dtype.is_floating_point else torch.randint(-9, 10, shape, dtype=dtype)
        if self.poison and dtype.is_floating_point:
            kinds = torch.tensor([float("nan"), float("inf"), float("-inf")], dtype=dtype)
            bad = kinds[torch.arange(x.numel()) % 3].view(shape)
            x = torch.where(mask.view(*mask.shape, *[1] * (x.dim() - mask.dim())), x, bad)
        return x


CASES = (
    Case(5, 0.5),
    Case(16, 0.3),
    Case(33, 0.8),
    Case(2, 0.5),
    Case(7, 1),
    Case(24, 1),
    Case(9, 0),
    Case(40, 0),
    Case(17, 0.5, True),
    Case(64, 0.3, True),
    Case(101, 0.9, True),
    Case(6, 0, True),
)

Inputs = Callable[[Case], tuple[Any, ...]]


@dataclass(frozen=True)
class MaskProgram:
    name: str
    function: Callable[..., Any]
    inputs: Inputs
    gradient: bool = True


def vectors(count: int = 1, dtype: torch.dtype = torch.float32) -> Inputs:
    """Vectors, and a mask over them."""

    def inputs(case: Case) -> tuple[Any, ...]:
        m = case.mask(case.n)
        return (*(case.values(m, case.n, dtype=dtype) for _ in range(count)), m)

    return inputs


def matrices(count: int = 1, dtype: torch.dtype = torch.float32) -> Inputs:
    def inputs(case: Case) -> tuple[Any, ...]:
        m = case.mask(case.n, case.n + 3)
        return (*(case.values(m, case.n, case.n + 3, dtype=dtype) for _ in range(count)), m)

    return inputs


def rows(count: int = 1, dtype: torch.dtype = torch.float32) -> Inputs:
    """Matrices, and a mask over their rows."""

    def inputs(case: Case) -> tuple[Any, ...]:
        m = case.mask(case.n)
        return (*(case.values(m, case.n, 5, dtype=dtype) for _ in range(count)), m)

    return inputs


def inner(case: Case) -> tuple[Any, ...]:
    """A mask over the middle dim."""
    m = case.mask(case.n)
    return case.values(m, case.n, 3, 4).transpose(0, 1).contiguous(), m


def classes(case: Case) -> tuple[Any, ...]:
    """Logits of 5 classes, targets (out of range where hidden), a mask over rows."""
    m = case.mask(case.n)
    targets = torch.where(m, torch.randint(0, 5, (case.n,)), 99)
    return case.values(m, case.n, 5), targets, m


def probabilities(case: Case) -> tuple[Any, ...]:
    m = case.mask(case.n)
    x = torch.where(m, torch.rand(case.n) * 0.8 + 0.1, case.values(m, case.n))
    return x, torch.where(m, torch.rand(case.n), case.values(m, case.n)), m


def divisors(case: Case) -> tuple[Any, ...]:
    """Integers that are 0 where hidden."""
    m = case.mask(case.n)
    return case.values(m, case.n, dtype=I64), torch.where(m, torch.randint(1, 9, (case.n,)), 0), m


def two_masks(case: Case) -> tuple[Any, ...]:
    m = case.mask(case.n)
    other = case.mask(case.n)
    return case.values(m & other, case.n), m, other


def permuted_masks(case: Case) -> tuple[Any, ...]:
    """Two masks with as many true elements."""
    m = case.mask(case.n)
    return torch.randn(case.n), torch.randn(case.n), m, m.flip(0)


def lookup(case: Case) -> tuple[Any, ...]:
    m = case.mask(case.n)
    return torch.randn(11, 3), torch.where(m, torch.randint(0, 11, (case.n,)), -99), m


def source(case: Case) -> tuple[Any, ...]:
    """More values than the mask has elements."""
    m = case.mask(case.n)
    return case.values(m, case.n), torch.randn(case.n + 2), m


def one_for_each(case: Case) -> tuple[Any, ...]:
    """A value for each selected element; two at least, because a size of 0 or 1 is another program."""
    m = case.mask(case.n)
    m[:2] = True
    return case.values(m, case.n), torch.randn(int(m.sum())), m


def strided(case: Case) -> tuple[Any, ...]:
    m = case.mask(case.n + 3, case.n)
    return case.values(m, case.n + 3, case.n).t().contiguous().t(), m.t().contiguous().t()


def broadcast(case: Case) -> tuple[Any, ...]:
    m = case.mask(case.n, 1)
    return case.values(m, case.n, 4), m


def flags(case: Case) -> tuple[Any, ...]:
    m = case.mask(case.n)
    return torch.rand(case.n) < 0.7, m


# Assignments. Each returns what was written to; the input itself is not a leaf that may be written.


def put_number(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y[m] = 3.5
    return y


def put_vector(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    y = x + 1
    y[m] = x[0] * 0.5
    return y


def put_values(x: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[m] = v
    return y


def times_values(x: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    torch._check(x[m].shape[0] == v.shape[0])  # else a single selected element would be repeated for each of v
    return (x[m].sin() * v).sum()


def put_function(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[m] = y[m].sigmoid() * 3
    return y


def put_add(x: torch.Tensor, y: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    z = x.clone()
    z[m] += y[m] * 2
    return z


def put_add_number(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    z = x.clone()
    z[m] *= 4
    z[m] += 1
    return z


def put_other_mask(x: torch.Tensor, y: torch.Tensor, m: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    z = x.clone()
    z[m] = y[other].exp()
    return z


def put_itself(x: torch.Tensor, y: torch.Tensor, m: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    z = x * y
    z[m] = z[other]
    return z


def put_rows(x: torch.Tensor, y: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    z = x.clone()
    z[m, :] = y[m, :].softmax(-1)
    return z


def put_count(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    z = x.clone()
    z[m] = z[m] / z[m].shape[0]
    return z


def norm_rows(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    z = torch.zeros_like(x)
    h = x[m]
    z[m] = (h - h.mean(0)) / (h.var(0, correction=0) + 1e-5).sqrt()
    return z


def in_place(x: torch.Tensor, m: torch.Tensor) -> None:
    x[m] = x[m] * 2 + 1


def put_shifted(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    """Both are parts of one tensor."""
    z = torch.cat([x, x[:1]])
    target, read = z[1:], z[:-1]
    target[m] = read[m] * 2
    return z


def put_inner(x: torch.Tensor, m: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """A mask over both middle dims."""
    y = x.unsqueeze(-1).unsqueeze(0).repeat(2, 1, 1, 3)
    y[:, m] = torch.arange(3, dtype=x.dtype)
    y[:, m, 0] += 1
    return y, y[:, m].exp().sum((0, 1)), y[:, m, :].mean(1), (y[:, m, 1:3] * 2).sum()


def twice(x: torch.Tensor, y: torch.Tensor, m: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """What is selected has one length each time."""
    z = x.masked_fill(~m, 0)
    loss = F.smooth_l1_loss(z[~m], y[~m]) + F.l1_loss(x[m & (x > 0)], y[m & (x > 0)])
    for number in (0, 0.25):
        loss = loss + (z[y > number] * y[y > number].exp()).sum()
    w = torch.zeros_like(z)
    w[~m] = z[~m] * 2 + y[~m]
    return loss, w


def written_between(x: torch.Tensor, y: torch.Tensor, m: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Masks that are written alike and differ, by a write to what they are computed from or to themselves."""
    z, other, first = y.detach().clone(), m.clone(), ~m
    found = [(x[z > 0] * y[z > 0]).sum(), (x[~other] * y[~other]).sum(), x[first].exp().sum(), x[~m].tanh().sum()]
    torch._foreach_neg_([z])
    other.data.logical_not_()
    second = ~m
    found += [(x[z > 0] * y[z > 0]).sum(), (x[~other] * y[~other]).sum(), (x[second] - y[~m]).sum()]
    z.view(-1).abs_().sub_(0.5)
    return (*found, (x[z > 0] * y[z > 0]).sum(), first)


P = MaskProgram
ASSIGNMENTS = [
    P("x[m] = c", put_number, vectors()),
    P("x[m] = c, 2 dims", put_number, matrices()),
    P("x[m] = c, half", put_number, matrices(dtype=BF16)),
    P("x[m] = v broadcast", put_vector, rows()),
    P("x[m] = v of masked length", put_values, one_for_each),
    P("x[m] * v of masked length", times_values, one_for_each),
    P("y[m] = f(y[m])", put_function, vectors()),
    P("y[m] = f(y[m]), 2 dims", put_function, matrices()),
    P("y[m] = f(y[m]), strides", put_function, strided),
    P("x[m] += v", put_add, vectors(2)),
    P("x[m] += v, 2 dims", put_add, matrices(2)),
    P("x[m] *= c, integers", put_add_number, vectors(dtype=I32), gradient=False),
    P("x[m] = y[m2]", put_other_mask, permuted_masks),
    P("x[m] = x[m2]", put_itself, permuted_masks),
    P("x[m, :] = f(y[m, :])", put_rows, rows(2)),
    P("x[m] /= count", put_count, vectors()),
    P("x[m] = normalised", norm_rows, rows()),
    P("x[1:][m] = f(x[:-1][m])", put_shifted, vectors()),
    P("mask over two inner dims", put_inner, matrices()),
    P("in place", in_place, vectors(), gradient=False),
    P("masked_fill", lambda x, m: x.exp().masked_fill(m, -1.0), matrices()),
    P("masked_fill, broadcast", lambda x, m: x.exp().masked_fill(m, 2), broadcast),
    P("masked_scatter", lambda x, s, m: x.masked_scatter(m, s), source),
    P("index_put accumulate", lambda x, y, m: x.index_put((m,), y[m].exp(), accumulate=True), vectors(2)),
    P("masks of what was written to", written_between, vectors(2)),
    P("index_put number accumulate", lambda x, m: x.index_put((m,), x.new_full((), 2), accumulate=True), matrices()),
]

READS = [
    P("sum of chain", lambda x, m: (x[m] * 2).exp().sum(), vectors()),
    P("sum, 2 dims", lambda x, m: (x[m] * 2).tanh().sum(), matrices()),
    P("sum, half", lambda x, m: x[m].sum(), vectors(dtype=F16)),
    P("sum of integers", lambda x, m: x[m].sum(), vectors(dtype=I32), gradient=False),
    P("sum of promoted", lambda x, m: (x[m] * 1.5).sum() + x[m].float().sum(), vectors(dtype=I64), gradient=False),
    P("mean", lambda x, m: x[m].mean(), vectors()),
    P("mean, float64", lambda x, m: x[m].mean(), matrices(dtype=F64)),
    P("mean, half", lambda x, m: x[m].mean(), vectors(dtype=BF16)),
    P("prod", lambda x, m: x[m].prod(), vectors()),
    P("any, all", lambda x, m: (x[m].any(), x[m].all(), (x[m] > 0).sum()), flags, gradient=False),
    P("any, all of numbers", lambda x, m: ((x[m] > 0).any(), (x[m] > 0).all()), vectors(), gradient=False),
    P("var", lambda x, m: x[m].var(), vectors()),
    P("std, correction", lambda x, m: x[m].std(correction=0), matrices()),
    P("var_mean of rows", lambda x, m: torch.var_mean(x[m], 0), rows()),
    P("norm", lambda x, m: x[m].norm(), vectors()),
    P("norm, p=1", lambda x, m: x[m].norm(p=1) + x[m].norm(p=3), vectors()),
    P("count", lambda x, m: (x[m].count_nonzero(), (x[m] > 0.2).sum()), vectors(), gradient=False),
    P("logsumexp", lambda x, m: x[m].logsumexp(0), vectors()),
    P("logsumexp of rows", lambda x, m: x[m].logsumexp((0, 1)), rows()),
    P("dot", lambda x, y, m: torch.dot(x[m], y[m]), vectors(2)),
    P("mse", lambda x, y, m: F.mse_loss(x[m], y[m]), vectors(2)),
    P("mse, 2 dims", lambda x, y, m: F.mse_loss(x[m], y[m]), matrices(2)),
    P("smooth l1, huber", lambda x, y, m: F.smooth_l1_loss(x[m], y[m]) + F.huber_loss(x[m], y[m]), vectors(2)),
    P("bce", lambda x, y, m: F.binary_cross_entropy(x[m], y[m].detach()), probabilities),
    P("bce with logits", lambda x, y, m: F.binary_cross_entropy_with_logits(x[m], y[m].detach()), vectors(2)),
    P("cross entropy", lambda x, t, m: F.cross_entropy(x[m], t[m]), classes),
    P("cross entropy, sum", lambda x, t, m: F.cross_entropy(x[m], t[m], reduction="sum"), classes),
    P("cross entropy, none", lambda x, t, m: F.cross_entropy(x[m], t[m], reduction="none").exp().sum(), classes),
    P("softmax of rows", lambda x, m: (x[m].softmax(-1) * x[m]).sum(), rows()),
    P("softmax over selected", lambda x, m: (x[m].softmax(0) * x[m].detach()).sum(), vectors()),
    P("row mask, sum(0)", lambda x, m: x[m, :].exp().sum(0), rows()),
    P("row mask, both", lambda x, m: (x[m, :].sum(1).tanh()).mean(), rows()),
    P("inner dim", lambda x, m: x[:, m].exp().sum(1), inner),
    P("inner dim, all", lambda x, m: (x[:, m, :] * 2).mean(), inner),
    P(
        "None, integers, slices beside a mask",
        lambda x, m: (x[None, m].sum(1), x[m, 2].exp().sum(), x[m, ::2].sum(0), x[m, ..., 1:].mean()),
        rows(),
    ),
    P("x[m1][m2]", lambda x, m, o: x[m][o[m]].exp().sum(), two_masks),
    P("x[m][x[m] > 0]", lambda x, m: x[m][x[m] > 0].sum(), vectors()),
    P("x[~m]", lambda x, m: x[~(~m)].exp().mean(), vectors()),
    P("x[x > 0]", lambda x, m: x[(x > 0) & m].sum(), vectors()),
    P("where(m)", lambda x, m: x[torch.where(m)].exp().sum(), vectors()),
    P("where(m), 2 dims", lambda x, m: x[torch.where(m)].exp().sum(), matrices()),
    P("nonzero", lambda x, m: x[m.nonzero().squeeze(1)].exp().sum(), vectors()),
    P("nonzero, as_tuple", lambda x, m: x[m.nonzero(as_tuple=True)].mean(), matrices()),
    P("positions", lambda x, m: (m.nonzero().squeeze(1) * 3).sum() + x.new_zeros(()), vectors(), gradient=False),
    P("masked_select", lambda x, m: x.masked_select(m).exp().sum(), matrices()),
    P("masked_select, broadcast", lambda x, m: x.masked_select(m).exp().mean(), broadcast),
    P("size", lambda x, m: x[m].shape[0] * 2 + x.new_zeros(3), vectors(), gradient=False),
    P("mean by size", lambda x, m: x[m].sum() / x[m].shape[0], vectors()),
    P("count of rows", lambda x, m: x[m].exp().sum() / x[m].numel(), rows()),
    P("integer division", lambda x, y, m: (x[m] // y[m] + x[m] % y[m]).sum(), divisors, gradient=False),
    P("places under a mask", lambda w, i, m: w[i[m]].exp().sum(), lookup),
    P("embedding under a mask", lambda w, i, m: F.embedding(i[m], w).exp().sum(0), lookup),
    P("layer norm of rows", lambda x, m: F.layer_norm(x[m], (5,)).pow(3).sum(), rows()),
    P("flattened rows", lambda x, m: x[m].reshape(-1).exp().mean(), rows()),
    P("cumsum", lambda x, m: x[m].cumsum(0).tanh().sum(), vectors(), gradient=False),
    P("masks written out twice", twice, vectors(2)),
    P("norm of all rows", lambda x, m: x[m].norm(dim=-1).sum(), rows()),
]


# In eager mode an error where nothing is selected: there the compiled program's must be of the same type.
EXTREMA = [
    P("amax", lambda x, m: x[m].amax(), vectors()),
    P("amin of rows", lambda x, m: x[m].amin(0), rows()),
    P("max, min", lambda x, m: x[m].max() - x[m].min(), matrices()),
    P("max of integers", lambda x, m: x[m].max(), vectors(dtype=I64), gradient=False),
    P("norm, p=inf", lambda x, m: x[m].norm(p=float("inf")), vectors()),
]

MASKS = [*ASSIGNMENTS, *READS, *EXTREMA]
