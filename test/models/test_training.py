"""Training against eager: loss and every gradient of a step, and the losses of 20 steps, compiled once."""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from trained_models import TRAINED, TRAINING_SHAPES, without_dropout

import symshape.backend
from symshape.tools.measure import Graphs, compile_for, relative_error, tensors_of
from symshape.tools.zoo import MODELS, Model, Shape, Size

TOLERANCE = 1e-3
# ResNet's batch normalisation in training mode wants more than one value per channel, at the last stage too.
SHAPES: dict[str, tuple[Shape, ...]] = {
    "bert": ((2, 8), (8, 8), (3, 7), (5, 33), (4, 64)),
    "resnet": ((2, 64, 64), (3, 97, 65), (4, 96, 64), (5, 65, 67), (2, 128, 70)),
}
# Softmax does not see a constant added to every key, so this gradient is zero in exact arithmetic, and rounding noise
# in both results: it is measured on the scale of the query's.
ZERO = "key.bias"


def _noise(a: torch.Tensor, b: torch.Tensor, label: str, reference: dict[str, torch.Tensor]) -> float:
    scale = reference[label.replace(ZERO, "query.bias")].abs().max()
    return float((a - b).abs().max() / scale)


def _step(module: torch.nn.Module, forward: Any, inputs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """The loss and the gradient of every parameter after one backward pass, and the buffers that it updated."""
    module.zero_grad(set_to_none=True)
    output = tensors_of(forward(**inputs))
    loss = sum((tensor.float() ** 2).mean() for tensor in output)
    assert isinstance(loss, torch.Tensor)
    loss.backward()
    gradients = [p.grad.clone() for p in module.parameters() if p.grad is not None]
    buffers = [buffer.clone() for name, buffer in module.named_buffers() if "running" in name]
    return [loss.detach().clone(), *gradients, *buffers]


def _names(module: torch.nn.Module) -> list[str]:
    with_gradient = [name for name, p in module.named_parameters() if p.grad is not None]
    return ["loss", *with_gradient, *(name for name, _ in module.named_buffers() if "running" in name)]


def _build(model: Model, size: Size = "full") -> torch.nn.Module:
    return without_dropout(model.build(size))


@pytest.mark.parametrize("size", ["tiny", pytest.param("full", marks=pytest.mark.long)])
@pytest.mark.parametrize("name", SHAPES)
def test_gradients_equal_eager(name: str, size: Size, compiled: Callable[[Any], Any]) -> None:
    model, wrong = MODELS[name], {}
    ours, theirs = _build(model, size), _build(model, size)
    with Graphs():
        forward = compiled(ours)
        for shape in SHAPES[name]:
            inputs = model.inputs(shape, seed=sum(shape))
            actual, expected = _step(ours, forward, inputs), _step(theirs, theirs, inputs)
            assert _names(ours) == _names(theirs)
            reference = dict(zip(_names(theirs), expected, strict=True))
            for label, a, b in zip(_names(theirs), actual, expected, strict=True):
                error = relative_error(a, b) if not label.endswith(ZERO) else _noise(a, b, label, reference)
                if not error <= TOLERANCE:
                    wrong[f"{label} at {model.describe(shape)}"] = error
    assert not wrong


def test_a_training_loop_learns_like_eager(compiled: Callable[[Any], Any]) -> None:
    """Five steps of an optimizer at five lengths: parameters are mutated between calls of one compiled graph."""
    model, losses = MODELS["bert"], []
    for wrap in (compiled, lambda module: module):
        module = _build(model, "tiny")
        forward, optimizer = wrap(module), torch.optim.SGD(module.parameters(), lr=1e-2)
        for shape in SHAPES["bert"]:
            step = _step(module, forward, model.inputs(shape))
            optimizer.step()
            losses.append(step[0].item())
    count = len(SHAPES["bert"])
    assert losses[:count] == pytest.approx(losses[count:], rel=TOLERANCE)


@pytest.mark.parametrize("outputs", [1, 3])
def test_few_rows_and_few_outputs_are_no_case(outputs: int, compiled: Callable[[Any], Any]) -> None:
    """Of the product of a gradient and a narrow weight, Inductor's decomposition asks whether it is small."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.GELU(), torch.nn.Linear(4, outputs))
    with Graphs() as graphs:
        forward = compiled(module)
        for rows in (2, 7, 130, 16, 17):
            inputs = {"input": torch.randn(rows, 8)}
            for actual, expected in zip(_step(module, forward, inputs), _step(module, module, inputs), strict=True):
                torch.testing.assert_close(actual, expected)
    assert graphs.graphs == 1


STEPS = 20
IMAGES = ("resnet", "unet")  # whose sizes meet conditions of padding and pooling
QUICK = ("dlrm", "unet")


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.long) for n in TRAINED])
def test_twenty_steps(name: str, backend: str, compiled: Callable[[Any], Any]) -> None:
    """The loss of each step, over five shapes, is eager's; one graph forward and one backward serve them all."""
    model = TRAINED[name]
    most = 1 if name not in IMAGES else _train(model, functools.partial(compile_for, "eager"))[1]
    losses, graphs, kinds = _train(model, compiled)
    expected, _, _ = _train(model, lambda module: module)
    assert losses == pytest.approx(expected, rel=TOLERANCE)
    assert graphs <= most
    assert backend != "symshape" or kinds == Counter(forward=graphs, backward=graphs)


def _train(model: Model, wrap: Callable[[Any], Any]) -> tuple[list[float], int, Counter[str]]:
    """Losses, graphs of Dynamo, and graphs that symshape compiled, by kind."""
    module = _build(model, "tiny")
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3, momentum=0.9)
    losses, shapes = [], TRAINING_SHAPES[model.name]
    with Graphs() as graphs, counted() as kinds:
        forward = wrap(module)
        for step in range(STEPS):
            inputs = model.inputs(shapes[step % len(shapes)], seed=step)
            optimizer.zero_grad(set_to_none=True)
            loss = sum((tensor.float() ** 2).mean() for tensor in tensors_of(forward(**inputs)))
            assert isinstance(loss, torch.Tensor)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses, graphs.graphs, kinds


@contextlib.contextmanager
def counted() -> Iterator[Counter[str]]:
    """Graphs that symshape compiles, by kind."""
    kinds: Counter[str] = Counter()
    compile_graph = symshape.backend.compile_traced

    def counting(gm: Any, options: Any, *, kind: str = "forward", **more: Any) -> Any:
        kinds[kind] += 1
        return compile_graph(gm, options, kind=kind, **more)

    with mock.patch.object(symshape.backend, "compile_traced", counting):
        yield kinds
