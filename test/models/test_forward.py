"""Each model, compiled once, equals eager at every one of its shapes; and it is compiled once.

The whole table of first shapes is `bench/graphs.py`; here each model starts from one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from symshape.tools.measure import Graphs, relative_error
from symshape.tools.zoo import MODELS, Model, Shape, Size

TOLERANCE = 1e-4
# Every model starts from another row of its table, so that all five are seen: equal sizes are the second.
FIRST = {"bert": 1, "gpt2": 0, "t5": 1, "llama": 2, "vit": 3, "resnet": 4}
# Graphs without sizes of 1 (the full models), and with them (the tiny ones): what `aot_eager` needs. `bench/graphs.py`
# compares the two backends side by side, which takes half an hour.
GRAPHS = {"bert": (1, 4), "gpt2": (1, 4), "t5": (1, 6), "llama": (1, 4), "vit": (1, 6), "resnet": (4, 8)}


def _count(compiled: Callable[[Any], Any], model: Model, size: Size, shapes: tuple[Shape, ...]) -> Graphs:
    """Graphs and graph breaks over ``shapes``, and no wrong result among them."""
    module, wrong = model.build(size), {}
    with Graphs() as graphs, torch.no_grad():
        ours = compiled(module)
        for shape in shapes:
            inputs = model.inputs(shape, seed=sum(shape))
            error = relative_error(ours(**inputs), module(**inputs))
            if not error <= TOLERANCE:
                wrong[model.describe(shape)] = error
    assert not wrong
    return graphs


def _some(*often: str) -> Any:
    """Parameters: each model is either full or tiny in the usual run; the other one is long."""
    return [model if name in often else pytest.param(model, marks=pytest.mark.long) for name, model in MODELS.items()]


@pytest.mark.parametrize("model", _some("bert", "gpt2", "t5"), ids=MODELS)
def test_equals_eager_in_one_graph(model: Model, compiled: Callable[[Any], Any]) -> None:
    """The full model is right at 20 shapes and more, and one graph serves those without a size of 1."""
    shapes = (model.first_shapes[FIRST[model.name]], *model.large_shapes)
    graphs = _count(compiled, model, "full", shapes)
    # The image of a convolution network meets conditions of its own (padding, pooling).
    assert graphs.graphs <= GRAPHS[model.name][0]
    assert not graphs.breaks


@pytest.mark.parametrize("model", _some("llama", "vit", "resnet"), ids=MODELS)
def test_sizes_of_one_cost_no_more_graphs_than_the_framework(model: Model, compiled: Callable[[Any], Any]) -> None:
    """All shapes, at the tiny size: how wide or deep a model is changes neither graphs nor kernels."""
    shapes = (model.first_shapes[FIRST[model.name]], *model.shapes)
    graphs = _count(compiled, model, "tiny", shapes)
    assert graphs.graphs <= GRAPHS[model.name][1]
    assert not graphs.breaks


@pytest.mark.parametrize("name", MODELS)
def test_shapes_are_as_promised(name: str) -> None:
    """The table itself: 20 shapes or more with the awkward ones among them, five first shapes of 2 or more."""
    model = MODELS[name]
    assert len(set(model.shapes)) == len(model.shapes) >= 20
    assert any(shape[0] == 1 for shape in model.shapes) and any(1 in shape[1:] for shape in model.shapes)
    assert any(len(set(shape)) == 1 for shape in model.large_shapes)
    assert len(set(model.first_shapes)) == 5 and all(min(shape) >= 2 for shape in model.first_shapes)
    assert any(len(set(shape)) == 1 for shape in model.first_shapes)
    assert all(tensor.is_contiguous() for tensor in model.inputs(model.first_shapes[0]).values())
