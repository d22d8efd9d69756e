"""Decides when a program's launches become a CUDA graph, for which sizes, and how many graphs are kept.

A bucket of sizes is one exact combination of sizes, strides and integers. Padding a batch to a larger bucket would be
valid only if no result depended on the padding. That cannot be proven for a whole program
(docs/decisions.md, "Sizes are not padded for CUDA graphs"), so there is no padding.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GraphPolicy:
    """``calls``             number of calls with the same sizes that run without a graph before one is captured; they
                          compile, tune and load kernels
    ``graphs``            maximum number of graphs of a program; the least recently used is evicted
    ``buckets``           maximum number of combinations of sizes for which calls are counted
    ``launch_seconds``    host time of a launch from Python; NVIDIA's figure for a launch from C++ is 2 to 4 us
                          ("Getting started with CUDA graphs", "Constant time launch for straight-line graphs")
    ``bytes_per_second``  speed of a copy in GPU memory, where each byte is read and written: half of an A100's
                          bandwidth
    ``margin``            ratio by which the launch time saved must exceed the copy time: copies take GPU time, launches
                          take host time, which matters only if the GPU waits for it
    """

    calls: int = 2
    graphs: int = 128
    buckets: int = 1024
    launch_seconds: float = 4e-6
    bytes_per_second: float = 0.75e12
    margin: float = 4.0

    def pays(self, launches: int, copies: int, size: int) -> bool:
        """Whether replacing ``launches`` by one graph launch, with ``copies`` of ``size`` bytes in total around it,
        clearly saves time."""
        saved = (launches - copies - 1) * self.launch_seconds
        return saved > self.margin * size / self.bytes_per_second

    def calls_before(self, evicted: int) -> int:
        """Number of calls before a capture. Doubles each time that as many graphs as are kept were evicted: a program
        with more sizes than graphs would otherwise capture all the time."""
        return self.calls << min(evicted // self.graphs, 20)
