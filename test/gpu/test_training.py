"""Training steps against eager mode's: losses, gradients, parameters after steps of several sizes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from gpu_machine import Machine, cases_of, same
from torch import nn


class Attention(nn.Module):
    """One head over a sequence, with a causal mask of its length."""

    def __init__(self) -> None:
        super().__init__()
        self.all, self.out = nn.Linear(8, 24), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.all(x).chunk(3, -1)
        scores = q @ k.transpose(-1, -2) * 8**-0.5
        later = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool, device=x.device).triu(1)
        return self.out(scores.masked_fill(later, -torch.inf).softmax(-1) @ v)


class Words(nn.Module):
    """Embeddings that are summed: their gradient is a scatter."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.out = nn.Embedding(11, 6), nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.table((x[..., 0].abs() * 3).long().clamp(max=10)).sum(1).tanh())


class Gated(nn.Module):
    """What modern feed-forward layers do, with a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.gate, self.down = nn.RMSNorm(8), nn.Linear(8, 16), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Recurrent(nn.Module):
    """A cell over the sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.GRUCell(8, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros_like(x[:, 0])
        for i in (0, -1):
            h = self.cell(x[:, i], h)
        return self.out(h)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "layers": lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)),
    "normalised over the batch": lambda: nn.Sequential(nn.Linear(8, 4), nn.Flatten(0, 1), nn.BatchNorm1d(4), nn.ReLU()),
    "convolution": lambda: nn.Sequential(nn.Conv1d(8, 6, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool1d(2)),
    "attention": Attention,
    "words": Words,
    "gated": Gated,
    "recurrent": Recurrent,
}
SIZES = ((3, 5), (2, 1), (4, 9))
LARGE = ((3, 5), (64, 129), (7, 1000))  # on a GPU


def sequence(model: str, n: int, m: int) -> torch.Tensor:
    return torch.randn(n, 8, m) if model == "convolution" else torch.randn(n, m, 8)


def steps(module: nn.Module, run: Callable[..., Any], optimizer: Any, batches: list[torch.Tensor]) -> list[Any]:
    """Losses and, after the last step, gradients."""
    losses = []
    for x in batches:
        optimizer.zero_grad()
        loss = (run(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [losses, [p.grad for p in module.parameters()]]


@pytest.mark.parametrize("model", cases_of(MODELS, ["normalised over the batch", "convolution", "recurrent"]))
def test_steps_of_several_sizes(machine: Machine, model: str) -> None:
    torch.manual_seed(0)
    module = MODELS[model]().to(machine.device)
    other = copy.deepcopy(module)
    batches = [machine.put(sequence(model, n, m)) for n, m in machine.pick(SIZES, SIZES + LARGE)]
    found = steps(module, machine.compile(module), torch.optim.SGD(module.parameters(), 0.05), batches)
    expected = steps(other, other, torch.optim.SGD(other.parameters(), 0.05), batches)
    same(found, expected, rtol=1e-3, atol=1e-5)
    same(dict(module.state_dict()), dict(other.state_dict()), rtol=1e-3, atol=1e-5)


def test_a_compiled_optimizer(machine: Machine) -> None:
    """Every parameter in kernels, for parameters of several shapes."""
    parameters = [machine.put(torch.randn(*sizes)) for sizes in ((4, 3), (7,), (2, 5, 1))]
    others = [p.clone() for p in parameters]

    def step(values: list[torch.Tensor], gradients: list[torch.Tensor], momenta: list[torch.Tensor]) -> None:
        for p, g, m in zip(values, gradients, momenta, strict=True):
            m.mul_(0.9).add_(g)
            p.sub_(0.1 * m / (m.norm() + 1))

    momenta, own = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
    compiled = machine.compile(step)
    for _ in range(3):
        gradients = [torch.randn_like(p) for p in parameters]
        compiled(parameters, gradients, momenta)
        step(others, gradients, own)
    same([parameters, momenta], [others, own], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("type_", cases_of(["bfloat16", "float16"], ["float16"]))
def test_autocast(machine: Machine, type_: str) -> None:
    """Products in half the bits, the loss and the gradients of weights in float32."""
    dtype: torch.dtype = getattr(torch, type_)
    torch.manual_seed(0)
    module = MODELS["layers"]().to(machine.device)
    compiled = machine.compile(module)
    for n, m in ((3, 5), (1, 1), (4, 17)):
        x, found = machine.put(torch.randn(n, m, 8)), []
        for run in (compiled, module):
            module.zero_grad()
            with torch.autocast(machine.device, dtype):
                loss = (run(x).float() ** 2).mean()
            loss.backward()
            found.append([loss.detach(), *(p.grad for p in module.parameters())])
        same(*found, rtol=3e-2, atol=3e-2)


def test_dropped_elements_have_no_gradient(machine: Machine) -> None:
    """Forward and backward drop the same elements, and the others are scaled."""
    compiled = machine.compile(lambda x: F.dropout(x.exp(), 0.5))
    for n in (1, 6, machine.pick(65, 10_007)):
        x = machine.put(torch.randn(n, 3)).requires_grad_()
        y = compiled(x)
        (gradient,) = torch.autograd.grad(y.sum(), x)
        same(y.detach(), torch.where(y != 0, x.detach().exp() * 2, 0.0), rtol=1e-5)
        same(gradient, y.detach(), rtol=1e-5)


def test_a_gradient_of_a_gradient(machine: Machine) -> None:
    """Of what is traced as one function; backward has no gradient of its own in compiled code."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.func.grad(lambda y: (torch.func.grad(lambda z: (z**3).sum())(y) * y.sin()).sum())(x)

    machine.check(fn, [[torch.randn(n)] for n in (5, 1, 9)], rtol=1e-4, atol=1e-5)


def test_memory_is_given_back(machine: Machine) -> None:
    """After a step nothing but parameters, gradients and the loss is held, whatever the size before."""
    machine.only_on_a_gpu("the allocator of a GPU counts")
    module = MODELS["gated"]().to("cuda")
    compiled = machine.compile(module)
    held = []
    for n in (8, 4096, 8, 1024, 8):
        module.zero_grad(set_to_none=True)
        (compiled(torch.randn(n, 3, 8, device="cuda")) ** 2).mean().backward()
        torch.cuda.synchronize()
        held.append(torch.cuda.memory_allocated())
    assert held[0] == held[2] == held[4] and len(set(held)) == 1
