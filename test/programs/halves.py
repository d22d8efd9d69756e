"""Half types."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from program import BF16, F16, LARGE, P, Program, normal
from reductions import layer_norm, rms_norm


def comparisons(x: torch.Tensor, y: torch.Tensor) -> Any:
    """Of numbers that a kernel computes and never stores."""
    third = x / 3
    few = x * 1e-6 * 1e-4
    return (
        (x * 1.1) == (x * 1.1).amax(),
        third < y / 3,
        third == y / 3,
        (x * 30000).isinf(),
        few.bool(),
        few == 0,
        few.logical_not(),
        few.any(-1),
        third.argmax(-1),
        third.argmin(0),
        third.max(-1)[1],
    )


def steps(x: torch.Tensor) -> Any:
    few = x * 1e-6 * 1e-4
    return (
        (x * 7.3).floor(),
        (x * 7.3).long(),
        (x * 7.5).round(),
        torch.fmod(x * 77, 0.25),
        few.sign(),
        torch.floor_divide(x * 7, 0.25),
        torch.remainder(x * 77, 0.5),
    )


def jumps_of_gradients(x: torch.Tensor, y: torch.Tensor) -> Any:
    largest = (x / 7.7).scatter_reduce(0, torch.zeros_like(x, dtype=torch.int64), y / 3, "amax")
    few = (x.exp() * 1.1).tanh()  # computed again from x, with its roundings or without
    again = few.scatter_reduce(0, torch.zeros_like(x, dtype=torch.int64), few, "amax")
    rows, small = (x / 7.7).amax(-1) * y[:, 0], (x * 1e-7 / 7.7).relu() * y
    return again, largest, rows, small, torch.maximum(x / 7.7, y / 7.7)


def roots(x: torch.Tensor) -> Any:
    """Of float16, eager mode takes them as powers: of -infinity and -0.0 the results differ."""
    found = x**0.5, x**-0.5
    return *found, *(y == 0 for y in found), *(torch.where(y == 0, y, 1).signbit() for y in found)


def halves(dtype: torch.dtype) -> list[Program]:
    def half(*shape: int) -> torch.Tensor:
        return normal(*shape, dtype=dtype)

    table: list[tuple[str, Callable[..., Any], Callable[[int], tuple[Any, ...]]]] = [
        ("chain", lambda x, y: (x * y + x.exp()).tanh() / (y.abs() + 1), lambda n: (half(n, 5), half(n, 5))),
        ("softmax", lambda x: x.softmax(-1), lambda n: (half(n, n + 3),)),
        ("layer norm", layer_norm, lambda n: (half(n, n + 2), half(n + 2), half(n + 2))),
        ("rms norm", rms_norm, lambda n: (half(n, n + 2), half(n + 2))),
        ("sums", lambda x: (x.sum(0), x.mean(1), x.sum()), lambda n: (half(n + 1, n + 3),)),
        ("variance", lambda x: (x.var(1), x.std(0, correction=0)), lambda n: (half(n + 2, n + 3),)),
        ("activations", lambda x: (F.gelu(x), F.silu(x), x.sigmoid(), F.relu(x)), lambda n: (half(n, 5),)),
        (
            "promotion",
            lambda x, y: (x + y, x * 0.1, x * 3, x + torch.tensor(0.1)),
            lambda n: (half(n, 5), normal(n, 5)),
        ),
        ("logsumexp", lambda x: (x.logsumexp(1), x.log_softmax(0)), lambda n: (half(n + 1, n + 3),)),
        ("extrema", lambda x: (x.amax(1), x.max(0)[0], x.argmax(1)), lambda n: (half(n + 1, n + 3),)),
    ]
    gradients = ("chain", "softmax", "layer norm", "rms norm", "sums", "activations", "jumps of gradients")
    table += [
        ("comparisons", comparisons, lambda n: (half(n + 1, n + 3), half(n + 1, n + 3))),
        ("steps", steps, lambda n: (half(n + 1, n + 3),)),
        ("jumps of gradients", jumps_of_gradients, lambda n: (half(n + 1, n + 3), half(n + 1, n + 3))),
        ("roots", roots, lambda n: (torch.tensor([-math.inf, -0.0, 4.0, -4.0, 0.0, math.inf] * n, dtype=dtype),)),
    ]
    name = str(dtype)[6:]
    return [P(f"{name} {label}", f, inputs, LARGE, gradient=label in gradients) for label, f, inputs in table]


HALVES = [*halves(BF16), *halves(F16)]
