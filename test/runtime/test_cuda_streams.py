"""On which device and stream the runtime launches, and in which order streams wait, with a stand-in for ``torch.cuda``.

No GPU: what is checked is what the driver would be asked for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from symshape.runtime.triton import compact, cuda_device, launch, tuned_launch
from symshape.runtime.triton.cuda_device import CudaDevice


class Stream:
    def __init__(self, said: list[str], name: str) -> None:
        self.said, self.name = said, name

    def wait_stream(self, other: Stream) -> None:
        self.said.append(f"{self.name} waits for {other.name}")

    def wait_event(self, event: Event) -> None:
        self.said.append(f"{self.name} waits for {event.at}")


class Event:
    def __init__(self, said: list[str]) -> None:
        self.said, self.at = said, ""

    def record(self, stream: Stream) -> None:
        self.at = f"a point of {stream.name}"

    def synchronize(self) -> None:
        self.said.append(f"the host waits for {self.at}")


class Cuda:
    """A GPU's driver: ``said`` is what it was asked for, ``device`` and ``stream`` are the current ones."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.said: list[str] = []
        self.device, self.stream, self.capturing = 0, Stream(self.said, "main"), False
        self.fails_at_end = False
        self.drawn = 7
        for name in ("current_device", "graph_pool_handle", "graph", "set_stream", "current_stream"):
            monkeypatch.setattr(torch.cuda, name, getattr(self, name))
        monkeypatch.setattr(torch.cuda, "Stream", lambda _device: Stream(self.said, "side"))
        monkeypatch.setattr(torch.cuda, "Event", lambda: Event(self.said))
        monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: "graph")
        monkeypatch.setattr(torch.cuda, "device", self.on_device)
        monkeypatch.setattr(torch.cuda, "device_of", lambda x: self.on_device(x.device))
        monkeypatch.setattr(torch.cuda, "stream", self.on_stream)
        monkeypatch.setattr(torch.cuda, "get_rng_state", lambda _device: self.drawn)
        monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, _device: setattr(self, "drawn", state))
        monkeypatch.setattr(cuda_device, "raw_stream", lambda _device: id(self.stream))
        monkeypatch.setattr(launch, "current_gpu", self.current_device)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: self.capturing and self.device == 1)
        monkeypatch.setattr(cuda_device, "clear_library_workspaces", lambda: self.said.append("workspaces are cleared"))

    def current_device(self) -> int:
        return self.device

    def current_stream(self, _device: Any = None) -> Stream:
        return self.stream

    def set_stream(self, stream: Stream) -> None:
        self.stream = stream

    def graph_pool_handle(self) -> str:
        return "pool"

    @contextlib.contextmanager
    def on_device(self, device: torch.device) -> Iterator[None]:
        before, self.device = self.device, device.index or 0
        try:
            yield
        finally:
            self.device = before

    @contextlib.contextmanager
    def on_stream(self, stream: Stream) -> Iterator[None]:
        before, self.stream = self.stream, stream
        try:
            yield
        finally:
            self.stream = before

    @contextlib.contextmanager
    def graph(self, graph: str, *, pool: str, stream: Stream, capture_error_mode: str) -> Iterator[None]:
        """Like ``torch.cuda.graph``, which leaves its stream the current one where the end of a capture fails."""
        assert (graph, pool, capture_error_mode) == ("graph", "pool", "thread_local")
        before, self.stream = self.stream, stream
        try:
            yield
        finally:
            if self.fails_at_end:
                raise RuntimeError("operation failed due to a previous error during capture")
            self.stream = before

    def say(self, what: str) -> str:
        self.said.append(f"{what} on cuda:{self.device}, {self.stream.name}")
        return what


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    return Cuda(monkeypatch)


def test_a_capture_is_on_a_side_stream_between_waits(cuda: Cuda) -> None:
    device = CudaDevice(torch.device("cuda", 1))

    def warm_up() -> None:
        cuda.drawn += 1
        assert device.recording
        cuda.say("warm-up")

    assert device.record(warm_up, lambda: cuda.say("capture")) == ("graph", "capture")
    assert cuda.said == [
        "side waits for main",
        "warm-up on cuda:1, side",
        "workspaces are cleared",
        "capture on cuda:1, side",
        "workspaces are cleared",
        "main waits for side",
    ]
    assert (cuda.device, cuda.stream.name, cuda.drawn, device.recording) == (0, "main", 7, False)


