"""One small model of many families of Hugging Face's transformers: forward and a training step, at several sizes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import symshape
from symshape.tools.measure import relative_error, tensors_of
from symshape.tools.transformers_configs import TRANSFORMERS


def step(model: nn.Module, forward: Any, given: dict[str, Tensor]) -> list[Tensor]:
    """Outputs, and gradients of the sum of their squares."""
    model.zero_grad()
    outputs = [t for t in tensors_of(forward(**given)) if t.is_floating_point()]
    loss = sum(((t.float() ** 2).mean() for t in outputs if t.requires_grad), torch.zeros(()))
    loss.backward()
    return [t.detach() for t in outputs] + [p.grad for p in model.parameters() if p.grad is not None]


@pytest.mark.long
@pytest.mark.parametrize("family", TRANSFORMERS)
def test_forward_and_training_step(family: str) -> None:
    model = TRANSFORMERS[family]
    theirs = model.build("tiny")
    ours = copy.deepcopy(theirs)
    forward = symshape.compile(ours)
    for given in map(model.inputs, model.tiny_shapes):
        with torch.no_grad():
            ours.eval(), theirs.eval()
            assert relative_error(forward(**given), theirs(**given)) < 1e-4
        ours.train(), theirs.train()
        _assert_close(step(ours, forward, given), step(theirs, theirs, given))


@pytest.mark.long
@pytest.mark.parametrize("family", ["gpt2", "llama", "bert", "t5"])
def test_training_with_gradient_checkpointing(family: str) -> None:
    model = TRANSFORMERS[family]
    theirs = model.build("tiny").train()
    ours = copy.deepcopy(theirs)
    for module in (ours, theirs):
        module.gradient_checkpointing_enable({"use_reentrant": False})
    forward = symshape.compile(ours)
    for given in map(model.inputs, model.tiny_shapes):
        _assert_close(step(ours, forward, given), step(theirs, theirs, given))


def _assert_close(actual: list[Tensor], expected: list[Tensor]) -> None:
    """Gradients that are zero in exact arithmetic are rounding noise in both."""
    scale = max(float(t.abs().max()) for t in expected)
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5 * max(scale, 1.0))
