"""Arithmetic on sizes, and library calls among kernels."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from program import F64, NONEMPTY, P, cube, matrix, normal, square

NUMBERS = [
    P("times size", lambda x: x * x.shape[0] + x.shape[1] // 2, matrix, gradient=True),
    P("over size", lambda x: x / x.shape[0] + 1 / (x.shape[1] + 1) ** 0.5, matrix, NONEMPTY, gradient=True, alone=True),
    P("size maximum", lambda x: x[: max(x.shape[0] // 2, 3)] * max(x.shape[0], 16), matrix, gradient=True),
    P("size minimum", lambda x: torch.zeros(min(x.shape[0], 20)) + min(x.shape[1], 5), matrix),
    P("size modulo", lambda x: x * (x.shape[0] % 3) + (-x.shape[0] // 2), matrix, gradient=True),
    P(
        "pad to multiple",
        lambda x: F.pad(x, (0, -x.shape[1] % 8)).view(x.shape[0], -1, 8).sum(2),
        matrix,
        NONEMPTY,
        gradient=True,
    ),
    P("size float", lambda x: x * float(x.shape[0]) + int(x.shape[0] * 0.5), matrix),
    P("size root", lambda x: x / x.shape[-1] ** 0.5 + x / x.shape[-1] ** -0.5, matrix, gradient=True),
    P("numel", lambda x: x.sum() / x.numel() + x.dim(), matrix, NONEMPTY, gradient=True),
    P("size branches", lambda x: x * 2 if x.shape[0] > 10 else x - 1, matrix),
    P(
        "size product",
        lambda x: torch.arange(x.shape[0] * x.shape[1]).view(x.shape[0], -1) + x,
        lambda n: (normal(n, 3),),
        NONEMPTY,
    ),
    P("returns size", lambda x: (x.shape[0], x * 2, x.shape, x.shape[0] * 2 + 1), matrix),
    P("int argument", lambda x, k: x * k + k // 2, lambda n: (normal(5, 3), n)),
    P(
        "int argument as size",
        lambda x, k: x[:, None].expand(-1, k).sum(1) + torch.arange(k).sum(),
        lambda n: (normal(5), n),
    ),
    P("float argument", lambda x, k: x * k + k**2, lambda n: (normal(5, 3), n / 3 + 0.1)),
    P(
        "float argument small",
        lambda x, k: (x + k, (x > k), x.clamp(min=k)),
        lambda n: (normal(5, 3, dtype=F64), 0.1 * n),
        alone=True,
    ),
    P("bool argument", lambda x, k: x + 1 if k else x - 1, lambda n: (normal(5, 3), n % 2 == 0)),
    P(
        "pool",
        lambda x: F.avg_pool1d(x[None], 2) + F.max_pool1d(x[None], 2),
        matrix,
        NONEMPTY,
        gradient=True,
        alone=True,
    ),
    P(
        "convolution",
        lambda x, w: F.conv1d(x, w, padding=1).relu(),
        lambda n: (normal(2, 3, n), normal(4, 3, 3)),
        NONEMPTY,
        gradient=True,
    ),
    P("interpolate", lambda x: F.interpolate(x[None, None], scale_factor=2.0), lambda n: (normal(n, n + 1),), NONEMPTY),
    P(
        "attention",
        lambda q, k: F.scaled_dot_product_attention(q, k, k, is_causal=True) * 2,
        lambda n: (normal(2, 2, n, 8), normal(2, 2, n, 8)),
        NONEMPTY,
        gradient=True,
    ),
    P(
        "attention by hand",
        lambda q, k: ((q @ k.transpose(-1, -2)) / q.shape[-1] ** 0.5).softmax(-1) @ k,
        lambda n: (normal(2, n, 8), normal(2, n + 1, 8)),
        gradient=True,
    ),
    P(
        "linear",
        lambda x, w, b: F.linear(x, w, b).relu().sum(1),
        lambda n: (normal(n, 4), normal(6, 4), normal(6)),
        gradient=True,
    ),
    P("matmul square", lambda x, y: (x @ y).softmax(0) + x, square, gradient=True),
    P("bmm transposed", lambda x: torch.bmm(x, x.transpose(1, 2)) * 2, cube, gradient=True),
    P(
        "equal sizes first",
        lambda x, y: x.sum(0)[None] + y.sum(1)[:, None],
        lambda n: (normal(n, 7), normal(7, n)),
        gradient=True,
    ),
    P("square then not", lambda x: (x.t().reshape(-1), x.sum(0), x.flatten().softmax(0)), lambda n: (normal(7, n),)),
]
