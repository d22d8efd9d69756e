"""Message passing in graph networks: eager mode, Inductor (dynamic) and symshape, by turns in one process.

    python bench/graph_networks.py [--nodes 10000] [--edges 200000] [--width 64] [--threads 1] [--out FILE.json]

Three layers (sums over neighbours; attention; attention by dot products), edges in any order and in that of their ends,
forward and a training step. A figure is the median of the rounds' times (``--rounds``), in processor time if there is
one thread. Every result is compared with eager mode's.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._dynamo.utils import counters

import symshape
from symshape.tools.measure import geometric_mean, relative_error, samples, write_result
from symshape.tools.terminal import table


def sums(x: Tensor, w: Tensor, start: Tensor, end: Tensor) -> Tensor:
    h = x @ w
    return torch.relu(torch.zeros_like(h).index_add(0, end, h[start]))


def _softmax(scores: Tensor, end: Tensor, nodes: int) -> Tensor:
    largest = torch.full((nodes,), -torch.inf).scatter_reduce(0, end, scores, "amax")
    p = torch.exp(scores - largest[end])
    return p / torch.zeros(nodes).index_add(0, end, p)[end]


def attention(x: Tensor, w: Tensor, start: Tensor, end: Tensor) -> Tensor:
    h = x @ w
    scores = torch.nn.functional.leaky_relu(h.mean(1)[start] + h.sum(1)[end] / 7, 0.2)
    return torch.zeros_like(h).index_add(0, end, _softmax(scores, end, x.shape[0])[:, None] * h[start])


def dot_products(x: Tensor, w: Tensor, start: Tensor, end: Tensor) -> Tensor:
    h = x @ w
    weights = _softmax((h[start] * h[end]).sum(-1) / 8, end, x.shape[0])
    return torch.zeros_like(h).scatter_add(0, end[:, None].expand(-1, h.shape[1]), weights[:, None] * h[start])


PROGRAMS = (sums, attention, dot_products)


@dataclass(frozen=True)
class Row:
    """Seconds by way; ``ratios``: symshape's over theirs; ``graphs``: that symshape compiled, for all sizes."""

    program: str
    direction: str
    edges: str
    seconds: dict[str, float]
    ratios: dict[str, float]
    graphs: int


def inputs(nodes: int, edges: int, width: int, ordered: bool) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(edges)
    x, w = torch.randn(nodes, width, generator=generator), torch.randn(width, width, generator=generator) / width**0.5
    start, end = (torch.randint(0, nodes, (edges,), generator=generator) for _ in range(2))
    return x, w, start, end.sort().values if ordered else end


def step(function: Callable[..., Tensor], given: tuple[Tensor, ...], training: bool) -> list[Tensor]:
    """The result; in training the gradients, too."""
    if not training:
        with torch.no_grad():
            return [function(*given)]
    x, w = (t.detach().requires_grad_() for t in given[:2])
    result = function(x, w, *given[2:])
    return [result, *torch.autograd.grad(result.square().sum(), [x, w])]


def measure(program: Callable[..., Tensor], training: bool, options: argparse.Namespace) -> list[Row]:
    torch._dynamo.reset()
    ways = {"eager": program, "inductor": torch.compile(program, dynamic=True), "symshape": symshape.compile(program)}
    graphs = {}
    for name, function in ways.items():
        before = counters["stats"]["unique_graphs"]
        for nodes, edges in ((50, 300), (70, 500)):
            step(function, inputs(nodes, edges, options.width, False), training)
        graphs[name] = counters["stats"]["unique_graphs"] - before
    rows = []
    for ordered in (False, True):
        given = inputs(options.nodes, options.edges, options.width, ordered)
        before = counters["stats"]["unique_graphs"]
        expected = step(program, given, training)
        for function in ways.values():
            assert relative_error(step(function, given, training), expected) < 1e-4
        runs = {name: partial(step, function, given, training) for name, function in ways.items()}
        clock = time.process_time if options.threads == 1 else time.perf_counter
        found = samples(runs, options.rounds, clock=clock)
        seconds = {name: statistics.median(values) for name, values in found.items()}
        ratios = {name: seconds["symshape"] / seconds[name] for name in ("eager", "inductor")}
        total = graphs["symshape"] + counters["stats"]["unique_graphs"] - before
        order = "ordered" if ordered else "any order"
        rows.append(Row(program.__name__, "training" if training else "forward", order, seconds, ratios, total))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("nodes", 10_000), ("edges", 200_000), ("width", 64), ("threads", 1), ("rounds", 9)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--out", help="a JSON file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = [row for training in (False, True) for program in PROGRAMS for row in measure(program, training, options)]
    print(
        table(("program", "", "edges", "eager ms", "Inductor ms", "symshape ms", "/eager", "/Inductor"), _cells(rows))
    )
    means: dict[str, Any] = {}
    for direction in ("forward", "training"):
        for way in ("eager", "inductor"):
            means[f"{direction} over {way}"] = geometric_mean(r.ratios[way] for r in rows if r.direction == direction)
    print(", ".join(f"{name}: {value:.2f}" for name, value in means.items()))
    if options.out:
        write_result(options.out, "graph_networks", [asdict(row) for row in rows], **means)


def _cells(rows: list[Row]) -> list[tuple[str, ...]]:
    return [
        (
            row.program,
            row.direction,
            row.edges,
            *(f"{1e3 * row.seconds[name]:.2f}" for name in ("eager", "inductor", "symshape")),
            *(f"{row.ratios[name]:.2f}" for name in ("eager", "inductor")),
        )
        for row in rows
    ]


if __name__ == "__main__":
    main()
