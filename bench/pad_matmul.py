"""Whether a matrix product of odd sizes is faster when its operands are first copied into padded ones.

    python bench/pad_matmul.py [--rounds 7] [--out bench/results/pad_matmul.json]

For each type and (m, k, n): the product as it is, and the product of copies whose sizes are multiples of 16 (of all
three dims; of k and n alone, as for a weight that changes at each call), the copies and the cut-out result included.
Samples are taken in turns; a figure is a ratio of medians: below 1, padding pays.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch

from symshape.tools.measure import geometric_mean, interleaved, write_result
from symshape.tools.terminal import Progress, table

SHAPES = (
    (17, 33, 65),
    (63, 127, 129),
    (101, 257, 257),
    (255, 255, 255),
    (513, 511, 1023),
    (7, 1001, 1001),
    (1001, 7, 1001),
    (1001, 1001, 7),
    (1025, 1025, 1025),
)
TYPES = (torch.float32, torch.bfloat16)
MULTIPLE = 16


def _up(size: int) -> int:
    return -(-size // MULTIPLE) * MULTIPLE


def _padded(a: torch.Tensor, b: torch.Tensor, rows: bool) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    wide = a.new_zeros(_up(m) if rows else m, _up(k))
    wide[:m, :k] = a
    other = b.new_zeros(_up(k), _up(n))
    other[:k, :n] = b
    return torch.mm(wide, other)[:m, :n]


def measure(dtype: torch.dtype, shape: tuple[int, int, int], rounds: int) -> dict[str, float]:
    """Seconds per call of each way."""
    m, k, n = shape
    a, b = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype)
    runs: dict[str, Callable[[], torch.Tensor]] = {
        "as it is": lambda: torch.mm(a, b),
        "all padded": lambda: _padded(a, b, True),
        "k and n padded": lambda: _padded(a, b, False),
    }
    return interleaved(runs, rounds, at_least=0.02)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out")
    options = parser.parse_args()
    rows = []
    with Progress("padding", len(TYPES) * len(SHAPES)) as progress:
        for dtype in TYPES:
            for shape in SHAPES:
                seconds = measure(dtype, shape, options.rounds)
                name = str(dtype).removeprefix("torch.")
                rows.append({"dtype": name, "shape": shape, "seconds": seconds})
                progress.step()
    ways = [way for way in rows[0]["seconds"] if way != "as it is"]
    ratios = [[row["seconds"][way] / row["seconds"]["as it is"] for way in ways] for row in rows]
    cells = [
        [row["dtype"], "x".join(map(str, row["shape"])), 1e6 * row["seconds"]["as it is"], *values]
        for row, values in zip(rows, ratios)
    ]
    print(table(["type", "m x k x n", "as it is, us", *(f"{way}: ratio" for way in ways)], cells))
    print("geometric means:", ", ".join(f"{w} {geometric_mean(r[i] for r in ratios):.2f}" for i, w in enumerate(ways)))
    if options.out:
        write_result(options.out, "pad_matmul", rows)


if __name__ == "__main__":
    main()
