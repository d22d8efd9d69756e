"""What training loops do around a compiled model: each parameter after a few steps is eager's."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.checkpoint import checkpoint

import symshape


class Mlp(nn.Module):
    def __init__(self, checkpointed: bool = False, dropped: float = 0.0) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 16), nn.LayerNorm(16), nn.Linear(16, 3)
        self.checkpointed, self.dropped = checkpointed, dropped

    def hidden(self, x: Tensor) -> Tensor:
        return F.dropout(F.gelu(self.norm(self.first(x))), self.dropped, self.training)

    def forward(self, x: Tensor) -> Tensor:
        x = checkpoint(self.hidden, x, use_reentrant=False) if self.checkpointed else self.hidden(x)
        return self.last(x)


Batch = tuple[Tensor, Tensor]


def batches(*sizes: int) -> Iterator[Batch]:
    draws = torch.Generator().manual_seed(1)
    for size in sizes:
        yield torch.randn(size, 6, generator=draws), torch.randint(0, 3, (size,), generator=draws)


def models(make: Callable[[], nn.Module] = Mlp) -> tuple[nn.Module, nn.Module]:
    ours = make()
    return ours, copy.deepcopy(ours)


def assert_same_parameters(ours: nn.Module, theirs: nn.Module) -> None:
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters()):
        torch.testing.assert_close(a, b, msg=lambda text, name=name: f"{name}: {text}")


def both(train: Callable[[nn.Module, Any], Any], make: Callable[[], nn.Module] = Mlp) -> None:
    """``train(module, forward)`` for a module and its compiled forward, and for its copy in eager mode."""
    ours, theirs = models(make)
    actual, expected = train(ours, symshape.compile(ours)), train(theirs, theirs)
    torch.testing.assert_close(actual, expected)
    assert_same_parameters(ours, theirs)


@pytest.mark.parametrize("to_none", [True, pytest.param(False, marks=pytest.mark.long)])
def test_gradients_are_accumulated_and_clipped(to_none: bool) -> None:
    def train(module: nn.Module, forward: Any) -> list[float]:
        optimizer, norms = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9), []
        optimizer.zero_grad(set_to_none=to_none)
        for i, (x, y) in enumerate(batches(4, 7, 1, 4, 13, 2)):
            (F.cross_entropy(forward(x), y) / 2).backward()
            if i % 2:
                norms.append(nn.utils.clip_grad_norm_(module.parameters(), 0.1).item())
                nn.utils.clip_grad_value_(module.parameters(), 0.05)
                optimizer.step()
                optimizer.zero_grad(set_to_none=to_none)
        return norms

    both(train)


@pytest.mark.long
def test_accumulation_and_clipping_inside_a_compiled_step() -> None:
    """The loss, the backward pass and clipping are what is compiled, not the model."""
    ours, theirs = models()

    def losses(module: nn.Module, compiled: bool) -> list[float]:
        optimizer = torch.optim.AdamW(module.parameters(), lr=0.05)

        def loss_of(x: Tensor, y: Tensor) -> Tensor:
            return F.cross_entropy(module(x), y, label_smoothing=0.1)

        def clip() -> Tensor:
            return nn.utils.clip_grad_norm_(module.parameters(), 0.1)

        if compiled:
            loss_of, clip = symshape.compile(loss_of), symshape.compile(clip)
        found = []
        for x, y in batches(4, 7, 1, 4):
            loss = loss_of(x, y)
            loss.backward()
            found += [loss.item(), clip().item()]
            optimizer.step()
            optimizer.zero_grad()
        return found

    assert losses(ours, True) == pytest.approx(losses(theirs, False), rel=1e-4)
    assert_same_parameters(ours, theirs)


@pytest.mark.parametrize("inside", [False, pytest.param(True, marks=pytest.mark.long)])
def test_autocast_and_grad_scaler(inside: bool) -> None:
    """``inside``: autocast is part of what is compiled."""

    def train(module: nn.Module, forward: Any) -> list[float]:
        def loss_of(x: Tensor, y: Tensor) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                output = (module if inside else forward)(x)
                assert output.dtype == torch.bfloat16
                return F.cross_entropy(output, y)

        if inside and forward is not module:
            loss_of = symshape.compile(loss_of)
        optimizer, scaler = torch.optim.AdamW(module.parameters(), lr=0.01), torch.amp.GradScaler("cpu")
        losses = []
        for x, y in batches(4, 7, 1, 4):
            optimizer.zero_grad()
            loss = loss_of(x, y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
        return losses

    ours, theirs = models()
    # A step of Adam has the size lr whatever the gradient's, and a gradient near zero may take either sign.
    actual, expected = train(ours, symshape.compile(ours)), train(theirs, theirs)
    assert actual == pytest.approx(expected, rel=2e-2)


@pytest.mark.parametrize("dropped", [0.5, pytest.param(0.0, marks=pytest.mark.long)])
def test_checkpointed_layers(dropped: float) -> None:
    """What is dropped is dropped again where the layer is computed once more for the gradient."""

    def train(module: nn.Module, forward: Any) -> list[float]:
        torch.manual_seed(0)
        optimizer, losses = torch.optim.SGD(module.parameters(), lr=0.1), []
        for x, y in batches(4, 7, 1):
            loss = F.cross_entropy(forward(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return losses

    both(train, lambda: Mlp(checkpointed=True, dropped=dropped))


def _ema(averaged: nn.Module, model: nn.Module) -> None:
    with torch.no_grad():
        for a, p in zip(averaged.parameters(), model.parameters()):
            a.lerp_(p, 0.5)


@pytest.mark.parametrize(
    "kind",
    [
        "deepcopy",
        pytest.param("averaged model", marks=pytest.mark.long),
        pytest.param("averaged, as exponential", marks=pytest.mark.long),
    ],
)
def test_moving_averages_of_a_compiled_model(kind: str) -> None:
    """The average is a model of its own, made from the compiled one, and is run too."""
    make: dict[str, Callable[[nn.Module], Any]] = {
        "deepcopy": copy.deepcopy,
        "averaged model": AveragedModel,
        "averaged, as exponential": lambda m: AveragedModel(m, multi_avg_fn=get_ema_multi_avg_fn(0.5)),
    }

    def train(module: nn.Module, forward: Any) -> list[Tensor]:
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        averaged, outputs = make[kind](forward), []
        for x, y in batches(4, 7, 1):
            F.cross_entropy(forward(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
            _ema(averaged, forward) if kind == "deepcopy" else averaged.update_parameters(forward)
            with torch.no_grad():
                outputs.append(averaged(x))
        assert not any(a is p for a, p in zip(averaged.parameters(), module.parameters()))
        return outputs

    both(train)


@contextlib.contextmanager
def _frozen(module: nn.Module) -> Iterator[None]:
    module.requires_grad_(False)
    yield
    module.requires_grad_(True)


@pytest.mark.long
def test_layers_are_frozen_and_thawed() -> None:
    def train(module: Any, forward: Any) -> list[bool]:
        optimizer, had = torch.optim.SGD(module.parameters(), lr=0.1), []
        for frozen in (module.first, module.norm, module.last):
            with _frozen(frozen):
                for x, y in batches(4, 7):
                    F.cross_entropy(forward(x), y).backward()
                had += [p.grad is None for p in module.parameters()]
                optimizer.step()
                optimizer.zero_grad()
        return had

    both(train)
