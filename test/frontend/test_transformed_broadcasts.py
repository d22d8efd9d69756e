"""Transforms of ``torch.func`` of what is broadcast: eager mode's results at every size, 1 among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

import symshape

# PyTorch 2.11 refuses a number in a transform that jit traces, and a gradient that has to be summed where its operand
# was written in place. That it does, and gives no wrong result, is what is looked at there (docs/tracing.md).
pytestmark = pytest.mark.xfail(torch.__version__ < "2.12", raises=RuntimeError, reason="refused before PyTorch 2.12")


def _affine(v: Tensor) -> Tensor:
    return (v * 2 + 1).sin()


ALONE: dict[str, Callable[[Tensor], Any]] = {
    "jvp": lambda x: jvp(_affine, (x,), (torch.ones_like(x),)),
    "jacfwd": jacfwd(lambda v: _affine(v).sum(1)),
    "jacrev": jacrev(lambda v: _affine(v).sum(1)),
    "hessian": hessian(lambda v: _affine(v * v).sum()),
    "grad": grad(lambda v: _affine(v).sum()),
    "vmap": vmap(lambda v: _affine(v)),
    "gradient of an outer product": grad(lambda v: (v[:, None] * v[None] * 2).sin().sum()),
    "gradient of expand": grad(lambda v: (2 * v.expand(3, *v.shape)).sin().sum()),
    "gradient of products": grad(lambda v: (v.prod() + v.cumprod(1).sum() + v.prod(0).sum()).sin()),
    "gradient of polar": grad(lambda v: torch.view_as_real(torch.polar(v.abs() + 1, v)).sin().sum()),
}

TOGETHER: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "gradient of a product": lambda x, y: grad(lambda v: (v * y * 2).sin().sum())(x),
    "gradient of where": lambda x, y: grad(lambda v: torch.where(v > y, v * 2, y).sin().sum())(x),
    "gradient of expand": lambda x, y: grad(lambda v: (v.expand(y.shape) * 2).sin().sum())(x),
    "gradient of matmul": lambda x, y: grad(lambda v: (v[:, None] @ y[:, :, None] * 2).sin().sum())(x),
    "gradient of attention": lambda x, y: grad(
        lambda v: F.scaled_dot_product_attention(v[:, None], y[:, None], y[:, None]).sin().sum()
    )(x),
    "gradient of what is written": lambda x, y: grad(lambda v: (v.exp() * y).add_(v).mul_(2 * v).sum())(x),
    "tangent of expand": lambda x, y: jvp(lambda v: (v.expand(y.shape) * 2).sin(), (x,), (x.cos(),)),
    "tangent of a product": lambda x, y: jvp(lambda v: _affine(v * y), (x,), (x.cos(),)),
    "vjp": lambda x, y: vjp(lambda v: _affine(v * y), x)[1](x * y),
    "jacobian of expand": lambda x, y: jacrev(lambda v: (v.expand(y.shape) * 2).sin().sum(1))(x),
    "hessian": lambda x, y: hessian(lambda v: (v * y * 2).sin().sum())(x),
    "forward over reverse": lambda x, y: jacfwd(jacrev(lambda v: (v * y * 3).sin().sum()))(x),
    "gradient of a gradient": lambda x, y: grad(lambda u: grad(lambda v: (v * y * u * 3).sin().sum())(u).sum())(x),
    "gradient of each row": lambda x, y: vmap(grad(lambda v: (v * y * 2).sin().sum()))(x),
    "rows in a gradient": lambda x, y: grad(lambda w: vmap(lambda v: (v * y * 2).sin().sum())(w).sum())(x),
    "expand of each row": lambda x, y: vmap(lambda v: v.expand(y.shape[0], -1) * 2)(x),
}

ORDERS = ([(3, 3), (1, 3), (3, 1), (1, 1), (0, 0), (1, 0)], [(1, 3), (3, 3), (1, 1)], [(1, 1), (3, 3), (1, 3)])


def _rows(number: int, low: float) -> Tensor:
    return torch.linspace(low, 2, number * 4).reshape(number, 4)


def _compare(make: Any, function: Any, arguments: list[tuple[Tensor, ...]]) -> None:
    """Where eager mode has a result."""
    compiled, served = make(function), 0
    for given in arguments:
        try:
            wanted = function(*given)
        except RuntimeError:
            continue
        served += 1
        torch.testing.assert_close(compiled(*given), wanted)
    assert served >= 2


@pytest.mark.sample(3)
@pytest.mark.parametrize("first", [3, 1])
@pytest.mark.parametrize("name", ALONE)
def test_numbers_in_transforms(name: str, first: int) -> None:
    _compare(symshape.jit, ALONE[name], [(_rows(n, 0.1),) for n in (first, 4, 1, 3)])


@pytest.mark.sample(4)
@pytest.mark.parametrize("order", [ORDERS[0], *(pytest.param(o, marks=pytest.mark.long) for o in ORDERS[1:])], ids=str)
@pytest.mark.parametrize("name", TOGETHER)
def test_what_is_repeated_in_transforms(name: str, order: list[tuple[int, int]]) -> None:
    _compare(symshape.jit, TOGETHER[name], [(_rows(n, 0.1), _rows(m, -1.0)) for n, m in order])


@pytest.mark.parametrize(
    "name",
    [
        name if name == "gradient of a product" else pytest.param(name, marks=pytest.mark.long)
        for name in ("gradient of a product", "gradient of matmul", "gradient of expand", "gradient of a gradient")
    ],
)
@pytest.mark.parametrize("order", [ORDERS[0][:3], ORDERS[1]], ids=str)
def test_what_is_repeated_in_transforms_with_dynamo(name: str, order: list[tuple[int, int]]) -> None:
    torch._dynamo.reset()
    _compare(symshape.compile, TOGETHER[name], [(_rows(n, 0.1), _rows(m, -1.0)) for n, m in order])


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_a_gradient_around_a_transform(order: list[tuple[int, int]]) -> None:
    """What is differentiated outside of all levels is repeated, too."""

    def function(x: Tensor, y: Tensor) -> Any:
        weight = x.detach().requires_grad_()
        tangent = jvp(lambda v: (v * weight * 2).sin(), (y,), (y.cos(),))[1]
        return torch.autograd.grad(tangent.sum(), weight)

    _compare(symshape.jit, function, [(_rows(n, 0.1), _rows(m, -1.0)) for n, m in order])


WRITES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "arithmetic": lambda x, y: (x.exp() * y * 2).add_(x).mul_(x).sub_(y, alpha=2).div_(2 + x * x),
    "copy": lambda x, y: (y * 2).copy_(x) * y,
    "part": lambda x, y: _first_columns(x, y) * y,
    "masked_fill": lambda x, y: (y * 2).masked_fill_(x > 1, 0.5) * x,
    "lerp": lambda x, y: (y * 2).lerp_(x, 0.25).addcmul_(x, y, value=3),
}


def _first_columns(x: Tensor, y: Tensor) -> Tensor:
    found = y * 2
    found[:, :2] = x[:, :2]
    return found


@pytest.mark.sample(4)
@pytest.mark.parametrize("order", [[(3, 3), (1, 3), (1, 1)], [(1, 3), (3, 3)], [(1, 1), (4, 4), (1, 4)]], ids=str)
@pytest.mark.parametrize("name", WRITES)
def test_gradients_of_what_is_repeated_in_place(name: str, order: list[tuple[int, int]]) -> None:
    compiled = symshape.jit(WRITES[name])
    for n, m in order:
        given = [_rows(n, 0.1).requires_grad_(), _rows(m, -1.0).requires_grad_()]
        found, wanted = (
            [y, *torch.autograd.grad(y.sum(), given)] for y in (f(*given) for f in (compiled, WRITES[name]))
        )
        torch.testing.assert_close(found, wanted)
