"""``symshape.compile(optimizer.step)``: parameters after several steps under a schedule are those of eager mode."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn, optim

import symshape

STEPS = 4
OPTIMIZERS: dict[str, tuple[Callable[..., optim.Optimizer], dict[str, Any]]] = {
    "sgd": (optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    "adam": (optim.Adam, {"weight_decay": 0.1}),
    "adamw": (optim.AdamW, {"amsgrad": True}),
    "adagrad": (optim.Adagrad, {"lr_decay": 0.1}),
    "rmsprop": (optim.RMSprop, {"momentum": 0.9, "centered": True}),
    "adadelta": (optim.Adadelta, {}),
    "nadam": (optim.NAdam, {}),
    "radam": (optim.RAdam, {"decoupled_weight_decay": True, "weight_decay": 0.1}),
    "adamax": (optim.Adamax, {}),
    "asgd": (optim.ASGD, {}),
    "rprop": (optim.Rprop, {}),
}
# These multiply with `alpha=-lr`: Dynamo makes a constant of a float there, for every backend, and compiles at each
# rate. With the rate in a tensor it does not.
RATE_IS_ALPHA = ("sgd", "rmsprop", "adadelta")
FAST = [("adam", True), ("sgd", False)]


def _train(name: str, model: nn.Module, compiled: bool, rate: Any, **options: Any) -> None:
    make, more = OPTIMIZERS[name]
    optimizer = make(model.parameters(), lr=rate, **more, **options)
    schedule = optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
    step = symshape.compile(optimizer.step) if compiled else optimizer.step
    for i in range(STEPS):
        x = torch.randn(4 + i, 3, generator=torch.Generator().manual_seed(i))
        model(x).square().mean().backward()
        step()
        schedule.step()
        optimizer.zero_grad()


def _models() -> tuple[nn.Module, nn.Module]:
    ours = nn.Linear(3, 5)
    return ours, copy.deepcopy(ours)


def _assert_same(ours: nn.Module, theirs: nn.Module) -> None:
    for a, b in zip(ours.parameters(), theirs.parameters()):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    "name, foreach",
    [
        (name, foreach) if (name, foreach) in FAST else pytest.param(name, foreach, marks=pytest.mark.long)
        for name in OPTIMIZERS
        for foreach in (False, True)
    ],
)
def test_steps_under_a_schedule(name: str, foreach: bool, graphs: Callable[[], int]) -> None:
    ours, theirs = _models()
    _train(name, ours, True, 0.1, foreach=foreach)
    _train(name, theirs, False, 0.1, foreach=foreach)
    _assert_same(ours, theirs)
    assert graphs() <= (STEPS if name in RATE_IS_ALPHA else 1)


@pytest.mark.long
@pytest.mark.parametrize("name", [*RATE_IS_ALPHA, "adam"])
def test_a_rate_in_a_tensor_compiles_once(name: str, graphs: Callable[[], int]) -> None:
    ours, theirs = _models()
    _train(name, ours, True, torch.tensor(0.1), foreach=False)
    _train(name, theirs, False, torch.tensor(0.1), foreach=False)
    _assert_same(ours, theirs)
    assert graphs() == (2 if name == "sgd" else 1)  # the first step of SGD has no momentum yet


LISTS: tuple[Callable[[list[Tensor], list[Tensor]], Any], ...] = (
    lambda a, b: torch._foreach_add(a, b, alpha=2),
    lambda a, b: torch._foreach_add(a, [0.5, 2]),
    lambda a, b: torch._foreach_add(a, 1.5),
    lambda a, b: torch._foreach_sub(a, b, alpha=3),
    lambda a, b: torch._foreach_mul(a, b[1].sum()),
    lambda a, b: torch._foreach_div(a, 3),
    lambda a, b: torch._foreach_addcmul(a, a, b, 0.5),
    lambda a, b: torch._foreach_addcdiv(a, b, b, [0.5, 2]),
    lambda a, b: torch._foreach_lerp(a, b, 0.25),
    lambda a, b: torch._foreach_lerp(a, b, b),
    lambda a, b: torch._foreach_pow(b, 2),
    lambda a, b: torch._foreach_pow(2.0, a),
    lambda a, b: torch._foreach_maximum(a, 0.1),
    lambda a, b: torch._foreach_minimum(a, b),
    lambda a, b: torch._foreach_norm(a),
    lambda a, b: torch._foreach_norm(a, 1),
    lambda a, b: torch._foreach_sqrt(b),
    lambda a, b: torch._foreach_sign(a),
    lambda a, b: torch._foreach_reciprocal(b),
)


def test_lists_of_tensors_are_taken_apart() -> None:
    """``torch._foreach_*``: as in eager mode, and no list is a library call."""

    def program(a: list[Tensor], b: list[Tensor]) -> list[Any]:
        return [operation(a, b) for operation in LISTS]

    for rows in (3, 0, 1):
        a = [torch.randn(rows, 4), torch.randn(rows, 2)]
        b = [torch.rand(rows, 4) + 0.5, torch.rand(rows, 2) + 0.5]
        report = symshape.explain(program, a, b)
        torch.testing.assert_close(report.result, program(a, b))
        calls = [call for graph in report.graphs for call in graph.library_calls]
        assert not [call for call in calls if "foreach" in call]
