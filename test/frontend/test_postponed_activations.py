"""Convolution networks in eval mode with parameters that require gradients: activations are computed when asked for."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn as nn

import symshape
from symshape import traced_graphs
from symshape.frontend.importer.requirements import Requirements
from symshape.prover.numbers.condition import greater
from symshape.prover.numbers.expr import Expr
from symshape.runtime.postponed_activations import PostponedActivations

Forwards = list[bool]


def network(dropout: float = 0.0) -> nn.Sequential:
    made = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(dropout)),
        *(nn.Conv2d(8, 6, 3, 2, 1), nn.BatchNorm2d(6), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        nn.Linear(6, 4),
    )
    made(torch.randn(8, 3, 9, 9))  # batch norms have seen data
    return made.eval()


@pytest.fixture(autouse=True)
def no_earlier_graphs() -> None:
    """Networks of other tests share graphs, whose activations may be wanted already."""
    torch._dynamo.reset()


def called(model: Any, *shape: int) -> Any:
    """A first call runs the forward program, after which nobody asks for gradients."""
    model(torch.randn(shape or (2, 3, 4, 4)))
    return model


@pytest.fixture
def forwards(monkeypatch: pytest.MonkeyPatch) -> Forwards:
    """For each call of a program that may postpone its activations, whether it saved them."""
    found: Forwards = []
    forward, saving = PostponedActivations.forward, PostponedActivations._saving

    def recording(self: PostponedActivations, args: list[Any]) -> Any:
        found.append(False)
        return forward(self, args)

    def recording_saved(self: PostponedActivations, args: list[Any]) -> Any:
        found[-1] = True
        return saving(self, args)

    monkeypatch.setattr(PostponedActivations, "forward", recording)
    monkeypatch.setattr(PostponedActivations, "_saving", recording_saved)
    return found


def assert_same_gradients(model: nn.Module, other: nn.Module) -> None:
    for one, expected in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one.grad, expected.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("how", [symshape.compile, symshape.jit])
def test_results_and_gradients(how: Callable[[nn.Module], Any], forwards: Forwards) -> None:
    model = network()
    other, compiled = copy.deepcopy(model), how(model)
    x = torch.randn(2, 3, 8, 7)
    for shape in ((2, 3, 8, 7), (1, 3, 1, 1), (3, 3, 17, 4)):
        x = torch.randn(shape, requires_grad=True)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
    assert forwards == [True, False, False]
    for images in (x, x[:1], x.mT):
        mine, its = images.detach().clone().requires_grad_(), images.detach().clone().requires_grad_()
        result, expected = compiled(mine), other(its)
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
        for loss in (result.square().sum(), expected.square().sum()):
            loss.backward(retain_graph=True)
            loss.backward()
        torch.testing.assert_close(mine.grad, its.grad, rtol=1e-4, atol=1e-5)
        assert_same_gradients(model, other)
    assert forwards[3:5] == [False, True]  # and another layout may be another graph


def test_training_makes_no_second_program(forwards: Forwards) -> None:
    """With the layers in eval mode, as where batch norms are frozen."""
    model = network()
    other, compiled = copy.deepcopy(model), symshape.compile(model)
    for shape in ((2, 3, 5, 5), (1, 3, 8, 8), (3, 3, 2, 7)):
        x = torch.randn(shape)
        compiled(x).square().sum().backward()
        other(x).square().sum().backward()
        assert_same_gradients(model, other)
    assert forwards == [True] * 3


def _asks(env: Any) -> None:
    env.evaluate_expr(next(iter(env.var_to_range)) < 1000)


def _requires(env: Any) -> None:
    name = str(next(iter(env.var_to_range)))
    Requirements(env)(greater(1000, Expr.symbol(name)), "a test")


@pytest.mark.parametrize("takes_guard", [_asks, _requires])
def test_a_second_program_that_would_take_a_guard_is_not_made(
    takes_guard: Callable[[Any], None], forwards: Forwards, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The frame's guards are in force when it is made."""
    model = network()
    compiled = called(symshape.compile(model))
    compile_or_reuse = traced_graphs.compile_or_reuse

    def with_a_guard(gm: torch.fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
        takes_guard(traced_graphs.shape_env_of(gm))
        return compile_or_reuse(gm, *args, **kwargs)

    monkeypatch.setattr(traced_graphs, "compile_or_reuse", with_a_guard)
    for shape in ((2, 3, 5, 5), (1, 3, 8, 8)):
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
    assert forwards == [True] * 3


def test_of_several_calls_before_backward(forwards: Forwards) -> None:
    model = network()
    other, compiled = copy.deepcopy(model), called(symshape.compile(model))
    first, second = torch.randn(2, 3, 5, 5), torch.randn(1, 3, 8, 8)
    (compiled(first).sum() + compiled(second).square().sum()).backward()
    (other(first).sum() + other(second).square().sum()).backward()
    assert forwards == [True, False, False]
    assert_same_gradients(model, other)


def test_batched_tangents(forwards: Forwards) -> None:
    model = network()
    x = torch.randn(2, 3, 6, 6, requires_grad=True)
    compiled = called(symshape.compile(model))
    compiled(x)
    tangents = torch.randn(3, 2, 4)
    (found,) = torch.autograd.grad(compiled(x), x, tangents, is_grads_batched=True)
    (expected,) = torch.autograd.grad(model(x), x, tangents, is_grads_batched=True)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert not forwards[-1]


def test_hooks_of_saved_tensors() -> None:
    """They see what is saved: nothing is postponed."""
    model = network()
    other, compiled = copy.deepcopy(model), symshape.compile(model)
    x = torch.randn(2, 3, 8, 8)
    compiled(x)
    seen: list[int] = []

    def copied(one: torch.Tensor) -> torch.Tensor:
        seen.append(one.numel())
        return one.clone()

    with torch.autograd.graph.saved_tensors_hooks(copied, lambda one: one):
        result = compiled(x)
    assert max(seen) >= 2 * 8 * 8 * 8
    result.sum().backward()
    other(x).sum().backward()
    assert_same_gradients(model, other)


@pytest.mark.parametrize("how", ["setting", "context"])
def test_compiled_autograd(how: str) -> None:
    """It traces the backward graph with what was saved."""
    from torch._dynamo import compiled_autograd

    model = network()
    other, compiled = copy.deepcopy(model), symshape.compile(model)
    x = torch.randn(2, 3, 8, 8)
    compiled(x)
    enabled = compiled_autograd._enable(torch.compile(backend="eager"))
    if how == "setting":
        with torch._dynamo.config.patch(compiled_autograd=True):
            loss = compiled(x).sum()
        with enabled:
            loss.backward()
    else:
        with enabled:
            compiled(x).sum().backward()
    other(x).sum().backward()
    assert_same_gradients(model, other)


@pytest.mark.parametrize("changed", ["image", "bias of a norm"])
def test_changed_inputs_are_an_error(changed: str) -> None:
    model = network()
    compiled, x = called(symshape.compile(model)), torch.randn(2, 3, 8, 8)
    result = compiled(x)
    with torch.no_grad():
        (x if changed == "image" else model[1].bias).add_(1)  # type: ignore[operator]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def _trained() -> nn.Module:
    return network().train()


def _frozen_stem() -> nn.Module:
    """Eager mode saves no image, which may be written to before backward."""
    made = network()
    made[0].requires_grad_(False)
    made[1].requires_grad_(False)
    return made


def _without_norms() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))


