"""Whether memory stays flat over many calls with changing sizes, and over compiles and ``torch.compiler.reset()``.

    python -m bench.leaks [--calls 10000] [--rounds 50] [--out bench/results/leaks.json]

Resident memory is compared after a fifth of the calls (or rounds), when pools and caches of PyTorch are filled, and at
the end. Entries: what the compiler keeps for the whole process (its ``functools`` caches, object files, source lines);
the first column is the same as for memory, the second one at the end. The rounds are run with the backend "aot_eager"
first, which shows what PyTorch itself keeps of each compile (0.45 MiB in 2.13). The exit status says whether memory
grew by more than 2 % besides that, or anything but a bounded cache.
"""

from __future__ import annotations

import argparse
import gc
import linecache
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from symshape.runtime.cpu.load_objects import Library
from symshape.tools.measure import write_result
from symshape.tools.terminal import Progress, table

SIZES = (2, 3, 5, 8, 13, 17, 31, 64, 67, 100, 127, 128, 251, 300)


@dataclass(frozen=True)
class Row:
    """Resident MiB and entries after a fifth and at the end; ``unbounded``: those of caches without a bound."""

    what: str
    count: int
    early_mib: float
    late_mib: float
    early_entries: int
    late_entries: int
    early_unbounded: int
    late_unbounded: int

    @property
    def growth(self) -> float:
        return 100 * (self.late_mib / self.early_mib - 1)


def entries() -> tuple[int, int]:
    """What the compiler keeps for the process: all entries, and those of caches that have no bound."""
    found: dict[int, Any] = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "symshape" and module is not None:
            found |= {id(one): one for one in vars(module).values() if hasattr(one, "cache_parameters")}
    sizes = [one.cache_info() for one in found.values()]
    libraries = sum(isinstance(one, Library) for one in gc.get_objects())
    own = libraries + sum(1 for name in linecache.cache if name.startswith(("<triton", "<symshape")))
    unbounded = own + sum(info.currsize for info in sizes if info.maxsize is None)
    return own + sum(info.currsize for info in sizes), unbounded


def resident_mib() -> float:
    """Resident memory of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Kernels of each kind, a product, and an output that is a view."""
    z = (x * y + 1).softmax(1)
    return z @ z.t(), z.sum(0), torch.cat([z, x])[1:], z.t()


def inputs(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the n-th call; sizes repeat in another order, so that allocators have seen them all early."""
    rows, columns = SIZES[n % len(SIZES)], SIZES[n // len(SIZES) % len(SIZES)]
    return torch.randn(rows, columns, requires_grad=True), torch.randn(rows, columns)


def call(compiled: Callable[..., Any], n: int) -> None:
    outputs = compiled(*inputs(n))
    if n % 4 == 0:
        sum(out.sum() for out in outputs).backward()


def calls(count: int) -> Iterator[None]:
    """One compile, many sizes, a fourth of them with gradients."""
    compiled = torch.compile(program, backend="symshape", dynamic=True, options={"cache": False})
    for n in range(count):
        call(compiled, n)
        yield


def rounds(count: int, backend: str) -> Iterator[None]:
    """A compile of another program each time, two calls, and a reset."""
    options = {"options": {"cache": False}} if backend == "symshape" else {}
    for n in range(count):

        def variant(x: torch.Tensor, y: torch.Tensor, n: int = n) -> tuple[torch.Tensor, ...]:
            return program(x + n, y)

        compiled = torch.compile(variant, backend=backend, dynamic=True, **options)
        for k in (4, 5):
            call(compiled, k)
        torch.compiler.reset()
        yield


def measure(what: str, steps: Iterator[None], count: int, progress: Progress | None = None) -> Row:
    """Memory along the steps."""
    early, first = 0.0, (0, 0)
    for n, _ in enumerate(steps):
        if progress is not None:
            progress.step()
        if n + 1 == max(count // 5, 1):
            early, first = resident_mib(), entries()
    late, last = resident_mib(), entries()
    return Row(what, count, early, late, first[0], last[0], first[1], last[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with Progress("leaks", given.calls + 2 * given.rounds) as progress:
        rows = [measure("calls", calls(given.calls), given.calls, progress)]
        for backend in ("aot_eager", "symshape"):
            what = f"compile and reset: {backend}"
            rows.append(measure(what, rounds(given.rounds, backend), given.rounds, progress))
    head = ["what", "count", "MiB early", "MiB late", "growth %", "entries early", "late", "unbounded early", "late"]
    shown = [
        (
            r.what,
            r.count,
            r.early_mib,
            r.late_mib,
            r.growth,
            r.early_entries,
            r.late_entries,
            r.early_unbounded,
            r.late_unbounded,
        )
        for r in rows
    ]
    print(table(head, shown))
    if given.out:
        write_result(given.out, "leaks", [{**asdict(row), "growth": row.growth} for row in rows])
    many, theirs, ours = rows
    grown = ours.late_mib - ours.early_mib - (theirs.late_mib - theirs.early_mib)
    flat = many.growth <= 2 and 100 * grown <= 2 * ours.early_mib
    return int(not flat or any(row.late_unbounded > row.early_unbounded for row in rows))


if __name__ == "__main__":
    sys.exit(main())
