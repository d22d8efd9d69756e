"""The models of the zoo at tiny size: forward and training against eager mode. Interpreted they take seconds each."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from gpu_machine import Machine, same
from trained_models import TRAINED, without_dropout

from symshape.tools.measure import relative_error, tensors_of
from symshape.tools.zoo import MODELS, Kwargs

pytestmark = pytest.mark.long
SOME_LARGER = 1  # of the shapes of the full size, on a GPU


def inputs_of(machine: Machine, name: str) -> list[Kwargs]:
    """At the tiny shapes, and on a GPU at one that is no multiple of anything."""
    model = TRAINED[name]
    larger = machine.pick((), model.first_shapes[2 : 2 + SOME_LARGER])
    return [machine.put(model.inputs(shape)) for shape in (*model.tiny_shapes, *larger)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", MODELS)
def test_forward(machine: Machine, name: str, dtype: torch.dtype) -> None:
    module = MODELS[name].build("tiny").to(machine.device)
    compiled = machine.compile(module)
    tolerance = 1e-4 if dtype == torch.float32 else 5e-2
    with torch.no_grad(), torch.autocast(machine.device, dtype, enabled=dtype != torch.float32):
        for given in inputs_of(machine, name):
            assert relative_error(compiled(**given), module(**given)) <= tolerance


def loss_of(output: Any) -> torch.Tensor:
    return torch.stack([(tensor.float() ** 2).mean() for tensor in tensors_of(output)]).sum()


@pytest.mark.parametrize("name", TRAINED)
def test_training(machine: Machine, name: str) -> None:
    """Losses and gradients of a step at each shape."""
    module = without_dropout(TRAINED[name].build("tiny")).to(machine.device)
    other = copy.deepcopy(module)
    compiled = machine.compile(module)
    for given in inputs_of(machine, name):
        found: list[list[torch.Tensor | None]] = []
        for run, own in ((compiled, module), (other, other)):
            own.zero_grad()
            loss = loss_of(run(**given))
            loss.backward()
            found.append([loss.detach(), *(p.grad for p in own.parameters())])
        assert [g is None for g in found[0]] == [g is None for g in found[1]]
        ours, theirs = ([g for g in one if g is not None] for one in found)
        same(ours[0], theirs[0], rtol=1e-4)
        largest = max(float(g.abs().max()) for g in theirs[1:])
        same(ours[1:], theirs[1:], rtol=1e-2, atol=1e-3 * largest)


def test_generation(machine: Machine) -> None:
    """Tokens of a decoder that is called with one more token each time."""
    model = MODELS["llama"]
    module = model.build("tiny").to(machine.device)
    compiled = machine.compile(module)
    with torch.no_grad():
        own = other = machine.put(model.inputs((2, 3))["input_ids"])
        for _ in range(machine.pick(2, 20)):
            own, other = (
                torch.cat([ids, run(input_ids=ids).logits[:, -1:].argmax(-1)], 1)
                for ids, run in ((own, compiled), (other, module))
            )
    assert torch.equal(own, other)
