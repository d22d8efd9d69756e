"""Whether a matrix product of odd sizes is faster when its operands are first copied into padded ones.

    python bench/pad_matmul.py [--rounds 7] [--device cuda] [--out bench/results/pad_matmul.json]

On a CPU, for each type and (m, k, n): the product as it is, and the product of copies whose sizes are multiples of 16
(of all three dims; of k and n alone, as for a weight that changes at each call), the copies and the cut-out result
included. On a GPU: half types, larger sizes, the copies of `runtime/triton/padded_products.py`, and what its rule says.
Samples are taken in turns; a figure is a ratio of medians: below 1, padding pays.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch

from symshape.runtime.triton.padded_products import PadRule, cuda_products, padded_sizes
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


GPU_SHAPES = (
    (257, 257, 257),
    (1023, 1023, 1023),
    (2047, 2047, 2047),
    (4095, 4095, 4095),
    (8191, 8191, 8191),
    (8192, 2501, 5008),
    (8192, 768, 50257),
    (16384, 4095, 16384),
)


class Padding(PadRule):
    """Whatever it costs."""

    def pays(self, operations: int, size: int, launches: int) -> bool:
        return operations > 0


def measure_gpu(dtype: torch.dtype, shape: tuple[int, int, int], rounds: int) -> dict[str, float]:
    """Seconds per call of each way, each call waited for; "rule": 1.0 where `PadRule` pads."""
    m, k, n = shape
    a, b = torch.randn(m, k, device="cuda", dtype=dtype), torch.randn(k, n, device="cuda", dtype=dtype)
    padded = cuda_products(lambda _device: Padding())["aten.mm.default"]

    def waited(product: Callable[..., torch.Tensor]) -> Callable[[], None]:
        def run() -> None:
            product(a, b)
            torch.cuda.synchronize()

        return run

    seconds = interleaved({"as it is": waited(torch.mm), "padded": waited(padded)}, rounds, at_least=0.02)
    return {**seconds, "rule": float(padded_sizes(a, b, PadRule()) is not None)}


def main_gpu(options: argparse.Namespace) -> None:
    rows = []
    shapes = [(dtype, shape) for dtype in (torch.float16, torch.bfloat16) for shape in GPU_SHAPES]
    with Progress("padding", len(shapes)) as progress:
        for dtype, shape in shapes:
            seconds = measure_gpu(dtype, shape, options.rounds)
            rows.append({"dtype": str(dtype).removeprefix("torch."), "shape": shape, "seconds": seconds})
            progress.step()
    cells = [
        [
            row["dtype"],
            "x".join(map(str, row["shape"])),
            1e6 * row["seconds"]["as it is"],
            row["seconds"]["padded"] / row["seconds"]["as it is"],
            "pads" if row["seconds"]["rule"] else "leaves",
        ]
        for row in rows
    ]
    print(table(["type", "m x k x n", "as it is, us", "padded: ratio", "rule"], cells))
    if options.out:
        write_result(options.out, "pad_matmul", rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options = parser.parse_args()
    if options.device == "cuda":
        main_gpu(options)
        return
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