@pytest.mark.parametrize("where", ["warm-up", "capture", "its end"])
def test_an_error_leaves_streams_as_they_were(cuda: Cuda, where: str) -> None:
    device = CudaDevice(torch.device("cuda", 1))
    cuda.fails_at_end = where == "its end"

    def fail(here: str) -> None:
        cuda.drawn += here == "warm-up"
        if here == where:
            raise ValueError(here)

    with pytest.raises((ValueError, RuntimeError)):
        device.record(lambda: fail("warm-up"), lambda: fail("capture"))
    assert (cuda.device, cuda.stream.name, cuda.drawn, device.recording) == (0, "main", 7, False)
    assert cuda.said[-1] == "main waits for side"


def test_replays_of_a_device_follow_one_another(cuda: Cuda) -> None:
    device, other = CudaDevice(torch.device("cuda", 0)), Stream(cuda.said, "other")
    main = cuda.stream
    device.wait()
    for stream in (main, main, other, other, main):
        with cuda.on_stream(stream), device.in_turn():
            cuda.say("replay")
    device.wait()
    assert cuda.said == [
        "replay on cuda:0, main",
        "replay on cuda:0, main",
        "other waits for a point of main",
        "replay on cuda:0, other",
        "replay on cuda:0, other",
        "main waits for a point of other",
        "replay on cuda:0, main",
        "the host waits for a point of main",
    ]


def test_an_error_in_a_replay_is_waited_for(cuda: Cuda) -> None:
    device, other = CudaDevice(torch.device("cuda", 0)), Stream(cuda.said, "other")
    with pytest.raises(ValueError, match="no memory"), device.in_turn():
        raise ValueError("no memory")
    with cuda.on_stream(other), device.in_turn():
        pass
    assert cuda.said == ["other waits for a point of main"]


def test_programs_of_a_gpu_share_its_pool() -> None:
    first, second = cuda_device.device_of_graphs("cuda:0"), cuda_device.device_of_graphs("cuda:1")
    assert first is cuda_device.device_of_graphs("cuda:0") and first is not second


def test_allocators_whose_memory_ends_with_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "for GPUs, and this is cpu" in cuda_device.why_no_graphs("cpu")
    for backend, reason in {"native": "", "cudaMallocAsync": "memory is allocated by cudaMallocAsync"}.items():
        monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda backend=backend: backend)
        assert cuda_device.why_no_graphs("cuda:0").partition(",")[0] == reason


def test_a_kernel_runs_where_its_tensors_are(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled for each GPU, launched on the GPU's own current stream, whichever GPU is the current one."""

    def compiled(*_args: Any) -> Any:
        home = cuda.device
        return {(3, 1, 1): lambda *_args: cuda.say(f"code for cuda:{home}")}

    monkeypatch.setattr(launch, "compile_stage", compiled)
    monkeypatch.setattr(launch, "signature", lambda *_args: {"signature": {}})
    kernel = object.__new__(launch._Compiled)
    kernel.kernel = kernel.variant = None  # type: ignore[assignment]
    kernel.stage = type("Stage", (), {"function": "f"})()  # type: ignore[assignment]
    kernel.functions, kernel.constants, kernel.loaded = (lambda: {"f": None}), (), {}
    for index in (1, 0, 1):
        kernel(torch.device("cuda", index), 3)
        assert cuda.device == 0
    assert cuda.said == [f"code for cuda:{i} on cuda:{i}, main" for i in (1, 0, 1)]


def test_positions_of_a_mask_are_found_where_it_is(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[torch.Tensor] = []

    @contextlib.contextmanager
    def device_of(x: torch.Tensor) -> Iterator[None]:
        entered.append(x)
        yield
        entered.pop()

    monkeypatch.setattr(torch.cuda, "device_of", device_of)

    class Kernel:
        def __init__(self, run: Any) -> None:
            self.run = run

        def __getitem__(self, grid: tuple[int]) -> Any:
            assert entered, "Triton launches on the current device"
            return self.run

    def count(mask: torch.Tensor, counts: torch.Tensor, n: int, BLOCK: int) -> None:
        counts.fill_(int(mask.sum()))

    def write(mask: torch.Tensor, counts: Any, ends: Any, found: torch.Tensor, n: int, BLOCK: int) -> None:
        found.copy_(mask.flatten().nonzero().flatten())

    monkeypatch.setattr(compact, "count_blocks", Kernel(count))
    monkeypatch.setattr(compact, "write_positions", Kernel(write))
    mask = torch.tensor([[True, False], [False, True]])
    assert compact.positions(mask).tolist() == [0, 3] and not entered


def test_a_capture_is_seen_on_the_kernels_own_device(cuda: Cuda) -> None:
    cuda.capturing = True  # the current stream of cuda:1
    assert tuned_launch._is_captured(torch.device("cuda", 1)) and cuda.device == 0
    assert not tuned_launch._is_captured(torch.device("cuda", 0))
    assert not tuned_launch._is_captured(torch.device("cpu"))
    assert [CudaDevice(torch.device("cuda", i)).is_capturing() for i in range(2)] == [False, True]
