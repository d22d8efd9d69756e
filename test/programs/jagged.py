"""Programs of nested tensors with the jagged layout: values, and offsets of the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

Tensor = torch.Tensor

WIDTH = 6
# Lengths of rows: unequal, some and all of them 0, equal, one row.
BATCHES = ((3, 5, 2), (7, 1, 4, 11, 2), (4, 0, 7), (0, 0, 3, 0), (6, 6), (9,), (0, 0, 0))


@dataclass(frozen=True)
class Jagged:
    """A program of one nested tensor and dense ones. ``dense``: what else it takes, for a number of rows.
    ``gradient``: eager mode has one. ``nonempty``: eager mode refuses a batch without elements. ``several``: it asks
    whether there is one row, and so there is a graph for that. ``calls``: what stays of PyTorch's own operators.
    ``reference``: the same without nested tensors inside, where eager mode has no rule."""

    name: str
    function: Callable[..., Any]
    dense: Callable[[int], tuple[Tensor, ...]] = lambda rows: ()
    gradient: bool = True
    nonempty: bool = False
    several: bool = False
    calls: tuple[str, ...] = ()
    reference: Callable[..., Any] | None = None

    @property
    def batches(self) -> tuple[tuple[int, ...], ...]:
        found = (batch for batch in BATCHES if not self.nonempty or max(batch) > 0)
        return tuple(batch for batch in found if not self.several or len(batch) > 1)

    def inputs(self, lengths: Sequence[int]) -> tuple[Tensor, ...]:
        """The same for equal lengths."""
        torch.manual_seed(sum(lengths))
        rows = [torch.randn(length, WIDTH).mul(3) for length in lengths]
        nested = torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=self.gradient)
        dense = [x.requires_grad_(self.gradient and x.is_floating_point()) for x in self.dense(len(lengths))]
        return nested, *dense


def block(x: Tensor, weight: Tensor, bias: Tensor, product: Tensor) -> Tensor:
    """Layer norm, gelu, linear, softmax over the dense dim, sum over the rows."""
    normed = F.gelu(F.layer_norm(x, (WIDTH,), weight, bias))
    return F.linear(normed, product).softmax(-1).sum(1)


def from_padded(x: Tensor) -> Tensor:
    padded = torch.nested.to_padded_tensor(x, 0.0)
    return torch.nested.nested_tensor_from_jagged(x.values() + padded.sum(), x.offsets())


def of_lengths(x: Tensor) -> Tensor:
    """Offsets made from lengths: nothing of the data is read."""
    lengths = x.offsets().diff()
    offsets = F.pad(lengths.cumsum(0), (1, 0))
    return (torch.nested.nested_tensor_from_jagged(x.values() * 2, offsets) * 3).values()


def heads(x: Tensor) -> Tensor:
    """(rows, ragged, width) as (rows, heads, ragged, width of a head)."""
    return x.unflatten(-1, (2, -1)).transpose(1, 2)


def attention(x: Tensor, *weights: Tensor, **options: Any) -> Tensor:
    """Within each row. In double precision: PyTorch's way of nested tensors rounds otherwise than flash attention."""
    query, key, value = (heads(F.linear(x.double(), weight)) for weight in weights)
    return F.scaled_dot_product_attention(query, key, value, **options).transpose(1, 2).flatten(-2)


def attention_by_rows(x: Tensor, *weights: Tensor) -> Tensor:
    """Causal attention of dense rows, put together again."""
    rows = [attention(row[None], *weights, is_causal=True)[0] for row in x.unbind()]
    return torch.nested.nested_tensor_from_jagged(torch.cat(rows), x.offsets())


def attention_to_others(x: Tensor, weight: Tensor, values: Tensor, offsets: Tensor) -> Tensor:
    """To rows of other lengths."""
    others = torch.nested.nested_tensor_from_jagged(values, offsets)
    found = F.scaled_dot_product_attention(heads(x.double()), heads(F.linear(others, weight)), heads(others))
    return found.transpose(1, 2).flatten(-2)


