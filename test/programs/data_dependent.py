"""Programs with data-dependent sizes: each reads a number ``u`` from a tensor, and is run for every value of it."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from data_inputs import DataProgram, five, flagged, labels, number, pair, repeats, row, rows, two

W = torch.randn(4, 5)


# --- numbers as sizes ------------------------------------------------------------------------------------------------


def item_in_arithmetic(k: torch.Tensor, x: torch.Tensor) -> Any:
    u = k.item()
    return x * u + u // 2, x + u % 3, u * 2 - 1


def float_of_item(k: torch.Tensor, x: torch.Tensor) -> Any:
    return x * (k.item() / 3), x.sum() + float(k.item())


def zeros(k: torch.Tensor) -> Any:
    z = torch.zeros(k.item(), 3)
    return z, z + 1, z.exp().sum(0)


def full(k: torch.Tensor) -> Any:
    u = k.item()
    return torch.full((u, 3), 2.5), torch.full((2, u), u)


def slices_of_what_is_written(k: torch.Tensor, x: torch.Tensor) -> Any:
    u = k.item()
    z, y = x.new_zeros(u + 1), x.new_zeros(u + 2)
    z.add_(1)
    y[:u] = 3
    return z[:u], y[: u + 1] * 2, y


def arange(k: torch.Tensor) -> Any:
    a = torch.arange(k.item())
    return a, a * 2 + 1, (a.float() / 3).sin().sum()


def arange_between(k: torch.Tensor) -> Any:
    u = k.item()
    return torch.arange(u, 2 * u + 3), torch.arange(0, u, 2)


def eye(k: torch.Tensor) -> Any:
    u = k.item()
    return torch.eye(u, 5), torch.ones(u, u).tril().sum(1)


def linspace(k: torch.Tensor) -> Any:
    return torch.linspace(0, 1, k.item())


def expand(k: torch.Tensor, x: torch.Tensor) -> Any:
    e = x.expand(k.item(), 4)
    return e, e * 2, e.sum(0), (e + 1).mean(1)


def repeat(k: torch.Tensor, x: torch.Tensor) -> Any:
    return x.repeat(k.item(), 2) * 2


def outer(k: torch.Tensor, x: torch.Tensor) -> Any:
    a = torch.arange(k.item())
    return a[:, None] * x, (a[:, None] < a[None, :]).sum(1)


def position_mask(k: torch.Tensor, x: torch.Tensor) -> Any:
    return torch.where(torch.arange(x.size(0)) < k.item(), x.sum(1), 0.0)


def checked(k: torch.Tensor, x: torch.Tensor) -> Any:
    u = k.item()
    torch._check(u <= x.size(0))
    return x[:u] * 2, x[u:].sum(0)


def tolist(k: torch.Tensor, x: torch.Tensor) -> Any:
    u, v = k.tolist()
    return torch.zeros(u, v) + 1, x[:u] * v, torch.ones(u + v).sum()


def pad(k: torch.Tensor, x: torch.Tensor) -> Any:
    return F.pad(x, (0, 0, 1, k.item()), value=2.0)


# --- parts of tensors ------------------------------------------------------------------------------------------------


def slices(k: torch.Tensor, x: torch.Tensor) -> Any:
    u = k.item()
    return x[:u], x[u:] + 1, x[u : u + 1].sum(0)


def slices_from_the_end(k: torch.Tensor, x: torch.Tensor) -> Any:
    u = k.item()
    return x[-u:] * 2, x[: -u - 1].sum(1)


def narrow_start(k: torch.Tensor, x: torch.Tensor) -> Any:
    return x.narrow(0, k.item(), 2) * 2


def narrow_length(k: torch.Tensor, x: torch.Tensor) -> Any:
    return x.narrow(0, 1, k.item()) @ W


def select(k: torch.Tensor, x: torch.Tensor) -> Any:
    return x[k.item()] * 2


def split(k: torch.Tensor, x: torch.Tensor) -> Any:
    a, b = x.split(k.tolist())
    return a * 2, b.sum(0), a.sum()


def tensor_split(k: torch.Tensor, x: torch.Tensor) -> Any:
    a, b, c = torch.tensor_split(x, k.cumsum(0))
    return a * 2, b + 1, c.sum(0)


def equal_parts(m: torch.Tensor, x: torch.Tensor) -> Any:
    """Views of what is returned as well: a number of parts that the program says, one of them written to."""
    y = x[m] * 2
    a, b, c = y.tensor_split(3)
    b.add_(1)
    left, right = y.hsplit(2)
    shuffled = torch.channel_shuffle(y.unsqueeze(0).transpose(1, 2), 2)
    return y, a, left.sin(), right, c.sum_to_size(1, 4), shuffled


def answers(m: torch.Tensor, x: torch.Tensor) -> Any:
    y, z = x[m], x[~m]
    rows = torch.addmv(x[0, 0], y, W[:, 0])
    return rows, torch.equal(y, z), torch.equal(y, y + 0), torch.equal(y, y[:1]), y.allclose(y + 1e-7)


def asserted(x: torch.Tensor) -> torch.Tensor:
    assert (x > 0).all().item()
    assert torch.allclose(x.ceil(), x)
    return x * 2


def columns(m: torch.Tensor, x: torch.Tensor) -> Any:
    """Products of one column: whether it is a row as well nobody knows."""
    y = x[m]
    return y[:, :1] @ W[:1], F.linear(y[:, 1:2], W[:, :1], W[:, 1]), y[:, m[:4]] @ x[:4][m[:4]]


def softmax(k: torch.Tensor, x: torch.Tensor) -> Any:
    y = x[: k.item()]
    return y.softmax(0), y.softmax(1), y.log_softmax(1).sum()


def reductions(k: torch.Tensor, x: torch.Tensor) -> Any:
    y = x[: k.item()]
    return y.sum(), y.mean(), y.mean(0), y.var(0), y.prod(), y.amax(1), (y > 0).any(0), (y > 0).all()


def maximum_of_rows(k: torch.Tensor, x: torch.Tensor) -> Any:
    y = x[: k.item()]
    return y.max(1), y.argmin(1), y.logsumexp(0), y.norm()


def maximum_of_all(k: torch.Tensor, x: torch.Tensor) -> Any:
    return x[: k.item()].amax()


def normalisation(k: torch.Tensor, x: torch.Tensor) -> Any:
    return F.layer_norm(x[: k.item()], (4,)), F.gelu(x[: k.item()])


def scans(k: torch.Tensor, x: torch.Tensor) -> Any:
    y = x[: k.item()]
    return y.cumsum(0), y.sort(0).values, y.flip(0), y.roll(1, 1)


def reshapes(k: torch.Tensor, x: torch.Tensor) -> Any:
    y = x[: k.item()]
    return y.reshape(-1) * 2, y.view(-1, 2, 2).sum(2), y.t().contiguous(), y.unflatten(1, (2, 2)).flatten(0, 1) + 1


def products(k: torch.Tensor, x: torch.Tensor) -> Any:
    y = x[: k.item()]
    return y @ W, F.linear(y, W.t(), W[0]), y @ y.t()


def attention(k: torch.Tensor, x: torch.Tensor) -> Any:
    y = x[: k.item()][None, None]
    return F.scaled_dot_product_attention(y, y, y)


def cat(k: torch.Tensor, x: torch.Tensor) -> Any:
    u = k.item()
    a = torch.ones(u, 4)
    return torch.cat([a, x]), torch.cat([x[:u], a, x[u:]]) * 2, torch.stack([a, x[:u]]).sum(0)


def written_slices(k: torch.Tensor, x: torch.Tensor) -> Any:
    y = x * 1
    y[k.item() :] = 0
    y[: k.item()] *= 2
    y[: k.item(), 1] += x[0, 0]
    return y


# --- what operators find ---------------------------------------------------------------------------------------------


def nonzero(m: torch.Tensor, x: torch.Tensor) -> Any:
    i = m.nonzero()
    return i, i.size(0), i.sum(), x[i[:, 0]] * 2


def selected(m: torch.Tensor, x: torch.Tensor) -> Any:
    y = x[m]
    return y, y.size(0), y @ W, (y * 2).exp()


def argwhere(m: torch.Tensor, x: torch.Tensor) -> Any:
    (i,) = torch.where(m)
    return x.index_select(0, i).relu(), torch.argwhere(x > 0).sum(0)


def sums_at_selected(m: torch.Tensor, x: torch.Tensor) -> Any:
    (i,) = m.nonzero(as_tuple=True)
    return torch.zeros_like(x).index_add(0, i, x[i] * 2), torch.zeros_like(x).index_put((i,), torch.tensor(1.0))


def unique(k: torch.Tensor, x: torch.Tensor) -> Any:
    values, inverse, counts = torch.unique(k, return_inverse=True, return_counts=True)
    return values, values[inverse] * 2, counts / counts.sum(), torch.unique_consecutive(k)


def bincount(k: torch.Tensor, x: torch.Tensor) -> Any:
    counts = torch.bincount(k)
    return counts, counts.float().softmax(0), torch.bincount(k, x[:, 0]).size(0)


def segments(k: torch.Tensor, x: torch.Tensor) -> Any:
    count = k.max().item() + 1
    sums = torch.zeros(count, 4).index_add(0, k, x)
    return sums, sums.relu() @ W


def one_hot(k: torch.Tensor, x: torch.Tensor) -> Any:
    ones = torch.ones(1).expand(k.max().item() + 1)
    return torch.zeros(k.size(0), k.max().item() + 1).scatter(1, k[:, None], 1.0) @ ones


def repeat_interleave(k: torch.Tensor, x: torch.Tensor) -> Any:
    y = x.repeat_interleave(k, dim=0)
    return y, y * 2, y.sum(0), torch.repeat_interleave(k)


def repeat_interleave_number(k: torch.Tensor, x: torch.Tensor) -> Any:
    return x.repeat_interleave(k.item(), dim=0) + 1


def lengths(k: torch.Tensor, x: torch.Tensor) -> Any:
    mask = torch.arange(k.max().item()) < k[:, None]
    return mask, mask.sum(1) - k, mask.float() @ torch.ones(1).expand(k.max().item())


def embedding(m: torch.Tensor, x: torch.Tensor) -> Any:
    return F.embedding(m.nonzero()[:, 0], x) * 2


def number_argument(k: torch.Tensor, x: torch.Tensor, step: float) -> Any:
    return torch.trapezoid(x[k.item() :], dx=step, dim=0)


# --- sizes of 1 ------------------------------------------------------------------------------------------------------


def against_five(k: torch.Tensor, x: torch.Tensor) -> Any:
    y = torch.arange(k.item())
    return x + y, torch.where(x > 0, x, y.float()) * 2, (x[:, None] * y).sum()


def against_sizes(k: torch.Tensor, x: torch.Tensor) -> Any:
    y = x[: k.item()]
    return x * y, torch.maximum(x[:, :1], y[:, 1:2]).sum()


def against_each_other(k: torch.Tensor, n: torch.Tensor, x: torch.Tensor) -> Any:
    a, b = torch.ones(k[0].item(), 2) * 2, torch.ones(n[0].item(), 2) * 3
    return a + b, (a * b).sum(), (a - b).mean(1)


def expand_to_five(k: torch.Tensor, x: torch.Tensor) -> Any:
    return torch.arange(k.item()).expand(3, 5) * 2


def gradient_of_rows(k: torch.Tensor, x: torch.Tensor) -> Any:
    y = x[: k.item()]
    return (y * 2).exp().sum(), y @ W


def gradient_of_split(k: torch.Tensor, x: torch.Tensor) -> Any:
    a, b = x.split(k.tolist())
    return a.tanh().sum(0), b * 2


def gradient_of_repeats(k: torch.Tensor, x: torch.Tensor) -> Any:
    return x.repeat_interleave(k, dim=0).sin()


def gradient_of_selected(m: torch.Tensor, x: torch.Tensor) -> Any:
    return (x[m] @ W).relu()


def running_product(m: torch.Tensor, x: torch.Tensor) -> Any:
    y = x[m].view(-1, 4)
    return (y * (y > -0.4)).cumprod(0), y.cumprod(1)


def gradient_of_branches(k: torch.Tensor, x: torch.Tensor) -> Any:
    return torch.cond(k > 1, lambda y: y * 2 + y.sin(), lambda y: y.cos() - y, (x,))


def gradient_against_sizes(k: torch.Tensor, x: torch.Tensor) -> Any:
    return x * x[: k.item()].tanh()


P = DataProgram
DATA_DEPENDENT: tuple[DataProgram, ...] = (
    P("item in arithmetic", item_in_arithmetic, rows),
    P("float of item", float_of_item, rows),
    P("zeros", zeros, number),
    P("full", full, number),
    P("slices of what is written", slices_of_what_is_written, row),
    P("arange", arange, number),
    P("arange between", arange_between, number),
    P("eye", eye, number),
    P("linspace", linspace, number),
    P("expand", expand, row),
    P("repeat", repeat, rows),
    P("outer", outer, row),
    P("position mask", position_mask, rows),
    P("checked", checked, rows),
    P("tolist", tolist, two),
    P("pad", pad, rows),
    P("slices", slices, rows),
    P("slices from the end", slices_from_the_end, rows),
    P("narrow start", narrow_start, rows),
    P("narrow length", narrow_length, rows),
    P("select", select, rows),
    P("split", split, two),
    P("tensor_split", tensor_split, two),
    P("equal parts", equal_parts, flagged, gradient=True, values=(7, 0, 2)),
    P("answers", answers, flagged, values=(7, 1, 1000)),
    P("columns", columns, flagged, gradient=True, values=(7, 1, 2, 1000)),
    P("written slices", written_slices, rows),
    P("softmax", softmax, rows),
    P("reductions", reductions, rows),
    P("maximum of rows", maximum_of_rows, rows),
    P("maximum of all", maximum_of_all, rows),
    P("normalisation", normalisation, rows),
    P("scans", scans, rows),
    P("reshapes", reshapes, rows),
    P("products", products, rows),
    P("attention", attention, rows),
    P("cat", cat, rows),
    P("nonzero", nonzero, flagged),
    P("selected", selected, flagged),
    P("argwhere", argwhere, flagged),
    P("sums at selected", sums_at_selected, flagged),
    P("unique", unique, labels),
    P("bincount", bincount, labels),
    P("segments", segments, labels),
    P("one hot", one_hot, labels),
    P("repeat_interleave", repeat_interleave, repeats),
    P("repeat_interleave by a number", repeat_interleave_number, rows),
    P("lengths", lengths, lambda u: (torch.tensor([u, 0, u // 2]), torch.randn(2, 2))),
    P("embedding", embedding, flagged),
    P("against five", against_five, five, values=(7, 0, 1, 2, 5, 1000)),
    P("against sizes", against_sizes, rows),
    P("against each other", against_each_other, pair),
    P("expand to five", expand_to_five, five, values=(7, 0, 1, 2, 5, 1000)),
    P("number argument", number_argument, lambda u: (torch.tensor(u), torch.randn(2 * u + 2, 4), 0.5)),
    P("gradient of rows", gradient_of_rows, rows, gradient=True),
    P("gradient of split", gradient_of_split, two, gradient=True),
    P("gradient of repeats", gradient_of_repeats, repeats, gradient=True),
    P("gradient of selected", gradient_of_selected, flagged, gradient=True),
    P("gradient of scans", scans, rows, gradient=True),
    P("gradient of written slices", written_slices, rows, gradient=True),
    P("gradient of running products", running_product, flagged, gradient=True),
    P("gradient of branches", gradient_of_branches, rows, gradient=True),
    P("gradient against sizes", gradient_against_sizes, rows, gradient=True),
)
