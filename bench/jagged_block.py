"""A transformer block over rows of unequal lengths: nested tensors (jagged) against padded ones.

    python bench/jagged_block.py [--rows 32] [--width 512] [--longest 512] [--threads 1] [--rounds 5] [--out FILE.json]

Lengths are 1 to the longest, evenly: half of the padded rows is padding. ``jagged``: symshape on nested tensors, which
eager mode computes too; ``padded``: Inductor (dynamic) on padded tensors with a mask for attention. Forward and a
training step (gradients of inputs and parameters). A figure is the median of the rounds' times, in processor time if
there is one thread. The results of all ways are compared, where rows have elements.
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
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.utils import counters

import symshape
from symshape.tools.measure import relative_error, samples, write_result
from symshape.tools.terminal import table


class Block(nn.Module):
    """Attention and two linear layers, each after a layer norm and around which values go on."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_linear = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.value, self.out = (nn.Linear(width, width) for _ in range(3))
        self.key = nn.Linear(width, width, bias=False)  # which would add the same to all scores of a query
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """``x``: (rows, ragged or longest, width); ``mask``: (rows, 1, 1, longest), where there are elements."""
        normed = self.before_attention(x)
        parts = (layer(normed) for layer in (self.query, self.key, self.value))
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        found = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        x = x + self.out(found.transpose(1, 2).flatten(-2))
        return x + self.down(F.gelu(self.up(self.before_linear(x))))


@dataclass(frozen=True)
class Row:
    """Seconds of each way; ``ratios``: theirs over symshape's on nested tensors."""

    direction: str
    seconds: dict[str, float]
    ratios: dict[str, float]
    graphs: int


def lengths_of(rows: int, longest: int) -> list[int]:
    return [1 + i * (longest - 1) // max(rows - 1, 1) for i in range(rows)]


def inputs(lengths: list[int], width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Nested, padded, and where the padded one has elements."""
    generator = torch.Generator().manual_seed(sum(lengths))
    rows = [torch.randn(length, width, generator=generator) for length in lengths]
    nested = torch.nested.nested_tensor(rows, layout=torch.jagged)
    padded = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    return nested, padded, torch.arange(max(lengths))[None, :] < torch.tensor(lengths)[:, None]


def jagged(function: Callable[..., Tensor], block: Block, training: bool, x: Tensor) -> list[Tensor]:
    """The values of the result; in training the gradients of values and parameters."""
    if not training:
        with torch.no_grad():
            return [function(x).values()]
    x = x.detach().requires_grad_()
    result = function(x).values()
    first, *others = torch.autograd.grad(result.square().sum(), [x, *block.parameters()])
    return [result, first.values(), *others]


def padded(function: Callable[..., Tensor], block: Block, training: bool, x: Tensor, kept: Tensor) -> list[Tensor]:
    """The same of padded rows."""
    mask = kept[:, None, None, :]
    if not training:
        with torch.no_grad():
            return [function(x, mask)[kept]]
    x = x.detach().requires_grad_()
    result = function(x, mask)[kept]
    first, *others = torch.autograd.grad(result.square().sum(), [x, *block.parameters()])
    return [result, first[kept], *others]


def measure(block: Block, training: bool, options: argparse.Namespace) -> Row:
    torch._dynamo.reset()
    compiled, inductor = symshape.compile(block), torch.compile(block, dynamic=True)

    def runs(lengths: list[int]) -> dict[str, Callable[[], list[Tensor]]]:
        nested, x, kept = inputs(lengths, options.width)
        return {
            "symshape": partial(jagged, compiled, block, training, nested),
            "eager jagged": partial(jagged, block, block, training, nested),
            "Inductor padded": partial(padded, inductor, block, training, x, kept),
        }

    before = counters["stats"]["unique_graphs"]
    for lengths in ([3, 5, 2], [7, 2, 9, 4]):
        runs(lengths)["symshape"]()
    graphs = counters["stats"]["unique_graphs"] - before
    for lengths in ([3, 5, 2], [7, 2, 9, 4]):
        runs(lengths)["Inductor padded"]()
    given = runs(lengths_of(options.rows, options.longest))
    expected = given["eager jagged"]()
    for run in given.values():
        assert relative_error(run(), expected) < 1e-3
    clock = time.process_time if options.threads == 1 else time.perf_counter
    found = samples(given, options.rounds, clock=clock)
    seconds = {name: statistics.median(values) for name, values in found.items()}
    ratios = {name: value / seconds["symshape"] for name, value in seconds.items()}
    return Row("training step" if training else "forward", seconds, ratios, graphs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    defaults = (("rows", 32), ("width", 512), ("heads", 8), ("longest", 512), ("threads", 1), ("rounds", 5))
    for name, default in defaults:
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--out", help="a JSON file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    block = Block(options.width, options.heads)
    rows = [measure(block, training, options) for training in (False, True)]
    names = list(rows[0].seconds)
    cells: list[Any] = [
        (row.direction, *(f"{1e3 * row.seconds[n]:.0f}" for n in names), *(f"{row.ratios[n]:.2f}" for n in names[1:]))
        for row in rows
    ]
    print(table(("", *(f"{n}, ms" for n in names), *(f"{n} / symshape" for n in names[1:])), cells))
    print("graphs of symshape:", ", ".join(f"{row.direction} {row.graphs}" for row in rows))
    if options.out:
        write_result(options.out, "jagged_block", [asdict(row) for row in rows])


if __name__ == "__main__":
    main()
