"""CUDA graphs on a GPU: whether results are eager mode's, and what a call takes with and without.

    python bench/cuda_graphs.py [--rounds 7] [--out bench/results/cuda_graphs.json]

A stack of transformer layers, in inference and in training, at several sizes in turns; results of all calls are kept,
and compared with eager mode at the end: a result that a later replay has overwritten is found. Figures are medians of
calls as the caller sees them; ``ratio``: with graphs over without, Inductor's mode "reduce-overhead" beside it.
``--dry-run``: on the CPU, where nothing is captured; only that it runs means anything.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from gpu_timing import measure, ratio

import symshape
from symshape.tools.measure import write_result
from symshape.tools.terminal import heading, table

SIZES = ((1, 16), (1, 128), (4, 64), (3, 37))  # batch, length
WIDTH, LAYERS, TURNS = 256, 6, 5
Step = Callable[[torch.Tensor], list[torch.Tensor]]


class Layer(torch.nn.Module):
    """Products, normalisation and a gated unit, without attention: many small launches."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up = torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, 2 * WIDTH)
        self.down = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, value = self.up(self.norm(x)).chunk(2, -1)
        return x + self.down(torch.nn.functional.silu(gate) * value)


def inference(model: Callable[..., torch.Tensor], _own: torch.nn.Module) -> Step:
    def step(x: torch.Tensor) -> list[torch.Tensor]:
        with torch.no_grad():
            return [model(x)]

    return step


def training(model: Callable[..., torch.Tensor], own: torch.nn.Module) -> Step:
    def step(x: torch.Tensor) -> list[torch.Tensor]:
        y = model(x)
        return [y.detach(), *torch.autograd.grad(y.square().mean(), list(own.parameters()))]

    return step


def steps(make: Callable[..., Step], model: torch.nn.Module, device: str) -> dict[str, Step]:
    """The same model in each way: it has parameters of its own, of the same values, in each."""
    own = {name: copy.deepcopy(model) for name in ("eager", "without", "with", "inductor")}
    ways: dict[str, Any] = {
        "eager": own["eager"],
        "without": symshape.compile(own["without"]),
        "with": symshape.compile(own["with"], mode="reduce-overhead"),
    }
    if device == "cuda":
        ways["inductor"] = torch.compile(own["inductor"], mode="reduce-overhead", dynamic=False)
    return {name: make(way, own[name]) for name, way in ways.items()}


def check(found: Step, eager: Step, device: str) -> float:
    """The largest difference over all calls, which are all made before any is compared."""
    inputs = [torch.randn(*size, WIDTH, device=device) for _ in range(TURNS) for size in SIZES]
    kept = [found(x) for x in inputs]
    error = 0.0
    for x, results in zip(inputs, kept, strict=True):
        for one, other in zip(results, eager(x), strict=True):
            error = max(error, float((one - other).abs().max() / other.abs().max()))
    return error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out")
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    device = "cpu" if options.dry_run else "cuda"
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(Layer() for _ in range(LAYERS))).to(device)
    rows: list[dict[str, Any]] = []
    for make in (inference, training):
        ways = steps(make, model, device)
        error = check(ways["with"], ways["eager"], device)
        print(heading(f"{make.__name__}: largest relative difference to eager mode {error:.1e}"))
        cells = []
        for size in SIZES:
            x = torch.randn(*size, WIDTH, device=device)
            times = measure({name: partial(step, x) for name, step in ways.items()}, options.rounds, device)
            seconds = {name: one.seconds["call"] for name, one in times.items()}
            ratios = {name: ratio(times[name], times["without"], "call") for name in times if name != "without"}
            rows.append({"kind": make.__name__, "size": size, "error": error, "seconds": seconds, "ratios": ratios})
            cells.append([str(size), *(1e6 * value for value in seconds.values()), *ratios.values()])
        names = [*(f"{name}, us" for name in seconds), *(f"{name}: ratio" for name in ratios)]
        print(table(["batch, length", *names], cells))
    if options.out:
        write_result(options.out, "cuda_graphs", rows)


if __name__ == "__main__":
    main()
