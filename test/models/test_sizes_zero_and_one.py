"""The models at sizes 0, 1 and more, whichever comes first: as many graphs as their Python code takes paths."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from size_oracle import graphs_needed
from torch._dynamo.utils import counters

import symshape
from symshape.tools.zoo import MODELS, Model

SIZES = (2, 3, 17, 1, 0)
USUAL = {"bert": (4, 5), "gpt2": (4, 5), "llama": (4, 5), "t5": (4, 5, 6), "vit": (4, 3, 2), "resnet": (2, 20, 24)}
DIMS = [(name, dim) for name, model in MODELS.items() for dim in range(len(model.axes))]
FAST = [("bert", 1, 1), ("resnet", 0, 0)]
ALL = [(name, dim, first) for name, dim in DIMS for first in SIZES]


def shape_of(name: str, dim: int, size: int) -> tuple[int, ...]:
    usual = USUAL[name]
    return (*usual[:dim], size, *usual[dim + 1 :])


def allowed(model: Model, call: Any, dim: int) -> dict[int, Any]:
    """What eager mode gives at the sizes that it allows."""
    found = {}
    for size in SIZES:
        try:
            found[size] = call(**model.inputs(shape_of(model.name, dim, size)))
        except RuntimeError:  # nothing is divided among heads, or covered by a filter
            assert size == 0 or model.name == "resnet"
    return found


def check(name: str, dim: int, first: int) -> None:
    model = MODELS[name]
    module = model.build("tiny")

    def call(**inputs: torch.Tensor) -> list[torch.Tensor]:
        return [x for x in torch.utils._pytree.tree_leaves(dict(module(**inputs))) if isinstance(x, torch.Tensor)]

    with torch.no_grad():
        expected = allowed(model, call, dim)
        if first not in expected:
            pytest.skip("eager mode refuses it")
        torch._dynamo.reset()
        counters.clear()
        compiled = symshape.compile(call)
        for size in (first, *(n for n in SIZES if n != first)):
            inputs = model.inputs(shape_of(name, dim, size))
            if size in expected:
                torch.testing.assert_close(compiled(**inputs), expected[size], rtol=1e-3, atol=1e-4)
            else:
                with pytest.raises(RuntimeError):
                    compiled(**inputs)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.compiler, "is_compiling", lambda: True)  # transformers asks, and branches
            calls = [(model.inputs(shape_of(name, dim, size)),) for size in expected]
            needed = graphs_needed(lambda inputs: call(**inputs), calls)
    assert counters["stats"]["unique_graphs"] == needed


@pytest.mark.parametrize(("name", "dim", "first"), FAST)
def test_graphs(name: str, dim: int, first: int) -> None:
    check(name, dim, first)


@pytest.mark.long
@pytest.mark.parametrize(("name", "dim", "first"), [one for one in ALL if one not in FAST])
def test_graphs_of_all(name: str, dim: int, first: int) -> None:
    check(name, dim, first)
