"""The corners of floating arithmetic, and of tensors without elements or dims."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from numerics_integers import CONVERSIONS, INTEGER_DIVISION, OVERFLOW, REPEATED, SHIFTS, C, grid, inf, nan, values
from program import BF16, F16, F32, F64, I64, U8

ODD = [nan, -inf, -2.0, -0.0, 0.0, 1.5, inf]
NAN = [
    C(f"{name} {dtype}", function, grid(ODD, ODD, dtype=dtype), zero_signs=False)
    for dtype in (F32, F64, F16, BF16)
    for name, function in (
        ("maximum", lambda x, y: (torch.maximum(x, y), torch.minimum(x, y), torch.max(x, y))),
        ("fmax", lambda x, y: (torch.fmax(x, y), torch.fmin(x, y))),
        (
            "clamp",
            lambda x, y: (
                x.clamp(-1, 1),
                x.clamp(min=0.5),
                x.clamp_max(0.5),
                torch.clamp(x, y, y),
                torch.clamp(x, min=y),
            ),
        ),
        ("clamp crossed", lambda x, y: (x.clamp(2, 1), torch.clamp(x, y, -y))),
        ("extrema", lambda x, y: (x.amax(), x.amin(), x.max(), x.min(), x[2:5].max(), torch.stack([x, y]).amax(0))),
        ("rows", lambda x, y: (torch.stack([x, y], 1).max(1), torch.stack([x, y], 1).min(1), x.view(5, -1).amax(1))),
        (
            "places",
            lambda x, y: (
                torch.stack([x, y]).argmax(0),
                torch.stack([x, y]).argmin(0),
                x.argmax(),
                x.argmin(),
                x[9:].argmax(),
            ),
        ),
        ("compare", lambda x, y: (x == y, x != y, x < y, x <= y, x > y, x >= y, x == nan, x < 1)),
        (
            "relu",
            lambda x, y: (
                x.relu(),
                F.hardtanh(x),
                F.relu6(x),
                F.leaky_relu(x),
                F.threshold(x, 0.5, 7.0),
                F.softshrink(x),
            ),
        ),
        (
            "tests",
            lambda x, y: (
                x.isnan(),
                x.isinf(),
                x.isfinite(),
                x.isposinf(),
                x.isneginf(),
                x.nan_to_num(),
                x.nan_to_num(1, 2, 3),
            ),
        ),
        ("logic", lambda x, y: (x.logical_and(y), x.logical_or(y), x.logical_xor(y), torch.where(x.bool(), x, y))),
        ("running", lambda x, y: (x.cummax(0), x.cummin(0), x.sort(stable=True))),
        ("masked", lambda x, y: (torch.where(x > 0, x, 0.0), x.masked_fill(x.isnan(), 3.0), x.sign(), x.heaviside(y))),
    )
]

TIED = torch.tensor([[1.0, 3.0, 3.0, 2.0, 3.0, 1.0], [0.0, -0.0, 0.0, -1.0, 0.0, 0.0], [5.0] * 6] * REPEATED)
TIES = [
    C(f"{name} {dtype}", function, (TIED.to(dtype),), zero_signs=False, gradient=gradient)
    for dtype in (F32, I64, F16, U8)
    for name, function, gradient in (
        ("argmax", lambda x: (x.argmax(1), x.argmin(1), x.argmax(0), x.argmin(0), x.argmax(), x.argmin()), False),
        (
            "argmax of columns",
            lambda x: (x.t().contiguous().argmax(0), x.t().argmax(0), x.flip(1).argmin(1, keepdim=True)),
            False,
        ),
        (
            "sorted",
            lambda x: (x.sort(dim=1, stable=True), x.argsort(dim=0, descending=True, stable=True), x.cummax(1)[0]),
            False,
        ),
        ("amax", lambda x: (x.amax(1), x.amin(0), x.amax()), dtype == F32),
        ("max", lambda x: (x.max(1)[0], x.min(1)[0], x.max(0)[0], x.cummax(1)[0]), dtype == F32),
        (
            "maximum",
            lambda x: (torch.maximum(x, x.flip(1)), torch.minimum(x, x * 1), x.clamp(0, 3), x.relu()),
            dtype == F32,
        ),
    )
]

ZEROS = (0.0, -0.0, 0.3, -0.3, 0.5, -0.5, 1.0, -1.0, 4.0, -4.0)
ZERO_SIGNS = [
    C(f"{name} {dtype}", function, values(*ZEROS, dtype=dtype))
    for dtype in (F32, F64, F16, BF16)
    for name, function in (
        ("arithmetic", lambda x: (-x, x * 0, x * -1, x + 0.0, x - 0.0, x + (-0.0), 0.0 - x, x * x, x / 3)),
        ("abs", lambda x: (x.abs(), 1 / x, x.copysign(-x), x.signbit(), torch.copysign(x, torch.tensor(-0.0)))),
        ("rounding", lambda x: (x.round(), x.trunc(), x.ceil(), x.floor(), x.frac())),
        (
            "roots",
            lambda x: [
                f(x * 0)
                for f in (torch.sqrt, torch.sin, torch.tan, torch.tanh, torch.expm1, torch.asinh, torch.atan, torch.erf)
            ],
        ),
        (
            "division",
            lambda x: (torch.fmod(x, 2), x % 2, x % -2, x // 2, x // -2, torch.div(x, 2, rounding_mode="trunc")),
        ),
        ("atan2", lambda x: torch.atan2(x * 0, x).signbit()),
        (
            "moved",
            lambda x: (
                x.flip(0),
                torch.cat([x, -x]),
                torch.where(x == 0, x, -x),
                x.masked_fill(x == 1, -0.0),
                x.clone(),
            ),
        ),
        ("converted", lambda x: (x.to(F64), x.to(F16), x.to(BF16), x.to(F32))),
        ("sums", lambda x: (x[1:2].sum(), x[1:2].cumsum(0), x[1:2].prod(), (x * -0.0)[:1].mean(0))),
        ("unary", lambda x: (x.sign(), x.relu() + 1, x.square(), x.reciprocal(), x.neg().neg(), x.positive())),
    )
]

HALVES_OF = (0.5, 1.5, 2.5, 3.5, -0.5, -1.5, -2.5, 0.49999997, 1e6 + 0.5, -7.5, 8388609.0, 0.0, nan, inf, -inf)
ROUNDING = [
    C(f"{name} {dtype}", function, values(*HALVES_OF, dtype=dtype))
    for dtype in (F32, F64, F16, BF16)
    for name, function in (
        ("round", lambda x: (x.round(), (x * 2).round() / 2, x.round().to(F64))),
        (
            "decimals",
            lambda x: (torch.round(x, decimals=1), torch.round(x * 1.25, decimals=2), torch.round(x * 4, decimals=-1)),
        ),
        (
            "others",
            lambda x: (
                x.floor(),
                x.ceil(),
                x.trunc(),
                torch.special.round(x) if hasattr(torch.special, "round") else x,
            ),
        ),
    )
] + [
    C("integers stay", lambda x: (x.round(), x.floor(), x.ceil(), x.trunc()), values(-7, 0, 2**62, dtype=I64)),
]

NOTHING, ONE = torch.zeros(0, 3), torch.tensor(2.5)
EMPTY = [
    C("sums of nothing", lambda x: (x.sum(), x.sum(0), x.sum(1), x.prod(), x.prod(0), x.mean(), x.mean(0)), (NOTHING,)),
    C(
        "logic of nothing",
        lambda x: (x.any(), x.all(), x.any(0), x.all(1), x.count_nonzero(), (x > 0).sum()),
        (NOTHING,),
    ),
    C(
        "norms of nothing",
        lambda x: (x.norm(), x.norm(dim=0), x.logsumexp(0), x.softmax(0), x.log_softmax(1), x.cumsum(0)),
        (NOTHING,),
    ),
    C("variances of nothing", lambda x: (x.var(0), x.std(), x.var(0, unbiased=False)), (NOTHING,)),
    C(
        "extrema along a dim that is there",
        lambda x: (x.amax(1), x.max(1)[0], x.argmax(1), x.amin(1, keepdim=True)),
        (NOTHING,),
    ),
    C(
        "joined with nothing",
        lambda x, y: (torch.cat([x, y]), torch.cat([y, x, x]), torch.stack([x, x])),
        (NOTHING, torch.ones(2, 3)),
    ),
    C("products over nothing", lambda x: (x.t() @ x, x @ x.t(), x.t().sum(1)), (NOTHING,)),
    C(
        "views of nothing",
        lambda x: (x.t(), x.reshape(3, 0), x.flip(0), x.expand(4, 0, 3), x[:, 1], x.unsqueeze(0) + 1),
        (NOTHING,),
    ),
    C(
        "zero dims",
        lambda x: (x + 1, x.sum(), x.mean(), x.prod(), x.amax(), x.max(), x.cumsum(0), x.softmax(0), x.any()),
        (ONE,),
    ),
    C(
        "places in zero dims",
        lambda x: (x.argmax(), x.argmax(0), x.max(0), x.sort(), x.topk(1), x.logsumexp(0)),
        (ONE,),
    ),
    C(
        "views of zero dims",
        lambda x: (x[None], x.reshape(1), x.expand(3), x.unsqueeze(0).squeeze(), x.flip(0), x.t()),
        (ONE,),
    ),
    C(
        "one element",
        lambda x: (x.var(), x.std(0), x.var(unbiased=False), x.mean(), x.softmax(0), x.norm()),
        (torch.tensor([3.0]),),
    ),
    C(
        "zero-dim operands",
        lambda x, y: (x + y, x * y, y / x, x // 2 + y, torch.where(y > 0, x, y)),
        (torch.tensor(3), torch.randn(7, dtype=F16)),
    ),
    C("zero-dim double", lambda x, y: (x + y, x * y, y - x), (torch.tensor(0.1, dtype=F64), torch.randn(7))),
]

THIRD = torch.linspace(-3, 3, 37, dtype=F64) / 3
KEPT = [
    C("constants", lambda x: (x + 0.1, x * 0.1, x - 1e-17, 0.1 - x, x / 3, x == 0.1, x.clamp(-0.1, 0.7)), (THIRD,)),
    C("pointwise", lambda x: (x * x + 1, 1 / x, x.floor(), x.round(), x**2, x**3), (THIRD,)),
    C("reductions", lambda x: (x.amax(), x.argmin(), x[:2].sum(), x[:1].mean(), x.cumsum(0)[:2], x.max(0)), (THIRD,)),
    C(
        "meets others",
        lambda x, y: (x + y, x * y.to(F64), x + 1, torch.where(x > 0, x, y.to(F64))),
        (THIRD, torch.randn(37)),
    ),
    C("tiny", lambda x: (x * 1e-300, x * 1e-310, x * 1e300 * 1e10, x + 1e-16), (THIRD,)),
    C("subnormal", lambda x: (x * 1e-38, x * 1e-42, x / 1e38), (THIRD.to(F32),)),
]

HALF = torch.cat([torch.randn(29) * 3, torch.tensor([60000.0, -60000.0, 6e-8, 1e-5])])
HALF_OUTPUTS = [
    C(f"{name} {dtype}", function, (HALF.to(dtype), HALF.flip(0).to(dtype)))
    for dtype in (F16, BF16)
    for name, function in (
        ("one operation", lambda x, y: (x + y, x - y, x * y, x / y, x * 3, x + 0.25, x / 3, x.abs().sqrt(), -x)),
        ("constants", lambda x, y: (x > 0.1, x == 0.1, x * 0.1, x.clamp(-0.1, 0.1), x <= 1 / 3)),
        ("overflow", lambda x, y: (x * 2, x * x, x + 65280.0, x * 1e5)),
        ("wide and back", lambda x, y: ((x.float() * y.float()).to(x.dtype), x.double().to(x.dtype), x.to(F32) + 1)),
        ("mixed", lambda x, y: (x + y.float(), x * y.double(), x + 1, x + True, torch.where(x > y, x, y))),
        ("halves meet", lambda x, y: (x.to(F16) + y.to(BF16), x.to(BF16).to(F16), x.to(F16).to(BF16))),
        ("extrema", lambda x, y: (x.amax(), x.argmax(), x.max(0), torch.maximum(x, y), x.clamp(y, y + 1) - 0)),
        ("sums", lambda x, y: (x[:2].sum(), x[:1].mean(), x[:1].prod(), x[:3].cumsum(0)[:1], x[:2].sum(dtype=F32))),
    )
]

TABLES = {
    "integer division": INTEGER_DIVISION,
    "shifts": SHIFTS,
    "overflow": OVERFLOW,
    "conversions": CONVERSIONS,
    "nan": NAN,
    "ties": TIES,
    "zero signs": ZERO_SIGNS,
    "rounding": ROUNDING,
    "empty": EMPTY,
    "float64 kept": KEPT,
    "half outputs": HALF_OUTPUTS,
}