def transformer_block(x: Tensor, q: Tensor, k: Tensor, v: Tensor, up: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    x = x + attention(F.layer_norm(x.double(), (WIDTH,)), q, k, v)
    return x + F.gelu(F.linear(F.layer_norm(x, (WIDTH,), weight.double(), bias.double()), up))


def gated(x: Tensor, both: Tensor, down: Tensor) -> Tensor:
    gate, value = F.linear(x.double(), both).chunk(2, -1)
    return F.linear(F.silu(gate) * value, down)


def pooled(x: Tensor, weight: Tensor) -> Tensor:
    """Sums over the rows, weighted by a softmax over them. In double precision: gradients of weights cancel out."""
    x = x.double()
    return (x * F.linear(x, weight.double()).softmax(1)).sum(1)


def of_rows(function: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """What a function makes of each row, which has the size of a row or of none."""

    def by_rows(x: Tensor, *dense: Tensor) -> Tensor:
        return torch.stack([function(row, *dense) for row in x.unbind()])

    return by_rows


def in_rows(function: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """The same where it has as many elements as the row."""

    def by_rows(x: Tensor) -> Tensor:
        return torch.nested.nested_tensor_from_jagged(torch.cat([function(row) for row in x.unbind()]), x.offsets())

    return by_rows


def of_values(function: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """The same for what has no need to know where rows end."""

    def by_values(x: Tensor) -> Tensor:
        return torch.nested.nested_tensor_from_jagged(function(x.values()), x.offsets())

    return by_values


def joined(x: Tensor, values: Tensor, offsets: Tensor) -> Tensor:
    """Rows of x, of others, and of x again, one behind the other."""
    return torch.cat([x, torch.nested.nested_tensor_from_jagged(values, offsets), x.sin()], 1)


def joined_by_rows(x: Tensor, values: Tensor, offsets: Tensor) -> Tensor:
    others = torch.nested.nested_tensor_from_jagged(values, offsets).unbind()
    rows = [torch.cat([row, other, row.sin()]) for row, other in zip(x.unbind(), others)]
    return torch.nested.nested_tensor_from_jagged(torch.cat(rows), x.offsets() * 2 + offsets)


def indices(x: Tensor) -> Tensor:
    return x.values()[:, 0].abs().long().clamp(max=7)


def bags(x: Tensor, weight: Tensor, mode: str = "mean") -> Tensor:
    rows = torch.nested.nested_tensor_from_jagged(indices(x), x.offsets())
    return F.embedding_bag(rows, weight, mode=mode)


def bags_by_rows(x: Tensor, weight: Tensor, mode: str = "mean") -> Tensor:
    return F.embedding_bag(indices(x), weight, x.offsets(), include_last_offset=True, mode=mode)


def features(x: Tensor, table: Tensor, weight: Tensor) -> Tensor:
    """Of a recommendation model: sums and maxima of embedded histories, weighted by a softmax over each."""
    rows = torch.nested.nested_tensor_from_jagged(indices(x), x.offsets())
    history = F.embedding(rows, table.double())
    weights = F.linear(history, weight.double()).softmax(1)
    return torch.cat([(history * weights).sum(1), history.mean(1)], -1)


def features_by_rows(x: Tensor, table: Tensor, weight: Tensor) -> Tensor:
    found = []
    for row in torch.nested.nested_tensor_from_jagged(indices(x), x.offsets()).unbind():
        history = F.embedding(row, table.double())
        weights = F.linear(history, weight.double()).softmax(0)
        found.append(torch.cat([(history * weights).sum(0), history.mean(0)], -1))
    return torch.stack(found)


def padded_block(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Normalised, padded, what is padded masked in a softmax over the row, and back."""
    normed = F.layer_norm(x, (WIDTH,), weight, bias)
    padded = torch.nested.to_padded_tensor(normed, -torch.inf)
    return padded.softmax(1).nan_to_num().sum((1, 2))


def squares(count: int) -> Callable[[int], tuple[Tensor, ...]]:
    return lambda rows: tuple(torch.rand(WIDTH, WIDTH, dtype=torch.float64) - 0.5 for _ in range(count))


def other_rows(rows: int) -> tuple[Tensor, ...]:
    """A matrix, and rows of 1, 2, 3, 1, ... elements."""
    ends = torch.tensor([0, *(1 + i % 3 for i in range(rows))]).cumsum(0)
    return *squares(1)(rows), torch.randn(int(ends[-1]), WIDTH, dtype=torch.float64), ends


def affine(rows: int) -> tuple[Tensor, ...]:
    return torch.rand(WIDTH), torch.rand(WIDTH)


J = Jagged
ATTENTION = ("jagged_attention", "jagged_attention_backward")
JAGGED = (
    J("pointwise", lambda x: torch.sin(x) * 2 + 1),
    J("pointwise of two", lambda x: x * x.cos() - x.exp()),
    J("chain of pointwise", lambda x: F.silu(F.gelu(x) * torch.sigmoid(x) + 3).tanh()),
    J("comparison", lambda x: (x > 0).to(torch.float32), gradient=False),
    J("cast to float64", lambda x: x.to(torch.float64) * 3),
    J("cast to bfloat16", lambda x: x.to(torch.bfloat16) + 1),
    J("dense row", lambda x, b: x + b, lambda rows: (torch.rand(WIDTH),)),
    J("linear", lambda x, w: F.linear(x, w), lambda rows: (torch.rand(4, WIDTH),), calls=("mm", "mm", "mm")),
    J(
        "linear with a bias",
        lambda x, w, b: F.linear(x, w, b),
        lambda rows: (torch.rand(4, WIDTH), torch.rand(4)),
        calls=("addmm", "mm", "mm"),
    ),
    J("layer norm", lambda x, w, b: F.layer_norm(x, (WIDTH,), w, b), affine),
    J("rms norm", lambda x, w: F.rms_norm(x, (WIDTH,), w), lambda rows: (torch.rand(WIDTH),)),
    J("softmax of the dense dim", lambda x: x.softmax(-1)),
    J("log_softmax of the dense dim", lambda x: x.log_softmax(-1), reference=of_values(lambda v: v.log_softmax(-1))),
    J("softmax of the ragged dim", lambda x: x.softmax(1), reference=in_rows(lambda row: row.softmax(0))),
    J("sum of the ragged dim", lambda x: x.sum(1), reference=of_rows(lambda row: row.sum(0))),
    J("sum of the ragged dim, kept", lambda x: x.sum(1, keepdim=True), reference=of_rows(lambda row: row.sum(0, True))),
    J("mean of the ragged dim", lambda x: x.mean(1), reference=of_rows(lambda row: row.mean(0))),
    J("amax of the ragged dim", lambda x: x.amax(1), gradient=False, nonempty=True),
    J("amin of the ragged dim", lambda x: x.amin(1), gradient=False, nonempty=True),
    J("sum of the dense dim", lambda x: x.sum(-1), reference=of_values(lambda v: v.sum(-1))),
    J("mean of the dense dim", lambda x: x.mean(-1, keepdim=True)),
    J("amax of the dense dim", lambda x: x.amax(-1)),
    J("sum of all", lambda x: x.sum()),
    J("padded", lambda x: torch.nested.to_padded_tensor(x, -1.5)),
    J("padded, summed, and back", from_padded),
    J(
        "block",
        block,
        lambda rows: (*affine(rows), torch.rand(4, WIDTH)),
        calls=("mm",) * 3,
        reference=of_rows(lambda row, *weights: block(row[None], *weights)[0]),
    ),
    J(
        "a dense tensor for each row",
        lambda x, y: x * y,
        lambda rows: (torch.rand(rows, 1, WIDTH),),
        several=True,
    ),
    J("offsets of lengths", of_lengths),
    J("matrix product", lambda x, w: x @ w, lambda rows: (torch.rand(WIDTH, 5),), calls=("mm", "mm", "mm")),
    J("where", lambda x: torch.where(x > 0, x, 0.5 - x)),
    J(
        "minus the mean of the ragged dim",
        lambda x: x - x.mean(1, keepdim=True),
        gradient=False,
        several=True,
    ),
    J("clamp", lambda x: x.clamp(-1, 1).abs()),
    J("masked_fill", lambda x: x.masked_fill(x > 1, 0.5)),
    J("joined along the dense dim", lambda x: torch.cat([x, x.sin()], -1)),
    J("heads, split and joined", lambda x: heads(x).transpose(1, 2).flatten(-2) * 2),
    J("outer product of each element", lambda x: x.unsqueeze(-1) * x.unsqueeze(-2)),
    J("zeros and ones like it", lambda x: torch.zeros_like(x) + torch.ones_like(x) * x),
    J("product of the dense dim", lambda x: x.prod(-1), reference=of_values(lambda v: v.prod(-1))),
    J("argmax of the dense dim", lambda x: x.argmax(-1), gradient=False, calls=("argmax",)),
    J("all of the dense dim", lambda x: torch.isfinite(x).all(-1), gradient=False),
    J("norm over the ragged dim", lambda x: (x * x).sum(1).sqrt(), gradient=False),
    J("mean by offsets", lambda x: x.sum(1) / x.offsets().diff()[:, None].clamp(min=1), gradient=False),
    J(
        "pooled by attention",
        pooled,
        lambda rows: (torch.rand(1, WIDTH),),
        calls=("mm",) * 3,
        reference=of_rows(lambda row, weight: pooled(row[None], weight)[0]),
    ),
    J("gated", gated, lambda rows: tuple(torch.rand(n, WIDTH).double() for n in (2 * WIDTH, 4)), calls=("mm",) * 6),
    J("attention", attention, squares(3), nonempty=True, calls=(*ATTENTION, *["mm"] * 9)),
    J(
        "scaled attention",
        lambda x, *w: attention(x, *w, scale=0.3),
        squares(3),
        nonempty=True,
        calls=(*ATTENTION, *["mm"] * 9),
    ),
    J(
        "causal attention",
        lambda x, *w: attention(x, *w, is_causal=True),
        squares(3),
        nonempty=True,
        calls=(*ATTENTION, *["mm"] * 9),
        reference=attention_by_rows,
    ),
    J("attention to other rows", attention_to_others, other_rows, nonempty=True, calls=(*ATTENTION, *["mm"] * 3)),
    J(
        "transformer block",
        transformer_block,
        lambda rows: (*squares(4)(rows), *affine(rows)),
        nonempty=True,
        calls=(*ATTENTION, *["mm"] * 12),
    ),
)

# What eager mode has no rule or no gradient for: the same of each row is the reference.
RULES = (
    J("largest of the ragged dim", lambda x: x.max(1).values + x.amax(1), gradient=False, nonempty=True),
    J("smallest of the ragged dim", lambda x: x.min(1).values + x.amin(1), gradient=False, nonempty=True),
    J("variance of the ragged dim", lambda x: x.var(1), reference=of_rows(lambda row: row.var(0))),
    J(
        "deviation of the ragged dim",
        lambda x: x.std(1, correction=0, keepdim=True),
        reference=of_rows(lambda row: row.std(0, correction=0, keepdim=True)),
    ),
    J(
        "variance and mean of both dims",
        lambda x: torch.cat([t[:, None] for t in torch.var_mean(x, (1, 2), unbiased=False)], 1),
        reference=of_rows(lambda row: torch.stack(torch.var_mean(row, (0, 1), unbiased=False))),
    ),
    J("variance of the dense dim", lambda x: x.var(-1), reference=of_values(lambda v: v.var(-1))),
    J(
        "deviation of the dense dim",
        lambda x: x.std(2, keepdim=True),
        reference=of_values(lambda v: v.std(1, keepdim=True)),
    ),
    J("cumsum of the ragged dim", lambda x: x.cumsum(1), reference=in_rows(lambda row: row.cumsum(0))),
    J("cumsum of the dense dim", lambda x: x.cumsum(-1), reference=of_values(lambda v: v.cumsum(-1))),
    J("logsumexp of the ragged dim", lambda x: x.logsumexp(1), reference=of_rows(lambda row: row.logsumexp(0))),
    J(
        "logsumexp of the dense dim",
        lambda x: x.logsumexp(-1),
        reference=of_values(lambda v: v.logsumexp(-1)),
    ),
    J("log_softmax of the ragged dim", lambda x: x.log_softmax(1), reference=in_rows(lambda row: row.log_softmax(0))),
    J(
        "softmax of both kinds",
        lambda x: F.softmax(x, 1) + x.softmax(-1),
        reference=in_rows(lambda row: row.softmax(0) + row.softmax(-1)),
    ),
    J("sum of both dims", lambda x: x.sum((1, -1)), reference=of_rows(lambda row: row.sum())),
    J(
        "mean of both dims",
        lambda x: x.mean((1, 2), keepdim=True),
        reference=of_rows(lambda row: row.mean((0, 1), True)),
    ),
    J("product of the ragged dim", lambda x: x.prod(1), reference=of_rows(lambda row: row.prod(0))),
    J(
        "norm of the ragged dim",
        lambda x: x.double().norm(dim=1) + 1,
        reference=of_rows(lambda row: row.double().norm(dim=0) + 1),
    ),
    J("normalised", lambda x: F.normalize(x, dim=-1), reference=of_values(lambda v: F.normalize(v, dim=-1))),
    J("gated halves", lambda x: F.glu(x, -1), reference=of_values(lambda v: F.glu(v, -1))),
    J("slice of the dense dim", lambda x: x[..., 1:4] * 2, reference=of_values(lambda v: v[:, 1:4] * 2)),
    J("narrowed dense dim", lambda x: x.narrow(-1, 2, 3), reference=of_values(lambda v: v.narrow(1, 2, 3))),
    J("one of the dense dim", lambda x: x[:, :, -1].sin(), reference=of_values(lambda v: v[:, -1].sin())),
    J("joined along the ragged dim", joined, lambda rows: other_rows(rows)[1:], reference=joined_by_rows),
    J(
        "bags of embeddings",
        bags,
        lambda rows: (torch.randn(8, 3),),
        reference=bags_by_rows,
        calls=("embedding_dense_backward",),
    ),
    J(
        "features",
        features,
        lambda rows: (torch.randn(8, 4), torch.randn(1, 4)),
        reference=features_by_rows,
        calls=("embedding_dense_backward", "mm", "mm", "mm"),
    ),
    J("padded block", padded_block, affine),
)
