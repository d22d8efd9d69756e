"""Streams: kernels, allocations and copies of compiled code are on the caller's. There is none without a GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from gpu_machine import Machine, same
from triton_cases import emit
from triton_cases import softmax as softmax_kernel

from symshape.codegen.variants import Variant
from symshape.prover.numbers.condition import TRUE
from symshape.runtime.triton.launch import load_triton

SIZES = ((3, 5), (1009, 2003), (1, 1), (17, 100_003), (4096, 512))


@pytest.fixture(autouse=True)
def _needs_a_gpu(machine: Machine) -> Iterator[None]:
    machine.only_on_a_gpu("there are no streams without one")
    yield


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x * 2, -1).sum(0)


def busy() -> None:
    """The current stream has some milliseconds to do."""
    torch.cuda._sleep(20_000_000)


def test_a_side_stream(machine: Machine) -> None:
    """What runs there waits for what the stream does before, and not for the default one."""
    compiled, side = machine.compile(softmax), torch.cuda.Stream()
    for n, m in SIZES:
        with torch.cuda.stream(side):
            x = torch.zeros(n, m, device="cuda")
            busy()
            x.normal_()
            y = compiled(x)
        side.synchronize()
        same(y, softmax(x), rtol=1e-5, atol=1e-6)


def test_compiled_on_a_side_stream(machine: Machine) -> None:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        compiled = machine.compile(softmax)
        first = compiled(torch.ones(4, 8, device="cuda"))
    torch.cuda.current_stream().wait_stream(side)
    same(first, softmax(torch.ones(4, 8, device="cuda")))
    x = torch.randn(9, 33, device="cuda")
    same(compiled(x), softmax(x), rtol=1e-5, atol=1e-6)


def test_two_streams_with_several_sizes_in_flight(machine: Machine) -> None:
    compiled = machine.compile(softmax)
    compiled(torch.ones(2, 3, device="cuda"))
    streams, kept = [torch.cuda.Stream() for _ in range(2)], []
    torch.cuda.synchronize()
    for i, (n, m) in enumerate(SIZES * 2):
        with torch.cuda.stream(streams[i % 2]):
            if i < 2:
                busy()
            x = torch.randn(n, m, device="cuda")
            kept.append((x, compiled(x)))
    torch.cuda.synchronize()
    for x, y in kept:
        same(y, softmax(x), rtol=1e-5, atol=1e-6)


def test_programs_that_count_themselves(machine: Machine) -> None:
    """Each stream has counters of its own, and so has each captured graph, beside launches on the stream of its
    capture."""
    launch = load_triton(
        emit(softmax_kernel(), [Variant("held", "split_persistent", TRUE, 1, 64, 64, one_launch=True)])
    )
    streams, kept = [torch.cuda.Stream() for _ in range(3)], []
    x, out = torch.randn(7, 4099, device="cuda"), torch.empty(7, 4099, device="cuda")
    launch(x, out, *x.shape)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=streams[0]):
        launch(x, out, *x.shape)
    for i in range(30):
        out.zero_()
        torch.cuda.synchronize()
        for j, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                y = torch.randn(1 + 50 * j, 1009 + i, device="cuda")
                kept.append((y, torch.empty_like(y)))
                launch(*kept[-1], *y.shape)
                if j == 1:
                    graph.replay()
        torch.cuda.synchronize()
        same(out, torch.softmax(x, 1), rtol=1e-5, atol=1e-6)
    for y, result in kept:
        same(result, torch.softmax(y, 1), rtol=1e-5, atol=1e-6)


def test_a_stream_waits_for_another_through_an_event(machine: Machine) -> None:
    first, second = machine.compile(lambda x: x * 2 + 1), machine.compile(softmax)
    streams = [torch.cuda.Stream() for _ in range(2)]
    for n, m in SIZES:
        x = torch.randn(n, m, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(streams[0]):
            busy()
            y = first(x)
            ready = streams[0].record_event()
        with torch.cuda.stream(streams[1]):
            streams[1].wait_event(ready)
            z = second(y)
        torch.cuda.synchronize()
        same(z, softmax(x * 2 + 1), rtol=1e-4, atol=1e-5)


def test_workspaces_of_split_reductions_are_the_streams_own(machine: Machine) -> None:
    """Long rows are reduced in parts that are kept in memory until the launch that combines them."""
    compiled = machine.compile(lambda x: x.sum(-1))
    streams, kept = [torch.cuda.Stream() for _ in range(4)], []
    compiled(torch.ones(2, 3, device="cuda"))
    inputs = [torch.rand(1, 10_000_019 + i, device="cuda") for i in range(8)]
    torch.cuda.synchronize()
    for i, x in enumerate(inputs):
        with torch.cuda.stream(streams[i % 4]):
            kept.append(compiled(x))
    torch.cuda.synchronize()
    for x, y in zip(inputs, kept, strict=True):
        same(y, x.double().sum(-1).float(), rtol=1e-5)


def test_backward_on_the_stream_of_forward(machine: Machine) -> None:
    compiled, side = machine.compile(lambda x: (torch.softmax(x, -1) ** 2).sum()), torch.cuda.Stream()
    for n, m in SIZES[:3]:
        x = torch.randn(n, m, device="cuda", requires_grad=True)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            (gradient,) = torch.autograd.grad(compiled(x), x)
        side.synchronize()
        same(gradient, torch.autograd.grad((torch.softmax(x, -1) ** 2).sum(), x)[0], rtol=1e-4, atol=1e-6)


def test_launches_are_captured(machine: Machine) -> None:
    """A CUDA graph of the caller's holds the launches of one size."""
    compiled, x = machine.compile(softmax), torch.randn(64, 129, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        compiled(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = compiled(x)
    for _ in range(3):
        x.normal_()
        graph.replay()
        same(y, softmax(x), rtol=1e-5, atol=1e-6)


def test_threads_with_streams_of_their_own(machine: Machine) -> None:
    from concurrent.futures import ThreadPoolExecutor

    compiled = machine.compile(softmax)
    compiled(torch.ones(2, 3, device="cuda"))
    inputs = [torch.randn(n, m, device="cuda") for n, m in SIZES * 2]
    torch.cuda.synchronize()

    def work(x: torch.Tensor) -> torch.Tensor:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            y = compiled(x)
        stream.synchronize()
        return y

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(work, inputs))
    for x, y in zip(inputs, found, strict=True):
        same(y, softmax(x), rtol=1e-5, atol=1e-6)
