"""Reductions, normalisations, losses."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from program import (
    F32,
    I8,
    I32,
    LARGE,
    NONEMPTY,
    U8,
    P,
    cube,
    flags,
    integers,
    matrix,
    normal,
    pair,
    positive,
    square,
    vector,
)


def some_targets(rows: int, classes: int) -> torch.Tensor:
    """In each row other classes in front of the first -1: none in the first row, all in some."""
    row, place = torch.arange(rows)[:, None], torch.arange(classes)
    return torch.where(place == row % (classes + 1), -1, (place + row) % classes)


def layer_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, (x.shape[-1],), w, b)


def rms_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w


def batch_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.batch_norm(x, None, None, w, b, training=True)


def batch_norm_eval(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.batch_norm(x, torch.full((6,), 0.2, dtype=x.dtype), torch.full((6,), 0.7, dtype=x.dtype), w, b)


def batch_norm_inputs(n: int) -> tuple[Any, ...]:
    return normal(n, 6, n + 1), normal(6), normal(6)


REDUCTIONS = [
    P(
        "of a value of the row, joined",
        lambda x, v: (torch.cat([(v * 2 + 1)[:, None], x], 1).softmax(1), torch.cat([x, (v * 3)[:, None]], 1).sum(1)),
        lambda n: (normal(n, n + 3), normal(n)),
        gradient=True,
    ),
    *[P(f"softmax {d}", lambda x, d=d: F.softmax(x, d), cube, gradient=True) for d in range(3)],
    P("softmax of one dim", lambda x: F.softmax(x, 0), vector, gradient=True),
    P("log softmax", lambda x: F.log_softmax(x, 1), cube, gradient=True),
    P(
        "softmax masked",
        lambda x, m: F.softmax(x.masked_fill(m, float("-inf")), -1),
        lambda n: (normal(n, n + 3), flags(n, n + 3)),
    ),
    P("softmax of all masked", lambda x: F.softmax(x.masked_fill(x < 9, float("-inf")), -1), matrix),
    P("layer norm", layer_norm, lambda n: (normal(3, n, n + 2), normal(n + 2), normal(n + 2)), gradient=True),
    P("rms norm", rms_norm, lambda n: (normal(3, n, n + 2), normal(n + 2)), gradient=True),
    P(
        "residual rms norm",
        lambda x, y, w: rms_norm(x + y, w) + x,
        lambda n: (normal(n, n + 2), normal(n, n + 2), normal(n + 2)),
        gradient=True,
    ),
    P("batch norm eval", batch_norm_eval, batch_norm_inputs, gradient=True),
    P("batch norm train", batch_norm, batch_norm_inputs, NONEMPTY, gradient=True),
    P(
        "group norm",
        lambda x, w, b: F.group_norm(x, 3, w, b),
        lambda n: (normal(n, 6, n + 1), normal(6), normal(6)),
        NONEMPTY,
        gradient=True,
    ),
    P("instance norm", lambda x: F.instance_norm(x), lambda n: (normal(n, 3, n + 2),), NONEMPTY, gradient=True),
    P(
        "cross entropy",
        lambda x, t: F.cross_entropy(x, t),
        lambda n: (normal(n, n + 3), torch.randint(0, n + 3, (n,))),
        NONEMPTY,
        gradient=True,
    ),
    P(
        "cross entropy none",
        lambda x, t: F.cross_entropy(x, t, reduction="none", label_smoothing=0.1),
        lambda n: (normal(n, n + 3), torch.randint(0, n + 3, (n,))),
        gradient=True,
    ),
    P(
        "nll ignore",
        lambda x, t: F.nll_loss(F.log_softmax(x, 1), t, ignore_index=1, reduction="sum"),
        lambda n: (normal(n, 6), torch.randint(0, 6, (n,))),
        gradient=True,
    ),
    P("mse", lambda x, y: F.mse_loss(x, y), pair, NONEMPTY, gradient=True),
    P("bce", lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()), pair, NONEMPTY, gradient=True),
    P("var", lambda x: (x.var(0), x.var(1, correction=0), x.var((0, 2), correction=2)), cube, LARGE, gradient=True),
    P("std", lambda x: x.std(-1) + x.std(-1, unbiased=False), matrix, LARGE, gradient=True),
    P("var mean", lambda x: torch.var_mean(x, (0, 1)), cube, LARGE, gradient=True),
    P("var of few", lambda x: (x.var(0), x.std(0, correction=3)), matrix, (7, 2, 1, 0)),
    P("argmax", lambda x: (x.argmax(0), x.argmax(-1, keepdim=True), x.argmax()), cube, NONEMPTY),
    P(
        "argmin ties",
        lambda x: (x.argmin(0), x.argmax(1), x.argmax(), x.argmin()),
        lambda n: (integers(n, n + 3, low=0, high=3),),
        NONEMPTY,
    ),
    P(
        "argmax nan",
        lambda x: (x.argmax(1), x.argmin(0), x.argmax()),
        lambda n: (torch.where(flags(n, n + 3), float("nan"), normal(n, n + 3)),),
        NONEMPTY,
    ),
    P("max dim", lambda x: (*x.max(1), *x.min(0)), matrix, NONEMPTY, gradient=True),
    P(
        "max nan",
        lambda x: (*x.max(1), *x.min(1), x.amax(0), x.max()),
        lambda n: (torch.where(normal(n, n + 3) > 1, float("nan"), normal(n, n + 3)),),
        NONEMPTY,
    ),
    P("amax amin", lambda x: x.amax((0, 2)) - x.amin((0, 2)), cube, NONEMPTY, gradient=True),
    P("amax ties", lambda x: x.round().amax(1), matrix, NONEMPTY, gradient=True),
    P(
        "max infinite",
        lambda x: (x.amax(1), x.argmax(1), x.max(1)),
        lambda n: (torch.full((n, n + 3), float("-inf")),),
        NONEMPTY,
    ),
    P("max bool", lambda x: (x.amax(0), x.any(), x.all(), x.any(0), x.all(1)), lambda n: (flags(n, n + 3),), NONEMPTY),
    P("any all float", lambda x: (x.any(1), x.all(0), x.any(), x.all()), lambda n: (normal(n, n + 3).round(),)),
    P(
        "any all uint8",
        lambda x: (x.any(1), x.all(0), x.any()),
        lambda n: (integers(n, n + 3, low=0, high=2, dtype=U8),),
    ),
    *[P(f"norm {p}", lambda x, p=p: torch.linalg.vector_norm(x, p, dim=1), matrix) for p in (0, 1, 2, 3, 0.5)],
    P("norm inf", lambda x: (x.norm(float("inf"), 1), x.norm(float("-inf"))), matrix, NONEMPTY),
    P("frobenius", lambda x: x / (x.norm() + 1), matrix, gradient=True),
    P(
        "logsumexp",
        lambda x: (x.logsumexp(0), x.logsumexp((0, 2)), (x * 9).logsumexp(1)),
        cube,
        NONEMPTY,
        gradient=True,
    ),
    P("logsumexp infinite", lambda x: x.logsumexp(1), lambda n: (torch.full((n, n + 3), float("-inf")),)),
    P("prod", lambda x: (x.prod(), x.prod(0), x.prod(1)), lambda n: (positive(min(n, 16), 4),)),
    P("prod integer", lambda x: (x.prod(), x.prod(1)), lambda n: (integers(n, 4),)),
    P(
        "multilabel margin loss",
        lambda x, t: [F.multilabel_margin_loss(x, t, reduction=r) for r in ("mean", "sum", "none")],
        lambda n: (normal(5, n + 3), some_targets(5, n + 3)),  # of no rows eager mode returns what was in memory
        gradient=True,
    ),
    P("sum integer", lambda x: (x.sum(), x.sum(1), x.sum(0, dtype=I32)), lambda n: (integers(n, n + 3, dtype=I8),)),
    P("sum bool", lambda x: (x.sum(), x.sum(1), x.sum(0, dtype=F32)), lambda n: (flags(n, n + 3),)),
    P(
        "sum as bool",
        lambda x: (x.sum(dtype=torch.bool), x.sum(1, dtype=torch.bool), x.prod(0, dtype=torch.bool), x.bool().prod()),
        lambda n: (integers(n, n + 3, low=-1, high=2),),
    ),
    P(
        "sum as uint8",
        lambda x: (x.sum(dtype=U8), x.sum(1, dtype=U8), x.prod(0, dtype=U8), x.prod(dtype=U8)),
        lambda n: (integers(n, n + 3, low=0, high=256, dtype=U8),),
    ),
    P("sum uint8", lambda x: (x.sum(), x.sum(1)), lambda n: (integers(n, n + 3, low=0, high=256, dtype=U8),)),
    P(
        "mean dims",
        lambda x: (x.mean((0, 2)), x.mean((0, 1)), x.mean(), x.mean((0, 2), keepdim=True) + x),
        cube,
        NONEMPTY,
        gradient=True,
    ),
    P("mean of nothing", lambda x: (x.mean(0), x.mean(), x.sum(0), x.prod(0)), matrix, (7, 0, 1)),
    P("four dims", lambda x: x.sum((0, 2)) + x.sum((1, 3)).sum(), lambda n: (normal(n, 3, n + 1, 2),), gradient=True),
    P(
        "four dims apart",
        lambda x: x - x.mean((1, 3), keepdim=True),
        lambda n: (normal(n, 3, n + 1, 2),),
        gradient=True,
    ),
    P("sum both ways", lambda x: (x.sum(0), x.sum(1)), matrix, gradient=True),
    P(
        "sum both ways joined",
        lambda x: x / x.sum(0) + x / x.sum(1, keepdim=True),
        lambda n: (positive(n, n + 3),),
        gradient=True,
    ),
    P("sum both ways square", lambda x, y: x.sum(0) * y.sum(1), square, gradient=True),
    P("outer broadcast of rows", lambda x: x.sum(1)[:, None] * x.sum(1)[None, :], matrix, gradient=True),
    P("rows along columns", lambda x: x + x.sum(1), lambda n: (normal(n, n),), gradient=True),
    P("softmax then other dim", lambda x: F.softmax(F.softmax(x, 0), 1), matrix, gradient=True),
    P("double centre", lambda x: x - x.mean(0) - x.mean(1, keepdim=True) + x.mean(), matrix, NONEMPTY, gradient=True),
    P("cosine", lambda x, y: F.cosine_similarity(x, y, dim=1), pair, gradient=True),
    P("normalize", lambda x: F.normalize(x, dim=0), matrix, gradient=True),
    P("outer", lambda x: torch.outer(x, x.exp()), vector, gradient=True),
    P("outer sum", lambda x, y: (x[:, None] * y[None, :]).sum(0), lambda n: (normal(n), normal(n + 3)), gradient=True),
    P(
        "broadcast product sum",
        lambda x, y: (x[:, None, :] * y[None, :, :]).sum(-1),
        lambda n: (normal(min(n, 17), 6), normal(n, 6)),
        gradient=True,
    ),
    P(
        "pairwise distance",
        lambda x: (x[:, None] - x[None]).pow(2).sum(-1),
        lambda n: (normal(min(n, 17), 3),),
        gradient=True,
    ),
    P("einsum", lambda x, y: torch.einsum("ij,ik->jk", x, y), pair, gradient=True),
    P(
        "chain",
        lambda x: (x.sum(1).exp().sum() + x.mean()).tanh(),
        lambda n: (normal(n, n + 3) / (n + 3),),
        NONEMPTY,
        gradient=True,
    ),
    P(
        "reduce twice",
        lambda x: (x.sum(2).amax(1), x.amax(1).sum(1)),
        lambda n: (normal(n, n + 1, 5),),
        NONEMPTY,
        gradient=True,
    ),
    P(
        "variance by hand",
        lambda x: ((x - x.mean(1, keepdim=True)) ** 2).sum(1) / (x.shape[1] - 1),
        matrix,
        gradient=True,
    ),
    P("sum of transposed", lambda x: x.t().sum(0) + x.t().contiguous().sum(0), matrix, gradient=True),
    P(
        "sum of reshaped",
        lambda x: (x * 2).reshape(x.shape[0], -1).sum(1) + x.sum((1, 2)),
        cube,
        NONEMPTY,
        gradient=True,
    ),
    P("reduce merged dims", lambda x: (x - x.reshape(-1, 5).mean(0)).abs().sum(), cube, NONEMPTY, gradient=True),
    P(
        "normalise groups",
        lambda x: (x.view(x.shape[0], 2, -1) / x.view(x.shape[0], 2, -1).norm(dim=-1, keepdim=True)).view_as(x),
        lambda n: (normal(n, 2 * n + 4),),
        NONEMPTY,
        gradient=True,
    ),
    P("cumsum", lambda x: x.cumsum(1) * 2 + x.cumsum(0), matrix, gradient=True),
    P("sort", lambda x: [t * 2 for t in x.sort(1)], matrix),
    P("topk", lambda x: x.topk(2, 1)[0].sum(1), matrix, gradient=True),
    P("median", lambda x: x.median(1)[0] + 1, matrix),
    P("count nonzero", lambda x: x.round().count_nonzero(1), matrix),
    P(
        "scalar reduce",
        lambda x: (x.sum(), x.mean(), x.max(), x.argmax(), x.any(), x.var(correction=0)),
        lambda n: (torch.tensor(float(n)),),
        (7, 0),
    ),
    P("sum keep scalar", lambda x: x / x.sum(), lambda n: (positive(n),), gradient=True),
    P("sum of constant", lambda x: (torch.ones_like(x).sum(), torch.zeros(x.shape[0]).sum()), matrix),
    P("sum of broadcast", lambda x: x[:, None].expand(-1, 4).sum(1) + x.expand(3, -1).sum(0), vector, gradient=True),
    P("sum over size one", lambda x: x.unsqueeze(1).sum(1) + x.unsqueeze(-1).amax(-1), matrix, gradient=True),
]
