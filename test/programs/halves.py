"""Half types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from program import BF16, F16, LARGE, P, Program, normal
from reductions import layer_norm, rms_norm


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
    name = str(dtype)[6:]
    gradients = ("chain", "softmax", "layer norm", "rms norm", "sums", "activations")
    return [P(f"{name} {label}", f, inputs, LARGE, gradient=label in gradients) for label, f, inputs in table]


HALVES = [*halves(BF16), *halves(F16)]
