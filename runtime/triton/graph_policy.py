"""When the launches of a program become a CUDA graph, for which sizes, and how many graphs are kept.

A bucket of sizes is one combination of sizes, strides and integers, exactly. A batch could be padded to a larger one
only where no result reads what was padded; nothing proves that of a whole program (docs/decisions.md), so none is.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GraphPolicy:
    """``calls``             how many calls with the same sizes run as they are before one is captured: kernels are
                          compiled, tuned and loaded in them
    ``graphs``            the most graphs of a program; the least recently used goes
    ``buckets``           for how many combinations of sizes calls are counted
    ``launch_seconds``    what the host takes for a launch, from Python; NVIDIA's figure for a launch from C++ is 2 to
                          4 us ("Getting started with CUDA graphs", "Constant time launch for straight-line graphs")
    ``bytes_per_second``  of a copy within a GPU's memory, each byte read and written: half the bandwidth of an A100
    ``margin``            how many times what copies take must be saved: copies are the GPU's time, launches are the
                          host's, which counts only where the GPU waits for it
    """

    calls: int = 2
    graphs: int = 128
    buckets: int = 1024
    launch_seconds: float = 4e-6
    bytes_per_second: float = 0.75e12
    margin: float = 4.0

    def pays(self, launches: int, copies: int, size: int) -> bool:
        """Whether one launch of a graph of so many ``launches``, with so many ``copies`` of ``size`` bytes in all
        before and after it, costs clearly less than the launches."""
        saved = (launches - copies - 1) * self.launch_seconds
        return saved > self.margin * size / self.bytes_per_second

    def calls_before(self, evicted: int) -> int:
        """How many calls come before a capture. They double each time that a full set of graphs was evicted: a program
        that meets more sizes than it has graphs would capture all the time."""
        return self.calls << min(evicted // self.graphs, 20)
