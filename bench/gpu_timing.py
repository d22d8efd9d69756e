"""Times of calls on a GPU: interleaved, by CUDA events, with the host out of the way; on a CPU by the clock."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

_SAMPLE: Final = 2e-3  # seconds of work that one sample should have
_MOST_CALLS: Final = 64  # the queue of a GPU holds about a thousand launches
_CYCLES: Final = 2e9  # of a GPU's clock in a second, at most


@dataclass(frozen=True)
class Times:
    """Seconds per call, for each sample: ``device`` between two events with the calls queued up, ``call`` as the caller
    sees it, launching included."""

    device: tuple[float, ...]
    call: tuple[float, ...]

    @property
    def seconds(self) -> dict[str, float]:
        return {"device": statistics.median(self.device), "call": statistics.median(self.call)}


def measure(runs: Mapping[str, Callable[[], Any]], rounds: int, device: str) -> dict[str, Times]:
    """Every run in turn, ``rounds`` times, each time beginning with another one."""
    counts = {name: _count(run, device) for name, run in runs.items()}
    device_times: dict[str, list[float]] = {name: [] for name in runs}
    call_times: dict[str, list[float]] = {name: [] for name in runs}
    names = list(runs)
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            seconds = _by_clock(runs[name], counts[name], device)
            call_times[name].append(seconds)
            queued = seconds if device == "cpu" else _by_events(runs[name], counts[name], seconds)
            device_times[name].append(queued)
    return {name: Times(tuple(device_times[name]), tuple(call_times[name])) for name in runs}


def ratio(ours: Times, theirs: Times, kind: str = "device") -> float:
    """The median over the samples' ratios: samples of a turn are neighbours in time."""
    return statistics.median(a / b for a, b in zip(getattr(ours, kind), getattr(theirs, kind), strict=True))


def _count(run: Callable[[], Any], device: str) -> int:
    """Calls per sample, after one that may compile."""
    run()
    seconds = _by_clock(run, 1, device)
    return max(1, min(_MOST_CALLS, int(_SAMPLE / max(seconds, 1e-9))))


def _by_clock(run: Callable[[], Any], count: int, device: str) -> float:
    _wait(device)
    start = time.perf_counter()
    for _ in range(count):
        run()
    _wait(device)
    return (time.perf_counter() - start) / count


def _by_events(run: Callable[[], Any], count: int, seconds: float) -> float:
    """The GPU is kept busy until all calls are queued: it then runs them back to back, however long launching takes."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(int(_CYCLES * (count * seconds + 1e-3)))  # type: ignore[no-untyped-call]
    start.record()
    for _ in range(count):
        run()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e-3 / count


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()