def _with_draws() -> nn.Module:
    made = network(dropout=0.5)
    made[3].train()
    return made


@pytest.mark.parametrize("make", [_trained, _frozen_stem, _without_norms, _with_draws])
def test_what_is_not_postponed(make: Callable[[], nn.Module], forwards: Forwards) -> None:
    model = make()
    other, compiled = copy.deepcopy(model), symshape.compile(model, random="eager")
    x = torch.randn(4, 3, 8, 8)
    torch.manual_seed(0)
    result = compiled(x)
    torch.manual_seed(0)
    expected = other(x)
    result.square().sum().backward()
    expected.square().sum().backward()
    assert_same_gradients(model, other)
    assert not forwards


@pytest.mark.parametrize("name", ["postpone-activations", "pack-convolutions"])
def test_disabled(name: str, forwards: Forwards) -> None:
    model, x = network(), torch.randn(1, 3, 4, 4)
    found = symshape.compile(model, disable_passes=[name])(x)
    torch.testing.assert_close(found, model(x), rtol=1e-4, atol=1e-5)
    assert not forwards


def test_the_report_says_it() -> None:
    report = symshape.explain(network(), torch.randn(1, 3, 4, 4))
    assert "postpone-activations" in report.graphs[0].remarks
    assert not report.graphs[0].fallbacks
