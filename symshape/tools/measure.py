"""Measurements for tests, benchmarks and the demo: errors of outputs, counts of graphs, times per call."""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
import torch._dynamo
import torch.utils._pytree as pytree

from symshape.frame_compiler import compile_with
from symshape.frontend.bridge.dynamo_counters import (
    break_counts,
    compile_ids,
    forget_counts,
    graph_count,
    with_limits_of_recompiles,
)


@contextlib.contextmanager
def no_synchronisation(on_gpu: bool) -> Iterator[None]:
    """A context in which synchronising with the GPU is an error; without effect if ``on_gpu`` is false."""
    if not on_gpu:
        yield
        return
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def tensors_of(output: Any) -> list[torch.Tensor]:
    """All tensors in an output (a pytree), in order."""
    return [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor)]


def relative_error(actual: Any, expected: Any) -> float:
    """The largest ``max|actual - expected| / max|expected|`` over all tensors; infinity if shapes or types differ."""
    pairs = tensors_of(actual), tensors_of(expected)
    if len(pairs[0]) != len(pairs[1]) or not pairs[1]:
        return float("inf")
    return max(_relative_error(a, b) for a, b in zip(*pairs, strict=True))


def _relative_error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return float("inf")
    if expected.numel() == 0:
        return 0.0
    a, b = actual.detach().double(), expected.detach().double()
    same = (a == b) | (a.isnan() & b.isnan())
    difference = torch.where(same, 0.0, (a - b).abs()).max().item()
    scale = b[b.isfinite()].abs().max().item() if b.isfinite().any() else 0.0
    if difference == 0.0:
        return 0.0
    # NaN or infinity on one side only becomes an infinite error: a NaN could get lost in `max`.
    return difference / scale if scale > 0.0 and difference < float("inf") else float("inf")


def compile_for(backend: str, fn: Any, **options: Any) -> Any:
    """``fn`` compiled by ``backend`` under symshape's Dynamo settings, so that a comparison varies only the backend.

    symshape's cache on disk is off unless ``cache=True`` is passed. ``options`` are ignored for other backends.
    """
    if backend != "symshape":
        return compile_with(fn, backend)
    import symshape

    return symshape.compile(fn, **{"cache": False, **options})


@dataclass
class Graphs:
    """A context that counts what Dynamo does: graphs, recompiled frames, graph breaks by reason. Resets Dynamo
    first."""

    graphs: int = 0
    recompiles: int = 0
    breaks: Counter[str] = field(default_factory=Counter)

    def __enter__(self) -> Graphs:
        torch._dynamo.reset()
        forget_counts()
        # At its recompile limit Dynamo silently runs eager code, and recompiles would no longer be counted.
        self._limits = with_limits_of_recompiles(1000, 100_000)
        self._limits.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.read()
        self._limits.__exit__(kind, error, trace)

    def read(self) -> Graphs:
        """Updates the counts and returns ``self``."""
        self.graphs = graph_count()
        self.breaks = break_counts()
        self.recompiles = len(_recompiled_frames())
        return self


def _recompiled_frames() -> set[str]:
    """Compile ids of recompiled frames. Dynamo writes an id as ``frame/attempt``; attempts after 0 are recompiles."""
    return {name for name in compile_ids() if "/" in name and not name.endswith("/0")}


Clock = Callable[[], float]
CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "processor": time.process_time}


def seconds_per_call(
    run: Callable[[], Any], *, at_least: float = 0.05, most_calls: int = 1000, clock: Clock = time.perf_counter
) -> float:
    """One timing sample: mean seconds per call, over ``at_least`` seconds or ``most_calls`` calls."""
    calls, start = 0, clock()
    while True:
        run()
        calls += 1
        passed = clock() - start
        if passed >= at_least or calls >= most_calls:
            return passed / calls


def samples(
    runs: dict[str, Callable[[], Any]], rounds: int, at_least: float = 0.05, clock: Clock = time.perf_counter
) -> dict[str, list[float]]:
    """Seconds per call of each run, one sample per round. Runs alternate and their order rotates, so that noise of the
    machine hits all of them alike."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds):
        names = list(runs)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            found[name].append(seconds_per_call(runs[name], at_least=at_least, clock=clock))
    return found


def interleaved(runs: dict[str, Callable[[], Any]], rounds: int, at_least: float = 0.05) -> dict[str, float]:
    """Median seconds per call of each run, from `samples`."""
    return {name: statistics.median(values) for name, values in samples(runs, rounds, at_least).items()}


def median_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """A confidence interval of the median, valid for any distribution.

    Its bounds are two order statistics, equally far from both ends (H. A. David, H. N. Nagaraja: Order Statistics,
    7.1). Five samples or fewer do not suffice for 0.95; the bounds are then minimum and maximum.
    """
    ordered, count = sorted(values), len(values)
    left_out, outside = 0, 2 * 0.5**count
    while outside + 2 * math.comb(count, left_out + 1) * 0.5**count <= 1 - confidence:
        left_out += 1
        outside += 2 * math.comb(count, left_out) * 0.5**count
    return ordered[left_out], ordered[count - 1 - left_out]


def geometric_mean(values: Iterable[float]) -> float:
    """Geometric mean of positive numbers."""
    return statistics.geometric_mean(list(values))


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """The quantile at ``share`` (0 to 1) of sorted values; None if there are none."""
    if not ordered:
        return None
    if share == 0.5:
        return statistics.median(ordered)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def environment() -> dict[str, Any]:
    """What measurements depend on besides the code: machine, threads, package versions. Stored with each result."""
    packages = ("torch", "torch-mlir", "transformers", "triton", "islpy", "llvmlite")
    return {
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "packages": {name: found for name in packages if (found := _version(name))},
        **({"gpu": torch.cuda.get_device_name(), "cuda": torch.version.cuda} if torch.cuda.is_available() else {}),
    }


def _version(package: str) -> str:
    """Version of an installed package; "" if it or its metadata is missing."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _processor() -> str:
    """Name of the CPU."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def write_result(path: str | os.PathLike[str], name: str, rows: Sequence[Any], **summary: Any) -> None:
    """Writes a result as JSON: benchmark name, `environment`, summary, rows. Creates missing folders."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    record = {"benchmark": name, "environment": environment(), "summary": summary, "rows": list(rows)}
    target.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
