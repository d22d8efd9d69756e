"""Results that ``backward`` does not reach have no gradient: nothing is computed for them, as in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import symshape
from symshape.frontend.patches.registry import CURRENT

pytestmark = pytest.mark.skipif(
    all(patch.name != "undefined gradients" for patch in CURRENT), reason="not for this version of PyTorch"
)


class Layers(nn.Module):
    """Two layers whose results are returned, and a normalisation of one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(4, 4), nn.Linear(4, 4), nn.LayerNorm(4)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = self.first(x).relu()
        return y, self.second(y).softmax(-1), self.norm(x) * y


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y, (h, c) = self.lstm(x[:, None])
        return y, h, c


def _parts(x: Tensor) -> tuple[Tensor, ...]:
    return *(x @ x.t()).sigmoid().chunk(2, 0), *(x * 2).split(2, -1)


def _written(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 1
    y[1:].mul_(3)
    return y, y.view(-1), y.exp().sum()


def _chosen(x: Tensor) -> tuple[Tensor, ...]:
    rows = torch.arange(x.shape[0])
    return x[x[:, 0] > 0].exp(), torch.where(x > 0, x, x.exp()), torch.zeros(3, 4).index_add(0, rows % 3, x), F.gelu(x)


def _solved(x: Tensor) -> tuple[Tensor, ...]:
    a = x.t() @ x + torch.eye(4)
    return torch.linalg.solve(a, x.t()), torch.linalg.inv(a).bfloat16(), torch.fft.rfft(x).abs()


def _gradients(fn: Any, parameters: list[Tensor], x: Tensor, reached: tuple[int, ...]) -> list[Tensor | None]:
    """Of all that requires one, where these results are reached."""
    for one in parameters:
        one.grad = None
    x = x.clone().requires_grad_()
    results = fn(x)
    terms = [results[i] * torch.arange(1.0, results[i].numel() + 1).view(results[i].shape) for i in reached]
    sum(term.sum() for term in terms).backward()  # type: ignore[union-attr]
    return [x.grad, *(one.grad for one in parameters)]


_PROGRAMS = [Layers, Recurrent, _parts, _written, _chosen, _solved]


@pytest.mark.parametrize(
    "program, how", [*((one, symshape.compile) for one in _PROGRAMS), (Layers, symshape.jit), (_parts, symshape.jit)]
)
def test_of_any_results_as_in_eager_mode(program: Any, how: Callable[[Any], Any]) -> None:
    torch.manual_seed(0)
    fn = program() if isinstance(program, type) else program
    parameters = list(fn.parameters()) if isinstance(fn, nn.Module) else []
    compiled = how(fn)
    for n in (5, 2):
        x = torch.randn(n, 4)
        count = len(fn(x))
        for reached in (*((i,) for i in range(count)), (0, count - 1)):
            found, expected = (_gradients(one, parameters, x, reached) for one in (compiled, fn))
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("how", [symshape.compile, symshape.jit, torch.compile])
def test_an_infinite_derivative_is_not_computed(how: Any) -> None:
    def moments(x: Tensor) -> tuple[Tensor, ...]:
        return x * 2, x.sqrt(), x.norm()

    compiled = how(moments, backend="symshape") if how is torch.compile else how(moments)
    for n in (3, 1, 0, 5):
        x = torch.zeros(n, requires_grad=True)
        compiled(x)[0].sum().backward()
        assert x.grad is not None and torch.equal(x.grad, torch.full((n,), 2.0))


def test_a_parameter_that_is_not_reached_does_not_decay() -> None:
    torch.manual_seed(0)
    model, states = Layers(), []
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for fn in (model, symshape.compile(model)):
        model.load_state_dict(before)
        optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.5)
        for n in (3, 4):
            optimizer.zero_grad()
            fn(torch.ones(n, 4).cumsum(0))[0].square().sum().backward()
            optimizer.step()
        states.append({name: value.clone() for name, value in model.state_dict().items()})
    torch.testing.assert_close(states[1], states[0])
    assert torch.equal(states[1]["second.weight"], before["second.weight"])
    assert not torch.equal(states[1]["first.weight"], before["first.weight"])


def test_other_ways_to_ask_for_gradients() -> None:
    def fn(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return x.exp() * 2, (x * w).sqrt()

    compiled = symshape.compile(fn)
    x, w = torch.zeros(4, requires_grad=True), torch.zeros(4, requires_grad=True)
    with pytest.raises(RuntimeError, match="appears to not have been used"):
        torch.autograd.grad(compiled(x, w)[0].sum(), w)
    assert torch.autograd.grad(compiled(x, w)[0].sum(), w, allow_unused=True) == (None,)
    (rows,) = torch.autograd.grad(compiled(x, w)[0], x, torch.eye(4), is_grads_batched=True)
    torch.testing.assert_close(rows, 2 * torch.eye(4))
    result = compiled(x, w)[0].sum()
    for _ in range(2):
        torch.testing.assert_close(torch.autograd.grad(result, x, retain_graph=True), (torch.full((4,), 2.0),))
    (gradient,) = torch.autograd.grad(result, x, create_graph=True)
    assert gradient.requires_grad
    torch.testing.assert_close(gradient.detach(), torch.full((4,), 2.0))


def test_compiled_autograd_passes_zeros() -> None:
    """It runs the traced graph itself."""
    from torch._dynamo import compiled_autograd

    model = Layers()
    compiled = symshape.compile(model)
    for n in (3, 5):
        x = torch.randn(n, 4)
        expected = _gradients(model, list(model.parameters()), x, (0,))
        with compiled_autograd._enable(torch.compile(backend="eager", dynamic=True)):
            found = _gradients(compiled, list(model.parameters()), x, (0,))
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, torch.zeros_like(one) if other is None else other)
