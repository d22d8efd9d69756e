"""Streams, events, capture, and the memory pool of CUDA graphs, for one device.

All graphs of a device share one memory pool, which is scratch: nothing in it outlives a call (`cuda_graphs.py`). Graphs
may therefore overwrite one another's memory, and must run one after another: ``lock`` orders the host, an event orders
the streams.
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
    """The interface of `CudaDevice`, which tests replace."""

    device: torch.device
    lock: threading.RLock  # held while graphs of the device are captured or replayed
    recording: bool  # whether a capture or its warm-up is in progress

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
        self._last: Any = None  # stream of the last replay
        self._handle = 0  # raw handle of that stream
        self._done: Any = None  # event recorded after the last replay

    @functools.cached_property
    def _side(self) -> Any:
        """The stream of all captures. The allocator shares a pool's memory only among graphs captured on one stream."""
        stream: Any = torch.cuda.Stream
        return stream(self.device)

    @functools.cached_property
    def _pool(self) -> Any:
        return torch.cuda.graph_pool_handle()

    def is_capturing(self) -> bool:
        """Whether the device's current stream is being captured, so that launches would become part of that graph."""
        if torch.cuda.current_device() == self.device.index:
            return torch.cuda.is_current_stream_capturing()
        with torch.cuda.device(self.device):
            return torch.cuda.is_current_stream_capturing()

    def record(self, warm_up: Callable[[], object], work: Callable[[], Result]) -> tuple[Graph, Result]:
        """Captures ``work()`` and returns the graph and its result. ``warm_up()`` runs first on the same stream, since
        libraries create handles and choose algorithms at first use. Random numbers drawn in ``warm_up`` do not advance
        the generator; those in ``work`` are drawn anew at each replay (the generator's offset is an argument of the
        graph).

        Also after an error the current stream is restored, and waits for what was enqueued.
        """
        with torch.cuda.device(self.device), torch.inference_mode(False), torch.no_grad():
            current = torch.cuda.current_stream()
            graph = torch.cuda.CUDAGraph()
            self._side.wait_stream(current)
            self.recording = True
            try:
                with torch.cuda.stream(self._side), self._undrawn():
                    warm_up()
                # A cuBLAS workspace from before could be freed while the graph lives; one in the pool cannot.
                clear_library_workspaces()
                with torch.cuda.graph(graph, pool=self._pool, stream=self._side, capture_error_mode="thread_local"):
                    result = work()
            finally:
                self.recording = False
                torch.cuda.set_stream(current)  # torch.cuda.graph does not restore it if ending the capture fails
                clear_library_workspaces()
                current.wait_stream(self._side)
        return graph, result

    @contextmanager
    def _undrawn(self) -> Iterator[None]:
        """A context after which the random generator is as before."""
        state = torch.cuda.get_rng_state(self.device)
        try:
            yield
        finally:
            torch.cuda.set_rng_state(state, self.device)

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """A context in which the current stream may use the pool; it waits for the previous user."""
        if self._done is None:
            event: Any = torch.cuda.Event
            self._done = event()
        handle = raw_stream(self.device.index)
        if self._last is None or handle != self._handle:  # reading the handle is cheaper than a stream object
            stream = torch.cuda.current_stream(self.device)
            if self._last is not None:
                stream.wait_event(self._done)
            self._last, self._handle = stream, handle
        try:
            yield
        finally:
            self._done.record(self._last)

    def wait(self) -> None:
        """Blocks until no replay uses the pool."""
        if self._done is not None:
            self._done.synchronize()

    def at(self, x: torch.Tensor) -> torch.Tensor:
        """A tensor at the address of ``x`` that does not own the memory; the graphs own the pool."""
        return tensor_at(x)


def why_no_graphs(device: str) -> str:
    """The reason why launches on a device cannot be captured as CUDA graphs; "" if they can."""
    if torch.device(device).type != "cuda":
        return f"CUDA graphs are for GPUs, and this is {device}"
    backend = torch.cuda.get_allocator_backend()
    if backend != "native":  # cudaMallocAsync frees a graph's results when the graph ends
        return f"memory is allocated by {backend}, not by PyTorch's own allocator"
    return ""


@functools.cache
def device_of_graphs(device: str) -> GraphDevice:
    """The device object for CUDA graphs, shared by all programs."""
    return CudaDevice(torch.device(device))
