"""What CUDA graphs ask of a device: streams, events, capture and a pool of memory.

The memory of every graph of a device is one pool, which is scratch: nothing in it outlives a call (`cuda_graphs.py`).
So graphs may overwrite one another, and they run one after the other: ``lock`` orders the host, an event the streams.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, TypeVar

import torch

from symshape.runtime.torch_c import clear_library_workspaces, raw_stream, tensor_at

Result = TypeVar("Result")


class Graph(Protocol):
    """A captured graph (``torch.cuda.CUDAGraph``)."""

    def replay(self) -> None: ...

    def reset(self) -> None: ...


class GraphDevice(Protocol):
    """See ``CudaDevice``."""

    device: torch.device
    lock: threading.RLock  # held while graphs of the device are captured or replayed
    recording: bool  # whether a capture, or what is run before it, is under way

    def is_capturing(self) -> bool: ...

    def record(self, warm_up: Callable[[], object], work: Callable[[], Result]) -> tuple[Graph, Result]: ...

    def in_turn(self) -> AbstractContextManager[None]: ...

    def wait(self) -> None: ...

    def at(self, x: torch.Tensor) -> torch.Tensor: ...


class CudaDevice:
    """One GPU."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.lock = threading.RLock()
        self.recording = False
        self._last: Any = None  # the stream of the last replay
        self._handle = 0  # of that stream
        self._done: Any = None  # the event at its end

    @functools.cached_property
    def _side(self) -> Any:
        """Every capture runs on one stream: the allocator shares a pool's memory among graphs of one stream only."""
        stream: Any = torch.cuda.Stream
        return stream(self.device)

    @functools.cached_property
    def _pool(self) -> Any:
        return torch.cuda.graph_pool_handle()

    def is_capturing(self) -> bool:
        """Whether somebody captures the device's current stream: what runs then becomes part of their graph."""
        if torch.cuda.current_device() == self.device.index:
            return torch.cuda.is_current_stream_capturing()
        with torch.cuda.device(self.device):
            return torch.cuda.is_current_stream_capturing()

    def record(self, warm_up: Callable[[], object], work: Callable[[], Result]) -> tuple[Graph, Result]:
        """``work()`` captured, after ``warm_up()`` has run on the same stream: libraries make handles and choose
        algorithms there. What is drawn by ``warm_up`` leaves no trace; what ``work`` draws is drawn anew at each replay
        (the generator's offset is an argument of the graph).

        Whatever is raised, the current stream is what it was, and waits for what was enqueued.
        """
        with torch.cuda.device(self.device), torch.inference_mode(False), torch.no_grad():
            current = torch.cuda.current_stream()
            graph = torch.cuda.CUDAGraph()
            self._side.wait_stream(current)
            self.recording = True
            try:
                with torch.cuda.stream(self._side), self._undrawn():
                    warm_up()
                # A workspace of cuBLAS from before could be freed while the graph lives; one of the pool is scratch.
                clear_library_workspaces()
                with torch.cuda.graph(graph, pool=self._pool, stream=self._side, capture_error_mode="thread_local"):
                    result = work()
            finally:
                self.recording = False
                torch.cuda.set_stream(current)  # torch.cuda.graph leaves its own where the end of a capture fails
                clear_library_workspaces()
                current.wait_stream(self._side)
        return graph, result

    @contextmanager
    def _undrawn(self) -> Iterator[None]:
        """What is drawn in here leaves the generator as it is."""
        state = torch.cuda.get_rng_state(self.device)
        try:
            yield
        finally:
            torch.cuda.set_rng_state(state, self.device)

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """While entered, the current stream uses the pool: after what the last one did there."""
        if self._done is None:
            event: Any = torch.cuda.Event
            self._done = event()
        handle = raw_stream(self.device.index)
        if self._last is None or handle != self._handle:  # PyTorch's object of a stream takes longer than its handle
            stream = torch.cuda.current_stream(self.device)
            if self._last is not None:
                stream.wait_event(self._done)
            self._last, self._handle = stream, handle
        try:
            yield
        finally:
            self._done.record(self._last)

    def wait(self) -> None:
        """Until no replay uses the pool."""
        if self._done is not None:
            self._done.synchronize()

    def at(self, x: torch.Tensor) -> torch.Tensor:
        """A tensor at the address of one of the pool, which does not keep the memory: the pool's graphs do."""
        return tensor_at(x)


def why_no_graphs(device: str) -> str:
    """Why launches on a device cannot be CUDA graphs; "" where they can."""
    if torch.device(device).type != "cuda":
        return f"CUDA graphs are for GPUs, and this is {device}"
    backend = torch.cuda.get_allocator_backend()
    if backend != "native":  # in a graph of cudaMallocAsync's the memory of results is freed when the graph ends
        return f"memory is allocated by {backend}, not by PyTorch's own allocator"
    return ""


@functools.cache
def device_of_graphs(device: str) -> GraphDevice:
    """A GPU as graphs need it, which all programs share."""
    return CudaDevice(torch.device(device))
