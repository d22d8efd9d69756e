"""Programs of tensors on the CPU and on a GPU, and transfers. Without a GPU both are the CPU, with the same code."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from gpu_machine import Machine, cases_of, same
from mixed_devices import MIXED

SIZES = ((5, 7), (17, 4), (1, 1), (0, 3))
LARGE = ((1009, 2003),)  # on a GPU


LONG = ("a number first", "a number of float16", "a negative int32", "a byte", "an infinity", "written across")


@pytest.mark.parametrize("name", cases_of(MIXED, LONG))
def test_runs_where_eager_mode_runs_it(machine: Machine, name: str) -> None:
    """Values, and the device of each result."""
    mixed = MIXED[name]
    run = lambda *tensors: mixed.run(machine.device, *tensors)  # noqa: E731
    compiled = machine.compile(run)
    for n, m in machine.pick(SIZES, SIZES + LARGE):
        given = mixed.make(n, m)
        own, other = (
            [machine.put(x) if there else x.clone() for x, there in zip(given, mixed.on_device, strict=True)]
            for _ in range(2)
        )
        same(compiled(*own), run(*other), rtol=1e-4, atol=1e-4)
        same(own, other)


def test_a_number_is_read_at_each_call(machine: Machine) -> None:
    compiled = machine.compile(lambda x, s: x * s)
    x, s = machine.put(torch.randn(4, 3)), torch.tensor(2.0)
    for _ in range(3):
        same(compiled(x, s), x * s)
        s += 1


def test_gradients_across_devices(machine: Machine) -> None:
    """Weights on the device, a scale on the CPU: each gradient is where its tensor is."""

    def fn(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return (F.linear(x, w).tanh() * scale).sum()

    compiled = machine.compile(fn)
    w, scale = machine.put(torch.randn(6, 5, requires_grad=True)), torch.tensor(0.5, requires_grad=True)
    for n in (3, 1, 9):
        x = machine.put(torch.randn(n, 5))
        same(*(torch.autograd.grad(run(x, w, scale), [w, scale]) for run in (compiled, fn)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pinned", [False, True], ids=["pageable", "pinned"])
def test_batches_arrive_while_the_host_goes_on(machine: Machine, pinned: bool) -> None:
    """Several sizes in flight: each is copied and computed without waiting for those before."""
    compiled = machine.compile(lambda x: torch.softmax(x * 2, -1).sum(0))
    batches = [torch.randn(n, m) for n, m in ((3, 5), (1, 1), (9, 33), (2, 700), (0, 4), (3, 5))]
    compiled(machine.put(batches[0]))
    if pinned and machine.is_gpu:
        batches = [x.pin_memory() for x in batches]
    found = [compiled(x.to(machine.device, non_blocking=True)) for x in batches]
    for x, y in zip(batches, found, strict=True):
        same(y, torch.softmax(machine.put(x) * 2, -1).sum(0), rtol=1e-5, atol=1e-6)


def test_results_return_while_the_host_goes_on(machine: Machine) -> None:
    """To pinned memory, which is right once the GPU has been waited for."""
    compiled = machine.compile(lambda x: (x.exp().sum(1), x * 2))
    kept = []
    for n, m in ((3, 5), (1, 1), (17, 129), (2, 9)):
        x = machine.put(torch.randn(n, m))
        rooms = [torch.empty(n, pin_memory=machine.is_gpu), torch.empty(n, m, pin_memory=machine.is_gpu)]
        for room, value in zip(rooms, compiled(x), strict=True):
            room.copy_(value, non_blocking=True)
        kept.append((x, rooms))
    if machine.is_gpu:
        torch.cuda.synchronize()
    for x, rooms in kept:
        same(rooms, [x.exp().sum(1).cpu(), (x * 2).cpu()], rtol=1e-5, atol=1e-6)


def test_pinned_memory_is_a_cpu_operand(machine: Machine) -> None:
    """A program that is given pinned tensors copies them as one does that is given others."""
    compiled = machine.compile(lambda x, y: x + y.to(x.device, non_blocking=True))
    for n in (4, 1, 129):
        x, y = torch.randn(n, 3), torch.randn(n, 3)
        y = y.pin_memory() if machine.is_gpu else y
        same(compiled(machine.put(x), y), machine.put(x + y))


def test_an_empty_program_of_a_size(machine: Machine) -> None:
    """Nothing to launch: what is returned is made of sizes alone."""
    compiled = machine.compile(lambda x: (torch.empty(x.shape[0], 0, device=x.device), x.shape[1] * 2))
    for n, m in ((3, 5), (0, 0), (1, 9)):
        made, double = compiled(machine.put(torch.randn(n, m)))
        assert (made.shape, made.device.type, double) == ((n, 0), machine.device, 2 * m)


def test_the_device_of_the_inputs_and_not_the_current_one(machine: Machine) -> None:
    machine.only_on_a_gpu("two of them")
    if torch.cuda.device_count() < 2:
        pytest.skip("needs a second GPU")
    compiled = machine.compile(lambda x: torch.softmax(x, -1) * 2)
    for device in ("cuda:1", "cuda:0", "cuda:1"):
        x = torch.randn(5, 7, device=device)
        same(compiled(x), torch.softmax(x, -1) * 2)
