"""Calls whose keyword arguments change what they do: `out=`, `inplace=True`, arguments by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import symshape


def _written_number(n: torch.Tensor) -> Any:
    before = n.item()
    torch.add(n, 1, out=n)
    return before, n.item()


def _written_mask(x: torch.Tensor, mask: torch.Tensor) -> Any:
    before = x[mask]
    torch.lt(x, 0, out=mask)
    return before * 2, x[mask].sum(), before.sum()


def _ranks(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    out = torch.linalg.matrix_rank(a, out=out)
    out = torch.linalg.matrix_rank(b, out=out)
    return out + 0


def _changed_part(x: torch.Tensor) -> Any:
    rows = x[x[:, 0] > 0]
    F.relu(rows.tensor_split(3)[0], True)
    F.hardswish(rows.tensor_split(2)[1], inplace=True)
    return rows + 0


X, FLAGS = torch.arange(-9.0, 9).roll(5).view(6, 3), torch.arange(18).view(6, 3) % 5 == 0
PROGRAMS: dict[str, tuple[Callable[..., Any], list[torch.Tensor]]] = {
    "a number that out= writes": (_written_number, [torch.tensor(5)]),
    "a mask that out= writes": (_written_mask, [X, FLAGS]),
    "out= twice": (_ranks, [torch.eye(3), torch.diag(torch.tensor([1.0, 0, 0])), torch.tensor(7)]),
    "in place if asked": (_changed_part, [X]),
    "equal by name": (lambda x, y: x + 1 if torch.equal(x, other=y) else x - 1, [X, X.clone()]),
    "close by name": (lambda x, y: x + 1 if torch.allclose(input=x, other=y) else x - 1, [X, X * 2]),
    "not as many": (lambda x, y: x + 1 if x.equal(other=y[:, :2]) else x - 1, [X, X]),
    "a device by name": (lambda n: torch.triu_indices(n.item(), 3, device="cpu"), [torch.tensor(5)]),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("compiler", [symshape.compile, lambda f: torch.compile(f, backend="symshape", dynamic=True)])
def test_programs(name: str, compiler: Callable[..., Any]) -> None:
    torch._dynamo.reset()
    function, given = PROGRAMS[name]
    ours, theirs = ([x.clone() for x in given] for _ in range(2))
    torch.testing.assert_close(compiler(function)(*ours), function(*theirs), atol=0, rtol=0)
    torch.testing.assert_close(ours, theirs, atol=0, rtol=0)


@pytest.mark.parametrize("op", ["index_add", "index_copy"])
def test_negative_places_of_a_number(op: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, i, s: getattr(x, op)(0, i, s), backend="symshape", dynamic=True)
    x, s = torch.tensor(1.0), torch.tensor(2.0)
    assert torch.equal(compiled(x, torch.tensor([0]), s), getattr(x, op)(0, torch.tensor([0]), s))
    with pytest.raises(IndexError):
        compiled(x, torch.tensor([-1]), s)


@pytest.mark.parametrize(
    "compared",
    [
        lambda x: (x * x + x).chunk(2, -1)[0].amax(-1),
        lambda x: torch.maximum((x * 1.1).float(), (x * 1.1).float() * 1),
    ],
)
def test_gradients_of_parts_and_conversions(compared: Callable[[torch.Tensor], torch.Tensor]) -> None:
    torch._dynamo.reset()
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(64, 32, generator=generator).half()
    gradients = []
    for function in (compared, torch.compile(compared, backend="symshape", dynamic=True)):
        x = values.clone().requires_grad_()
        function(x).float().sum().backward()
        gradients.append(x.grad)
    torch.testing.assert_close(gradients[1], gradients[0], atol=4e-3, rtol=4e-3)
