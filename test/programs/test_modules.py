"""Modules, gradient modes, threads, errors."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from program import LARGE, integers, normal
from torch import nn

import symshape


class Normalised(torch.nn.Module):
    """Buffers that the forward pass mutates, some of them by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(5, 6)
        self.norm = torch.nn.BatchNorm1d(6)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("largest", torch.full((6,), -1e9))
        self.register_buffer("scale", torch.ones(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # Of a bias that the norm takes away again, the gradient would be what rounding leaves of 0.
        y = self.norm(self.linear(x).tanh()).relu() * self.scale.unsqueeze(0).exp()
        self.scale.mul_(0.75)  # backward needs what was computed from it
        self.calls += 1
        torch.maximum(self.largest, y.detach().amax(0), out=self.largest)
        return y


def test_module_with_mutated_buffers() -> None:
    torch.manual_seed(0)
    ours, theirs = Normalised(), Normalised()
    theirs.load_state_dict(ours.state_dict())
    compiled = symshape.compile(ours)
    for training in (True, False):
        ours.train(training), theirs.train(training)
        for n in LARGE:
            x = normal(n, 5)
            results = [compiled(x), theirs(x)]
            for module, result in zip((ours, theirs), results):
                module.zero_grad()
                result.square().sum().backward()
            torch.testing.assert_close(results[0], results[1])
            torch.testing.assert_close(dict(ours.named_buffers()), dict(theirs.named_buffers()))
            grads = [{k: p.grad for k, p in module.named_parameters()} for module in (ours, theirs)]
            torch.testing.assert_close(grads[0], grads[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_gradient_modes(mode: Any) -> None:
    """One compiled function, called in a mode and out of it, with and without gradients wanted."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.exp().sum(1), x.t()[1:]

    compiled = symshape.compile(function)
    for n in (7, 16, 2):
        for wanted in (False, True):
            x = normal(n, n + 3).requires_grad_(wanted)
            with mode():
                actual, expected = compiled(x), function(x)
            for a, e in zip(actual, expected):
                torch.testing.assert_close(a, e)
                assert (a.requires_grad, a.is_inference()) == (e.requires_grad, e.is_inference())
            torch.testing.assert_close(compiled(x.detach()), function(x.detach()))


def test_dropout_keeps_its_share() -> None:
    """Random numbers differ by right; what is kept is scaled, and a seed gives the same result again."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x * 2, 0.25) + torch.rand_like(x) * 0

    compiled = symshape.compile(function)
    for n in (64, 101):
        x = torch.ones(n, n).requires_grad_()
        torch.manual_seed(3)
        first = compiled(x)
        torch.manual_seed(3)
        assert torch.equal(first, compiled(x))
        assert set(first.unique().tolist()) == {0.0, torch.tensor(2 / 0.75).item()}
        assert abs(first.count_nonzero().item() / first.numel() - 0.75) < 0.05
        (gradient,) = torch.autograd.grad(first.sum(), x)
        assert torch.equal(gradient != 0, first != 0)


def test_threads_share_a_compiled_function() -> None:
    """Four threads at once, each at its own sizes; the first calls compile."""

    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.softmax(x * y, 1).sum(0), torch.cat([x, y]).t().contiguous()

    compiled = symshape.compile(function)

    def work(seed: int) -> list[str]:
        wrong = []
        for step in range(40):
            n = 2 + (seed * 7 + step * 5) % 60
            generator = torch.Generator().manual_seed(n)
            x, y = (torch.randn(n, n + 3, generator=generator) for _ in range(2))
            pairs = zip(compiled(x, y), function(x, y))
            wrong += [f"size {n}" for a, e in pairs if not torch.allclose(a, e, atol=1e-5)]
        return wrong

    with ThreadPoolExecutor(4) as pool:
        assert not [text for result in pool.map(work, range(4)) for text in result]


def test_index_error_is_eagers() -> None:
    def function(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x[i] * 2

    compiled = symshape.compile(function)
    x = normal(7, 3)
    torch.testing.assert_close(compiled(x, torch.tensor([0, -7, 6])), function(x, torch.tensor([0, -7, 6])))
    for wrong in (7, -8):
        with pytest.raises(IndexError):
            compiled(x, torch.tensor([0, wrong]))


def test_division_by_zero_is_eagers() -> None:
    compiled = symshape.compile(lambda x, y: x // y)
    x = integers(5)
    assert torch.equal(compiled(x, torch.full((5,), -2)), x // -2)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        compiled(x, torch.tensor([1, 1, 0, 1, 1]))


def test_meta_tensors_stay_meta_tensors() -> None:
    compiled = symshape.compile(lambda x: x * 2)
    for n in (7, 3):
        result = compiled(torch.empty(n, 3, device="meta"))
        assert result.is_meta and result.shape == (n, 3)


@pytest.mark.parametrize("first", [0, 1])
def test_the_first_call_has_a_special_size(first: int) -> None:
    """A graph traced at size 0 or 1 is not used for another size."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.sum(0), x.softmax(1), x.t().reshape(-1), torch.cat([x, x + 1], 1)

    compiled = symshape.compile(function)
    for n in (first, 7, 1 - first, 16, 1):
        x = normal(n, 5)
        for a, e in zip(compiled(x), function(x)):
            torch.testing.assert_close(a, e)


@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_averages_over_all_batches(affine: bool) -> None:
    """``momentum=None``: the weight of a batch is 1 by the number of batches, which is a tensor's."""
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, momentum=None, affine=affine), nn.Tanh(), nn.Linear(6, 2))
    eager = copy.deepcopy(model)
    compiled = symshape.compile(model, fullgraph=True)
    for n in (5, 3, 2, 7):
        x = torch.randn(n, 4)
        actual, expected = compiled(x), eager(x)
        torch.testing.assert_close(actual, expected)
        actual.square().sum().backward()
        expected.square().sum().backward()
    torch.testing.assert_close(dict(model.named_buffers()), dict(eager.named_buffers()))
    for mine, eagers in zip(model.parameters(), eager.parameters()):
        torch.testing.assert_close(mine.grad, eagers.grad, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(compiled.eval()(x), eager.eval()(x))
