"""``symshape.jit``: entries without Dynamo, for tensors of a GPU."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from gpu_machine import Machine, same
from torch import nn

import symshape
from symshape.errors import ShapeConstraintError

SIZES = ((4, 6), (1, 1), (3, 2), (0, 5), (17, 33))
LARGE = ((1009, 2003), (2, 1_000_003))  # on a GPU

FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[[int, int], list[Any]]]] = {
    "pointwise": (lambda x, y: torch.softmax(x + y, -1) * x.shape[0], lambda n, m: [torch.randn(n, m), torch.randn(m)]),
    "reductions": (lambda x: (x.mean(0), x.abs().sum(1)), lambda n, m: [torch.randn(n, m)]),
    "integers": (lambda x, k: x * k + x.shape[1], lambda n, m: [torch.randn(n, m), n + 2]),
    "layouts": (lambda x: x.t() * 2 + x[:1].t(), lambda n, m: [torch.randn(max(n, 1), m)]),
    "indices": (lambda x, i: x[i].sum(1), lambda n, m: [torch.randn(n + 1, m), torch.arange(n)]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_entry_serves_all_sizes(machine: Machine, name: str) -> None:
    fn, make = FUNCTIONS[name]
    jitted = symshape.jit(fn, options=machine.options)
    for n, m in machine.pick(SIZES, SIZES + LARGE):
        inputs = machine.put(make(n, m))
        same(jitted(*inputs), fn(*inputs), rtol=1e-4, atol=1e-3)
    assert len(jitted.entries) == 1, jitted.entries


def test_branches_on_sizes_are_entries(machine: Machine) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x.exp().sum(0) if x.shape[0] % 2 == 0 else x.amax(0)

    jitted = symshape.jit(fn, options=machine.options)
    for n in (4, 3, 8, 1, 2):
        x = machine.put(torch.randn(n, 5))
        same(jitted(x), fn(x), rtol=1e-5)
    assert len(jitted.entries) == 2


def test_devices_are_entries(machine: Machine) -> None:
    """One function, called with tensors of the CPU and of the GPU in turn."""
    jitted = symshape.jit(lambda x: torch.softmax(x * 2, -1), options=machine.options)
    for n in (3, 1, 8):
        for x in (torch.randn(n, 5), machine.put(torch.randn(n, 5))):
            same(jitted(x), torch.softmax(x * 2, -1), rtol=1e-5, atol=1e-6)
    assert len(jitted.entries) == machine.pick(1, 2)


def test_a_check_of_sizes_is_an_error_before_anything_runs(machine: Machine) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        torch._check(x.shape[0] >= 2)
        return x.add_(1)

    jitted, x = symshape.jit(fn, options=machine.options), machine.put(torch.zeros(1, 3))
    same(jitted(machine.put(torch.zeros(2, 3))), machine.put(torch.ones(2, 3)))
    with pytest.raises(ShapeConstraintError, match="x.size"):
        jitted(x)
    same(x, torch.zeros_like(x))


def test_a_module_is_trained(machine: Machine) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2)).to(machine.device)
    other = copy.deepcopy(module)
    jitted = symshape.jit(module, options=machine.options)
    for n in (5, 1, 9):
        x, found = machine.put(torch.randn(n, 6)), []
        for run, own in ((jitted, module), (other, other)):
            own.zero_grad()
            loss = F.cross_entropy(run(x), torch.arange(n, device=x.device) % 2)
            loss.backward()
            found.append([loss.detach(), *(p.grad for p in own.parameters())])
        same(*found, rtol=1e-3, atol=1e-5)


def test_threads(machine: Machine) -> None:
    from concurrent.futures import ThreadPoolExecutor

    jitted = symshape.jit(lambda x: torch.softmax(x, -1).sum(0), options=machine.options)
    inputs = [machine.put(torch.randn(n, m)) for n, m in SIZES * 2]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(jitted, inputs))
    for x, y in zip(inputs, found, strict=True):
        same(y, torch.softmax(x, -1).sum(0), rtol=1e-5, atol=1e-6)
    assert len(jitted.entries) == 1
