"""Chooses among ways to run a kernel by measured time: once for each bucket of sizes, kept on disk."""

from __future__ import annotations

import hashlib
import json
import logging
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from symshape.errors import KernelError
from symshape.runtime.store import Cache, open_cache

KIND: Final = "autotune"
_SAMPLES: Final = 5
_SECONDS: Final = 0.002  # a sample is as many launches as take this long
_MOST_LAUNCHES: Final = 100
log = logging.getLogger("symshape.autotune")


class Autotuner:
    """Decides on one device. ``timer(run)``: seconds of one call of ``run``, which has been called before."""

    def __init__(
        self,
        device: torch.device,
        timer: Callable[[Callable[[], None]], float] | None = None,
        cache: Cache | None = None,
    ) -> None:
        self.device, self.name = device, device_name(device)
        self.timer = timer or self._seconds
        self.cache = cache or open_cache(KIND)

    def choose(self, kernel: str, bucket: str, candidates: Sequence[str], run: Callable[[int], None]) -> int:
        """The position of the fastest candidate.

        ``kernel`` identifies the code, ``bucket`` the sizes, ``candidates`` the ways to run it; ``run(i)`` runs one of
        them, with no effect that another run would notice. One that fails is never chosen; KernelError, from the last
        failure, where all do. What was measured on a device of the same name, with the same versions, holds.
        """
        if len(candidates) == 1:
            return 0
        key = self._key(kernel, bucket, candidates)
        found = self.cache.get(key) if self.cache is not None else None
        known = None if found is None else _read(found, candidates)
        if known is not None:
            return known
        seconds = self._measure(candidates, run)
        best = min(seconds, key=lambda i: seconds[i])
        shown = {candidates[i]: taken for i, taken in seconds.items()}
        log.info("%s, %s: %s of %s", kernel, bucket, candidates[best], shown)
        if self.cache is not None:
            self.cache.put(key, {"choice": candidates[best].encode(), "seconds": json.dumps(shown).encode()})
        return best

    def _measure(self, candidates: Sequence[str], run: Callable[[int], None]) -> dict[int, float]:
        seconds: dict[int, float] = {}
        failed: Exception | None = None
        for i, name in enumerate(candidates):
            try:
                run(i)  # compiles it
                seconds[i] = self.timer(lambda: run(i))  # noqa: B023  (called before i changes)
            except Exception as error:  # Triton's errors have no common base: too much shared memory, too many threads
                log.info("%s cannot run: %s", name, error)
                failed = error
        if not seconds:
            raise KernelError(
                f"no variant can run: {failed}", where=candidates[-1], next_step="leave mode='max-autotune' out"
            ) from failed
        return seconds

    def _seconds(self, run: Callable[[], None]) -> float:
        """The median of some samples, each of as many launches as are worth timing."""
        once = self._sample(run, 1)
        launches = max(1, min(_MOST_LAUNCHES, int(_SECONDS / max(once, 1e-9))))
        return statistics.median(self._sample(run, launches) for _ in range(_SAMPLES))

    def _sample(self, run: Callable[[], None], launches: int) -> float:
        if self.device.type != "cuda":
            start = time.perf_counter()
            for _ in range(launches):
                run()
            return (time.perf_counter() - start) / launches
        with torch.cuda.device(self.device):
            event: Any = torch.cuda.Event
            first, last = (event(enable_timing=True) for _ in range(2))
            first.record()
            for _ in range(launches):
                run()
            last.record()
            last.synchronize()
            return float(first.elapsed_time(last)) * 1e-3 / launches

    def _key(self, kernel: str, bucket: str, candidates: Sequence[str]) -> str:
        parts = [kernel, bucket, list(candidates), self.name, *_versions()]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def device_name(device: torch.device) -> str:
    """The device that results are valid for: the model of a GPU, not one of several."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def bucket_of(*sizes: int) -> tuple[int, ...]:
    """Sizes of one bucket are from a power of two up to the next; 0 is a bucket of its own."""
    return tuple(size.bit_length() for size in sizes)


def _versions() -> list[str]:
    import triton

    return [triton.__version__, torch.__version__, str(torch.version.cuda)]


def _read(sections: dict[str, Any], candidates: Sequence[str]) -> int | None:
    choice = sections.get("choice", b"").decode()
    return candidates.index(choice) if choice in candidates else None
