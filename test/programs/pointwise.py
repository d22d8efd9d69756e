"""Pointwise ops, joins, indexing, dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from program import (
    BOOL,
    F16,
    F64,
    FLOATS,
    I8,
    I16,
    I32,
    INTEGERS,
    NONEMPTY,
    U8,
    P,
    flags,
    integers,
    matrix,
    normal,
    pair,
    positive,
    vector,
)


def signed_pair(dtype: torch.dtype) -> Callable[[int], tuple[Any, ...]]:
    """Any numbers, and divisors other than 0."""

    def inputs(n: int) -> tuple[Any, ...]:
        divisors = integers(n, 5, low=1, high=7) * (integers(n, 5, low=0, high=2) * 2 - 1)
        return integers(n, 5, dtype=dtype), divisors.abs().to(dtype) if dtype == U8 else divisors.to(dtype)

    return inputs


def casts(x: torch.Tensor) -> list[torch.Tensor]:
    return [x.to(dtype) for dtype in (*FLOATS, *INTEGERS, BOOL)]


def small_values(dtype: torch.dtype) -> Callable[[int], tuple[Any, ...]]:
    """Representable in every dtype, also after truncation."""
    return lambda n: ((torch.rand(n, 5) * 100).to(dtype),)


POINTWISE = [
    P("cat", lambda x, y: torch.cat([x * 2, y + 1]), lambda n: (normal(n, 4), normal(n + 2, 4)), gradient=True),
    P(
        "cat dim 1",
        lambda x, y: torch.cat([x * 2, y, x.exp()], 1).sum(0),
        lambda n: (normal(n, 4), normal(n, 2)),
        gradient=True,
    ),
    P("cat same", lambda x: torch.cat([x, x, x * 2], -1) + 1, matrix, gradient=True),
    P(
        "cat reduced",
        lambda x: torch.cat([x.sum(0, keepdim=True), x, x.mean(0, keepdim=True)]),
        matrix,
        NONEMPTY,
        gradient=True,
    ),
    P("cat empty", lambda x: torch.cat([x[:0], x, torch.zeros(0)]) + 1, vector, gradient=True),
    P("cat of dtypes", lambda x, y: torch.cat([x, y]), lambda n: (normal(n), integers(n))),
    P("cat of heavy", lambda x, y: torch.cat([x.exp().sum(1), y.tanh().sum(0)]), pair, gradient=True),
    P(
        "cat of gathers",
        lambda x, i: torch.cat([x[i], x[i].exp()]),
        lambda n: (normal(n + 1), torch.randint(0, n + 1, (n,))),
        gradient=True,
    ),
    P(
        "nested cat",
        lambda x: torch.cat([torch.cat([x, x + 1], 0), torch.cat([x * 2, x], 0)], 1).softmax(1),
        matrix,
        gradient=True,
    ),
    P("stack", lambda x, y: torch.stack([x, y * 2, x + y], 1) * 2, pair, gradient=True),
    P(
        "stack new last",
        lambda x: torch.stack([x.sin(), x.cos()], -1).reshape(x.shape[0], -1),
        matrix,
        NONEMPTY,
        gradient=True,
    ),
    P("hstack vstack", lambda x: (torch.hstack([x, x + 1]), torch.vstack([x, x * 2])), matrix, gradient=True),
    P("pad", lambda x: F.pad(x * 2, (1, 2, 3, 0)), matrix, gradient=True),
    P("pad value", lambda x: F.pad(x.exp(), (2, 1), value=-1.5) * 2, matrix, gradient=True),
    P("pad negative", lambda x: F.pad(x * 2, (-1, 2)), matrix, gradient=True),
    P("pad reflect", lambda x: F.pad(x[None], (1, 2), mode="reflect") * 2, matrix, NONEMPTY, gradient=True),
    P("pad then sum", lambda x: F.pad(x, (1, 1)).sum(1) + F.pad(x, (0, 0, 1, 1))[1:-1].amax(1), matrix, gradient=True),
    P("pad integers", lambda x: F.pad(x // 2, (1, 1), value=7), lambda n: (integers(n, 3),)),
    P("shift right", lambda x: F.pad(x, (1, 0))[..., :-1] + x, matrix, gradient=True),
    P("where", lambda x, y: torch.where(x > y, x * 2, y), pair, gradient=True),
    P("where scalars", lambda x: torch.where(x > 0, 1.0, x) + torch.where(x > 1, 2, 3), matrix),
    P("where nan", lambda x: torch.where(x > 0, x.log(), torch.zeros(())), matrix, gradient=True),
    P(
        "where dtypes",
        lambda c, x, y: torch.where(c, x, y),
        lambda n: (flags(n), integers(n, dtype=I32), normal(n, dtype=F16)),
    ),
    P(
        "masked fill",
        lambda x, m: x.masked_fill(m, float("-inf")).amax(1),
        lambda n: (normal(n, n + 3), flags(n, n + 3)),
    ),
    P(
        "masked fill broadcast",
        lambda x, m: x.masked_fill(m[:, None], 0.0) * 2,
        lambda n: (normal(n, 3), flags(n)),
        gradient=True,
    ),
    P(
        "causal mask",
        lambda x: x.masked_fill(torch.ones(x.shape[0], x.shape[0], dtype=torch.bool).triu(1), -1e9).softmax(-1),
        lambda n: (normal(n, n),),
        gradient=True,
    ),
    P("bool mask arithmetic", lambda x, m: x * m + ~m, lambda n: (normal(n, 3), flags(n, 3)), gradient=True),
    P("position ids", lambda m: m.long().cumsum(1) * m, lambda n: (flags(3, n),)),
    P("arange compare", lambda x: torch.arange(x.shape[0])[:, None] >= torch.arange(x.shape[1])[None], matrix),
    P("one hot", lambda i: F.one_hot(i, 5).float().sum(0), lambda n: (torch.randint(0, 5, (n,)),)),
    P(
        "embedding",
        lambda i, w: F.embedding(i, w) * 2,
        lambda n: (torch.randint(0, 9, (n, 3)), normal(9, 4)),
        gradient=True,
    ),
    P(
        "embedding of slice",
        lambda i, w: F.embedding(i[:, :-1], w).sum(1),
        lambda n: (torch.randint(0, 9, (n, 3)), normal(9, 4)),
        gradient=True,
    ),
    P(
        "position embedding",
        lambda x, w: x + w[: x.shape[1]],
        lambda n: (normal(2, n, 4), normal(128, 4)),
        gradient=True,
    ),
    P(
        "gather",
        lambda x, i: x.exp().gather(1, i),
        lambda n: (normal(n, 5), torch.randint(0, 5, (n, 2))),
        gradient=True,
    ),
    P(
        "index select",
        lambda x, i: x.index_select(0, i) + 1,
        lambda n: (normal(6, n), torch.randint(0, 6, (n,))),
        gradient=True,
    ),
    P(
        "index pair",
        lambda x, i, j: x[i, j] * 2,
        lambda n: (normal(6, 7), torch.randint(-6, 6, (n,)), torch.randint(0, 7, (n,))),
        gradient=True,
    ),
    P(
        "index put",
        lambda x, i, v: x.index_put((i,), v),
        lambda n: (normal(n + 1, 3), torch.randperm(n + 1), normal(n + 1, 3)),
        gradient=True,
    ),
    P("index add", lambda x, i: x.index_add(0, i, x * 2), lambda n: (normal(n, 3), torch.randperm(n)), gradient=True),
    P(
        "scatter add",
        lambda x, i: torch.zeros(5).scatter_add(0, i, x),
        lambda n: (normal(n), torch.randint(0, 5, (n,))),
    ),
    P(
        "scatter one",
        lambda x, i: x.scatter(1, i, 9.0) * 2,
        lambda n: (normal(n, 5), torch.randint(0, 5, (n, 1))),
        gradient=True,
    ),
    P("boolean index", lambda x: x[x > 0].sum(), matrix),
    P("boolean index rows", lambda x, m: (x[m] * 2).sum(1), lambda n: (normal(n, 3), flags(n))),
    P("nonzero", lambda x: x.nonzero() + 1, lambda n: (integers(n, 3, low=0, high=2),)),
    P("boolean assign", lambda x: torch.where(x > 0, x, 0).clone().masked_fill_(x > 1, 1.0), matrix),
    P("unique", lambda x: x.unique().float().sum(), lambda n: (integers(n),), NONEMPTY),
    P("item", lambda x, n: x * n.item(), lambda n: (normal(n), torch.tensor(n))),
    P("item as size", lambda x, n: torch.full((n.item(),), 2.0) + x, lambda n: (normal(1), torch.tensor(n + 2))),
    P("item as slice", lambda x, n: x[: n.item()] * 2, lambda n: (normal(n + 3), torch.tensor(n))),
    P("item float", lambda x, y: x * y.item(), lambda n: (normal(n), torch.tensor(1.5))),
    P("repeat interleave", lambda x: x.repeat_interleave(2, 0) * 2, matrix, gradient=True),
    P("repeat", lambda x: x.repeat(2, 3) * 2, matrix, gradient=True),
    P("tile", lambda x: x.tile(x.shape[0]) + 1, lambda n: (normal(min(n, 17)),)),
    P(
        "meshgrid",
        lambda x, y: [g * 2 for g in torch.meshgrid(x, y, indexing="ij")],
        lambda n: (normal(n), normal(n + 3)),
        gradient=True,
    ),
    P("linspace", lambda x: x * torch.linspace(0, 1, x.shape[0]), vector, gradient=True, alone=True),
    P("eye", lambda x: x + torch.eye(x.shape[0], x.shape[1]), matrix, gradient=True),
    P("full of size", lambda x: torch.full_like(x, x.shape[0]) + torch.full((x.shape[1],), 0.5), matrix),
    *[
        P(
            f"division {str(d)[6:]}",
            lambda x, y: (x // y, x % y, torch.fmod(x, y), torch.div(x, y, rounding_mode="trunc"), x / y),
            signed_pair(d),
        )
        for d in INTEGERS
    ],
    P("float division", lambda x, y: (x // y, x % y, torch.fmod(x, y), torch.div(x, y, rounding_mode="trunc")), pair),
    P(
        "division by number",
        lambda x: (x // 3, x // -3, x % -4, x % 4, -7 // (x * x + 1), x / 2, x // 2.5),
        lambda n: (integers(n, 5),),
    ),
    P("float division by zero", lambda x: (x / 0, x // 0, x % 0, (x * 0) / 0), matrix),
    P(
        "shifts",
        lambda x, s: (x << s, x >> s, x << 1, x >> 31),
        lambda n: (integers(n, low=-1000, high=1000, dtype=I32), integers(n, low=0, high=31, dtype=I32)),
    ),
    P(
        "shifts of bytes",
        lambda x, s: (x << s, x >> s),
        lambda n: (integers(n, low=0, high=256, dtype=U8), integers(n, low=0, high=9, dtype=U8)),
    ),
    P("bits", lambda x, y: (x & y, x | y, x ^ y, ~x, x & 6), lambda n: (integers(n), integers(n))),
    P(
        "bool logic",
        lambda a, b: (a & b, a | b, a ^ b, ~a, a.logical_xor(b), a == b, a != b, a < b, a + b, a * b),
        lambda n: (flags(n, 3), flags(n, 3)),
    ),
    P(
        "logic of numbers",
        lambda x, y: (x.logical_and(y), x.logical_or(y), x.logical_not()),
        lambda n: (normal(n).round(), integers(n, low=-1, high=2)),
    ),
    P("integer overflow", lambda x: (x * x, x + x, -x, x.abs()), lambda n: (torch.full((n,), -128, dtype=I8),)),
    P(
        "byte arithmetic",
        lambda x, y: (x + y, x - y, x * y, x > y, x.float() / 3, -x),
        lambda n: (integers(n, low=0, high=256, dtype=U8), integers(n, low=0, high=256, dtype=U8)),
    ),
    P("pow", lambda x: (x**2, x**3, x**0.5, x**-1, 2**x, x**x, x**0), lambda n: (positive(n, 3),), gradient=True),
    P("powers of a number", lambda x: torch.pow(2.0, x), lambda n: (positive(n, 3),), gradient=True),
    P("powers of places", lambda x: torch.arange(x.shape[0]) ** 3 // 2 + x.shape[0] ** 2, lambda n: (integers(n, 3),)),
    P("integer pow", lambda x: (x**2, x**5, x**0), lambda n: (integers(n, 3),)),
    P("clamp", lambda x: (x.clamp(-0.5, 0.5), x.clamp(min=0.1), x.clamp_max(0.3)), matrix, gradient=True),
    P("clamp integers", lambda x: (x.clamp(-3, 2), x.clamp(min=0), x.clamp(0.5, 2.5)), lambda n: (integers(n, 3),)),
    P(
        "minmax nan",
        lambda x, y: (torch.maximum(x, y), torch.fmin(x, y), x.clamp(0, 1)),
        lambda n: (torch.where(flags(n), float("nan"), normal(n)), normal(n)),
    ),
    P(
        "activations",
        lambda x: [
            f(x)
            for f in (
                F.relu,
                F.gelu,
                F.silu,
                F.elu,
                F.softplus,
                F.mish,
                F.hardswish,
                F.leaky_relu,
                torch.sigmoid,
                torch.tanh,
            )
        ],
        matrix,
        gradient=True,
    ),
    P("gelu tanh", lambda x: F.gelu(x, approximate="tanh"), matrix, gradient=True),
    P(
        "special",
        lambda x: (x.erf(), x.lgamma(), torch.digamma(x), x.erfinv(), torch.special.i0(x)),
        lambda n: (torch.rand(n, 3) * 0.9,),
    ),
    P(
        "extremes",
        lambda x: (x.exp(), x.sigmoid(), x.tanh(), F.softplus(x), x.log(), x.sqrt(), F.silu(x), x.expm1()),
        lambda n: (
            torch.tensor(
                [0.0, -0.0, 1e38, -1e38, float("inf"), float("-inf"), float("nan"), 1e-40, 88.8, -104.0]
            ).repeat(n),
        ),
    ),
    P(
        "rounding",
        lambda x: (x.round(), x.floor(), x.ceil(), x.trunc(), x.frac(), x.sign(), x.round(decimals=1)),
        lambda n: (torch.arange(n) / 2 - 3,),
    ),
    P(
        "scalar tensor operand",
        lambda x, s: (x * s, s + x, s.exp(), x + s.long()),
        lambda n: (normal(n, 3), torch.tensor(1.5)),
        gradient=True,
    ),
    P(
        "scalar tensor promotes",
        lambda x, s: (x * s, x + 1.5, x.half() * s),
        lambda n: (integers(n, 3), torch.tensor(1.5, dtype=F64)),
    ),
    P(
        "only scalars",
        lambda x, y: (x * y + 1, torch.stack([x, y]), x.expand(3) * 2, x.reshape(1, 1)),
        lambda n: (torch.tensor(float(n)), torch.tensor(2.5)),
        (7, 2),
        gradient=True,
    ),
    P("mixed dtypes", lambda x, y: (x + y, x * y, y - x, x > y), lambda n: (normal(n, dtype=F16), integers(n))),
    P(
        "float64",
        lambda x: (x.softmax(-1), x.exp() + 1e-12, x.var(1)),
        lambda n: (normal(n, n + 3, dtype=F64),),
        gradient=True,
    ),
    P("python scalar of float64", lambda x: x * 0.1 + 1 / 3, lambda n: (normal(n, dtype=F64),), gradient=True),
    *[P(f"casts from {str(d)[6:]}", casts, small_values(d)) for d in (*FLOATS, *INTEGERS)],
    P("casts from bool", casts, lambda n: (flags(n, 5),)),
    P(
        "casts of negatives",
        lambda x: (x.long(), x.int(), x.to(I8), x.half(), x.bool()),
        lambda n: (normal(n, 3) * 50,),
    ),
    P("cast chain", lambda x: x.half().float().bfloat16().double().int().float() + x, matrix),
    P(
        "wrap bytes",
        lambda x: (x.to(U8), x.to(I8), x.to(I16), x.to(U8).float()),
        lambda n: (integers(n, low=-400, high=400),),
    ),
]
