"""Programs over a boolean mask, for bench/masks.py and bench/gpu.py: with the mask, and with a ``where`` by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F

CLASSES = 16


@dataclass(frozen=True)
class Case:
    """``masked`` and ``by_hand`` compute the same of the same inputs, ``plain`` of harmless ones."""

    name: str
    masked: Callable[..., torch.Tensor]
    by_hand: Callable[..., torch.Tensor]
    plain: Callable[..., torch.Tensor]
    inputs: Callable[[int, float], tuple[torch.Tensor, ...]]


def vectors(n: int, share: float) -> tuple[torch.Tensor, ...]:
    return torch.randn(n), torch.randn(n), torch.rand(n) < share


def rows(n: int, share: float) -> tuple[torch.Tensor, ...]:
    count = n // CLASSES
    return torch.randn(count, CLASSES), torch.randint(0, CLASSES, (count,)), torch.rand(count) < share


def chain(x: torch.Tensor, _: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    return (x[m] * 2).exp().sum()


def chain_by_hand(x: torch.Tensor, _: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    return torch.where(m, (torch.where(m, x, 0) * 2).exp(), 0).sum()


def chain_plain(x: torch.Tensor, _: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    return torch.where(m, (x * 2).exp(), 0).sum()


def mse(x: torch.Tensor, y: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    return F.mse_loss(x[m], y[m])


def mse_by_hand(x: torch.Tensor, y: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    difference = torch.where(m, x - y, 0)
    return (difference * difference).sum() / m.sum()


def mse_plain(x: torch.Tensor, y: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    return torch.where(m, F.mse_loss(x, y, reduction="none"), 0).sum() / m.sum()


def cross_entropy(x: torch.Tensor, t: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x[m], t[m])


def cross_entropy_by_hand(x: torch.Tensor, t: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(torch.where(m[:, None], x, 0), torch.where(m, t, -100))


def cross_entropy_plain(x: torch.Tensor, t: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    return torch.where(m, F.cross_entropy(x, t, reduction="none"), 0).sum() / m.sum()


def assignment(x: torch.Tensor, y: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    z = y * x
    z[m] = torch.tanh(z[m])
    return z


def assignment_by_hand(x: torch.Tensor, y: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    z = y * x
    return torch.where(m, torch.tanh(torch.where(m, z, 0)), z)


def assignment_plain(x: torch.Tensor, y: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    z = y * x
    return torch.where(m, torch.tanh(z), z)


CASES = (
    Case("(x[m]*2).exp().sum()", chain, chain_by_hand, chain_plain, vectors),
    Case("mse(x[m], y[m])", mse, mse_by_hand, mse_plain, vectors),
    Case("cross_entropy(x[m], t[m])", cross_entropy, cross_entropy_by_hand, cross_entropy_plain, rows),
    Case("y[m] = tanh(y[m])", assignment, assignment_by_hand, assignment_plain, vectors),
)


def own(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function with code of its own: Dynamo keeps its graphs with the code, and the first match would serve all."""
    return FunctionType(fn.__code__.replace(), fn.__globals__, fn.__name__)


def differentiated(fn: Callable[..., torch.Tensor], leaves: list[torch.Tensor]) -> Callable[..., Any]:
    def run(*inputs: torch.Tensor) -> Any:
        result = fn(*inputs)
        given = None if result.dim() == 0 else torch.ones_like(result)
        return torch.autograd.grad(result, leaves, given, allow_unused=True)

    return run


def check_meaning(case: Case) -> None:
    """The mask form and the one by hand agree in eager mode, whatever is hidden."""
    for share in (0.5, 0.0, 1.0):
        torch.manual_seed(1)
        first, second, m = case.inputs(40 * CLASSES, share)
        hidden = ~m.view(-1, *[1] * (first.dim() - 1))
        bad = [
            first.masked_fill(hidden, float("nan")),
            second.masked_fill(~m, float("inf") if second.is_floating_point() else 1000),
        ]
        found = []
        for f in (case.masked, case.by_hand):
            leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in bad]
            result = f(*leaves, m)
            wanted = [x for x in leaves if x.requires_grad]
            found.append([result, *torch.autograd.grad(result.sum(), wanted, allow_unused=True)])
        torch.testing.assert_close(*([None if y is None else y.detach() for y in one] for one in found), equal_nan=True)
