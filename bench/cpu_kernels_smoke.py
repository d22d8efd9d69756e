"""Single CPU kernels against Inductor and eager, interleaved: `python bench/cpu_kernels_smoke.py [NAME...]`.

Prints the least time of several rounds, in microseconds, with the threads that PyTorch uses. Inductor's and eager's
times include their dispatch; a kernel's is that of one call through ctypes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "test" / "support"))
from loop_builder import D0, D1, SYMBOLS, ZERO, Builder, build, layer_norm, reduction, softmax  # noqa: E402

SHAPES = ((1024, 1024), (8 * 128, 256), (1024, 16))
_ROUNDS = 9
Call = Callable[..., object]


def pointwise(name: str, compute: Callable[[Builder, int], int]) -> Builder:
    """out = compute(x) over one dim."""
    b = Builder(name, [SYMBOLS[0]], symbols=1)
    x, out = b.arg("f32", [SYMBOLS[0]]), b.arg("f32", [SYMBOLS[0]], output=True)
    b.store(compute(b, b.load(x, D0)), out, D0)
    return b


def gelu(b: Builder, x: int) -> int:
    erf = b.add("math.erf", b.add("arith.mulf", x, b.constant(0.5**0.5)))
    return b.add("arith.mulf", b.add("arith.mulf", x, b.constant(0.5)), b.add("arith.addf", erf, b.constant(1.0)))


def tanh_chain(b: Builder, x: int) -> int:
    for _ in range(3):
        x = b.add("math.tanh", b.add("arith.mulf", x, b.constant(1.5)))
    return x


def sum_of_all() -> Builder:
    b = Builder("sum_of_all", [SYMBOLS[0]], [0], symbols=1)
    x, out = b.arg("f32", [SYMBOLS[0]]), b.arg("f32", [], output=True)
    b.store(b.reduce(b.load(x, D0), "add"), out, ZERO, row=True)
    return b


def transposed() -> Builder:
    n, m = SYMBOLS[:2]
    b = Builder("transposed", [n, m])
    x, out = b.arg("f32", [m, n]), b.arg("f32", [n, m], output=True)
    b.store(b.load(x, D1 * n + D0), out, D0 * m + D1)
    return b


# name -> (kernel, what eager does)
CASES: dict[str, tuple[Builder, Call]] = {
    "softmax": (softmax(), lambda x: torch.softmax(x, 1)),
    "layer_norm": (layer_norm(), lambda x, w, c: torch.nn.functional.layer_norm(x, [x.shape[1]], w, c)),
    "gelu": (pointwise("gelu", gelu), torch.nn.functional.gelu),
    "tanh_chain": (pointwise("tanh_chain", tanh_chain), lambda x: (((x * 1.5).tanh() * 1.5).tanh() * 1.5).tanh()),
    "add": (pointwise("add", lambda b, x: b.add("arith.addf", x, b.constant(1.0))), lambda x: x + 1),
    "column_sum": (reduction("add", "f32", 0), lambda x: x.sum(0)),
    "row_sum": (reduction("add", "f32", 1), lambda x: x.sum(1)),
    "sum_of_all": (sum_of_all(), torch.sum),
    "transposed": (transposed(), lambda x: x.t().contiguous()),
}


def arguments(name: str, x: torch.Tensor, eager: Call) -> tuple[list[torch.Tensor], Sequence[object]]:
    """Eager's inputs, and the kernel's arguments."""
    inputs = [x, torch.randn(x.shape[1]), torch.randn(x.shape[1])] if name == "layer_norm" else [x]
    out = torch.empty_like(eager(*inputs))  # type: ignore[arg-type]
    symbols = x.shape[::-1] if name == "transposed" else x.shape
    if len(CASES[name][0].symbols) == 1:
        symbols = (x.numel(),)  # type: ignore[assignment]
    extra = [torch.empty(x.shape[0])] if name == "layer_norm" else []
    return inputs, [*inputs, out, *extra, *symbols]


def seconds(call: Callable[[], object], repetitions: int) -> float:
    start = time.perf_counter()
    for _ in range(repetitions):
        call()
    return (time.perf_counter() - start) / repetitions


def measure(name: str) -> None:
    """One line per shape."""
    builder, eager = CASES[name]
    (kernel,) = build(builder)
    for shape in SHAPES:
        torch._dynamo.reset()
        x = torch.randn(shape)
        inputs, values = arguments(name, x, eager)
        compiled = torch.compile(eager, backend="inductor")
        calls = [partial(kernel, *values), partial(compiled, *inputs), partial(eager, *inputs)]
        for call in calls:
            call()
        repetitions = max(3, 3_000_000 // (x.numel() + 10_000))
        best = [min(times) for times in zip(*([seconds(call, repetitions) for call in calls] for _ in range(_ROUNDS)))]
        ours, inductor, plain = (1e6 * t for t in best)
        print(f"{name:12} {shape!s:13} ours {ours:8.1f}   inductor {inductor:8.1f}   eager {plain:8.1f} us", flush=True)


if __name__ == "__main__":
    for case in sys.argv[1:] or CASES:
        measure(case)
