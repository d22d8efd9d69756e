"""``torch.autograd.grad`` in what is compiled: penalties, physics, forces, meta-learning."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import symshape

SIZES = (4, 1, 0, 7, 32)


def _net(inputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, 1))


class _Penalty(nn.Module):
    """A critic's loss with a penalty on its gradient between two samples."""

    def __init__(self) -> None:
        super().__init__()
        self.critic = _net(3)

    def forward(self, real: Tensor, made: Tensor) -> Tensor:
        share = torch.rand(real.shape[0], 1)
        between = (share * real + (1 - share) * made).requires_grad_(True)
        (slope,) = torch.autograd.grad(self.critic(between).sum(), between, create_graph=True)
        return self.critic(made).sum() - self.critic(real).sum() + (slope.norm(2, dim=1) - 1).square().sum()


class _Physics(nn.Module):
    """What is left of Burgers' equation, with a second derivative."""

    def __init__(self) -> None:
        super().__init__()
        self.net = _net(2)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        x, t = x[:, :1].detach().requires_grad_(True), t[:, :1].detach().requires_grad_(True)
        u = self.net(torch.cat([x, t], 1))
        u_x, u_t = torch.autograd.grad(u, (x, t), torch.ones_like(u), create_graph=True)
        (u_xx,) = torch.autograd.grad(u_x, x, torch.ones_like(u), create_graph=True)
        return (u_t + u * u_x - 0.1 * u_xx).square().sum()


class _Forces(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = _net(1)

    def forward(self, positions: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
        positions = positions.detach().requires_grad_(True)
        distances = (positions[:, None] - positions[None]).square().sum(-1)
        energy = self.net(torch.exp(-distances).sum(1, keepdim=True)).sum()
        return energy, -torch.autograd.grad(energy, positions, create_graph=True)[0]


class _Inner(nn.Module):
    """Two steps of an inner loop, through which the outer loss is differentiated."""

    def __init__(self) -> None:
        super().__init__()
        self.net = _net(3)

    def forward(self, x: Tensor, held_out: Tensor) -> Tensor:
        weights = dict(self.net.named_parameters())
        for _ in range(2):
            loss = torch.func.functional_call(self.net, weights, (x,)).square().sum()
            steps = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
            weights = {name: w - 0.1 * step for (name, w), step in zip(weights.items(), steps)}
        return torch.func.functional_call(self.net, weights, (held_out,)).sum()


def _step(model: nn.Module, call: Callable[..., Any], size: int) -> list[Any]:
    torch.manual_seed(size)
    results = call(torch.randn(size, 3), torch.randn(size, 3))
    results = results if isinstance(results, tuple) else (results,)
    torch.stack([one.square().sum() for one in results]).sum().backward()
    found = [*(one.detach() for one in results), *(p.grad for p in model.parameters())]
    model.zero_grad()
    return found


# All but the second: the graph is broken where a tensor becomes a leaf, since what depends on it leaves the graph.
@pytest.mark.parametrize(("make", "most"), [(_Penalty, 2), (_Inner, 1), (_Physics, 3), (_Forces, 2)])
def test_gradients_are_differentiated(make: Callable[[], nn.Module], most: int, graphs: Callable[[], int]) -> None:
    torch.manual_seed(0)
    model = make()
    theirs = copy.deepcopy(model)
    compiled = symshape.compile(model)
    for size in SIZES:
        expected = _step(theirs, theirs, size)
        torch.testing.assert_close(_step(model, compiled, size), expected, rtol=1e-4, atol=1e-5)
    assert graphs() <= most


def test_a_step_of_a_critic() -> None:
    """The penalty, ``backward()`` and an optimizer in one function."""

    def made() -> tuple[nn.Module, Callable[[Tensor, Tensor], Tensor]]:
        torch.manual_seed(0)
        model = _Penalty()
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)

        def step(real: Tensor, made: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = model(real, made)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return loss.detach()

        return model, step

    (model, step), (theirs, their_step) = made(), made()
    compiled = symshape.compile(step)
    for size in SIZES:
        real, fake = torch.randn(size, 3), torch.randn(size, 3)
        torch.manual_seed(size)
        expected = their_step(real, fake)
        torch.manual_seed(size)
        torch.testing.assert_close(compiled(real, fake), expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(list(model.parameters()), list(theirs.parameters()), rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(torch.__version__ < "2.13", reason="a tensor becomes no leaf in a graph there")
def test_a_sampler_is_one_graph(graphs: Callable[[], int]) -> None:
    net = _net(3)

    def sample(x: Tensor) -> Tensor:
        for _ in range(3):
            x = x.detach().requires_grad_(True)
            x = x - 0.1 * torch.autograd.grad(net(x).sum(), x)[0] + 0.01 * torch.randn_like(x)
        return x.detach()

    compiled = symshape.compile(sample)
    for size in SIZES:
        x = torch.randn(size, 3)
        torch.manual_seed(size)
        expected = sample(x)
        torch.manual_seed(size)
        torch.testing.assert_close(compiled(x), expected, rtol=1e-4, atol=1e-5)
    assert graphs() == 1


def test_a_loss_whose_gradient_is_taken_twice() -> None:
    """Once inside, and once by the caller."""
    weight = torch.randn(3, 3, requires_grad=True)

    def slope(x: Tensor) -> tuple[Tensor, Tensor]:
        loss = (x @ weight).tanh().sum()
        return loss, torch.autograd.grad(loss, weight, retain_graph=True)[0]

    compiled = symshape.compile(slope)
    for size in SIZES:
        x = torch.randn(size, 3)
        expected_loss, expected = slope(x)
        loss, found = compiled(x)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(*(torch.autograd.grad(one, weight) for one in (loss, expected_loss)))


class _Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return 3 * ctx.saved_tensors[0] ** 2 * gradient


def test_no_gradient_of_a_users_function_is_lost() -> None:
    """Its gradient is in the graph; the gradient of that is PyTorch's error for compiled functions, and not nothing."""

    def slope(x: Tensor, again: bool) -> Tensor:
        return torch.autograd.grad(_Cube.apply(x).sum(), x, create_graph=again)[0].sum()

    compiled = symshape.compile(slope)
    for size in SIZES:
        x = torch.randn(size, 3, requires_grad=True)
        torch.testing.assert_close(compiled(x, False), slope(x, False))
        with pytest.raises(RuntimeError, match="double backward"):
            compiled(x, True).backward()


def test_a_gradient_that_has_none() -> None:
    """``create_graph`` where an operator's gradient has no derivative, and nobody asks for it."""

    def slope(x: Tensor) -> Tensor:
        y = F.softmax(x, -1)
        return torch.autograd.grad(torch.cdist(y, y[:2]).sum(), x, create_graph=True)[0].detach()

    compiled = symshape.compile(slope)
    for size in (4, 3, 7):
        x = torch.randn(size, 3, requires_grad=True)
        torch.testing.assert_close(compiled(x), slope(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("wanted", ["unused", "vector"])
def test_errors_are_those_of_eager_mode(wanted: str) -> None:
    def slope(x: Tensor) -> Any:
        y = x.sin() if wanted == "vector" else x.sin().sum()
        return torch.autograd.grad(y, torch.ones(3, requires_grad=True) if wanted == "unused" else x)

    x = torch.randn(4, 3, requires_grad=True)
    with pytest.raises(RuntimeError) as expected:
        slope(x)
    with pytest.raises(RuntimeError) as found:
        symshape.compile(slope)(x)
    assert str(found.value) == str(expected.value)
