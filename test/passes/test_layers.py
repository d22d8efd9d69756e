"""Equal layers that are compiled as one: values and gradients are eager mode's, and programs those without folding."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import symshape
from symshape import compiler
from symshape.compiler import Compiled
from symshape.options import Options
from symshape.passes.framework.base import RunWithout
from symshape.passes.layers import unfold_layers

WIDTH, LAYERS = 8, 9
SIZES = (5, 1, 0, 33)
Weights = list[torch.Tensor]


def layer(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    normed = torch.nn.functional.layer_norm(x, (WIDTH,))
    return x + torch.relu(normed @ weight)


def residual(x: torch.Tensor, weights: Weights) -> Any:
    for weight in weights:
        x = layer(x, weight)
    return x * 2


def all_states(x: torch.Tensor, weights: Weights) -> Any:
    """Each layer returns something that is computed together with the next one."""
    states = [x := layer(x, weight) for weight in weights]
    return states


def two_streams(x: torch.Tensor, weights: Weights) -> Any:
    """A layer uses what the one before the last computes."""
    a, b = x + 1, x - 1
    for weight in weights:
        a, b = b, a + torch.relu(b @ weight).sin()
    return a, b


def mask_for_all(x: torch.Tensor, weights: Weights) -> Any:
    """A value from before the layers is used in each of them."""
    mask = torch.cumsum(x, 0) > 0
    for weight in weights:
        x = torch.where(mask, layer(x, weight), x)
    return x


def first_state_for_all(x: torch.Tensor, weights: Weights) -> Any:
    """What the first layer computes is used by all others."""
    first = layer(x, weights[0]) @ weights[1]
    for weight in weights[2:]:
        x = layer(x, weight) + first
    return x


def used_again(x: torch.Tensor, weights: Weights) -> Any:
    """The weight of one layer is used elsewhere, too."""
    return residual(x, weights) @ weights[4]


def shared_weight(x: torch.Tensor, weights: Weights) -> Any:
    """One weight for several of the layers, which others have of their own."""
    return residual(x, [*weights[:4], weights[1], weights[1], *weights[4:]])


def one_is_different(x: torch.Tensor, weights: Weights) -> Any:
    """A layer in the middle does something else."""
    for number, weight in enumerate([*weights, *weights]):
        x = layer(x, weight) if number != LAYERS else torch.tanh(x @ weight)
    return x


def middle_is_returned(x: torch.Tensor, weights: Weights) -> Any:
    """Something after the layers uses what one in the middle computes."""
    states = all_states(x, weights)
    return states[-1] + states[4].exp()


def alternating(x: torch.Tensor, weights: Weights) -> Any:
    """Two layers are one period."""
    for first, second in zip([*weights, *weights], [*weights[1:], *weights, weights[0]], strict=True):
        x = torch.sigmoid(layer(x, first) @ second).cos()
    return x


def dropout(x: torch.Tensor, weights: Weights) -> Any:
    """Numbers are drawn in the order of the layers, once in each."""
    for weight in weights:
        x = torch.nn.functional.dropout(layer(x, weight), 0.5)
    return x


def random_numbers(x: torch.Tensor, weights: Weights) -> Any:
    """They are drawn in two places of a layer, between which those of another one would be drawn."""
    for weight in weights:
        x = torch.nn.functional.dropout(layer(x, weight), 0.5) @ weight + torch.rand_like(x)
    return x


FOLDED = {f.__name__: f for f in (residual, all_states, mask_for_all)}
OTHERS = {
    f.__name__: f
    for f in (
        random_numbers,
        two_streams,
        first_state_for_all,
        shared_weight,
        one_is_different,
        middle_is_returned,
        alternating,
    )
}


class Compiles:
    """The compiles of a test: each graph as it is, and without folding."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pairs: list[tuple[Compiled, Compiled]] = []
        compile_graph = compiler.compile_graph

        def both(gm: torch.fx.GraphModule, options: Options, **kwargs: Any) -> Any:
            compiled = compile_graph(gm, options, **kwargs)
            without = dataclasses.replace(options, disable_passes=(*options.disable_passes, "fold-layers"))
            plain = compile_graph(gm, without, **kwargs)
            assert isinstance(compiled, Compiled) and isinstance(plain, Compiled)
            self.pairs.append((compiled, plain))
            return compiled

        monkeypatch.setattr(compiler, "compile_graph", both)
        monkeypatch.setenv("SYMSHAPE_CACHE", "0")
        torch._dynamo.reset()

    @property
    def folded(self) -> list[int]:
        """Layers left out, by graph."""
        return [compiled.report.statistics.get("fold-layers", {}).get("layers", 0) for compiled, _ in self.pairs]

    @property
    def unfolded(self) -> list[int]:
        """Operations copied, by graph."""
        return [compiled.report.statistics["unfold-layers"]["operations"] for compiled, _ in self.pairs]


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> Compiles:
    return Compiles(monkeypatch)


def weights_of(seed: int, count: int = LAYERS) -> Weights:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(WIDTH, WIDTH, generator=generator) / 4 for _ in range(count)]


def check(function: Callable[..., Any], compiled: Callable[..., Any], weights: Weights) -> None:
    for size in SIZES:
        x = torch.randn(size, WIDTH)
        results = []
        for f in (function, compiled):
            torch.manual_seed(size)
            found = f(x, weights)
            results.append(found if isinstance(found, (list, tuple)) else [found])
        assert len(results[0]) == len(results[1])
        for expected, actual in zip(*results, strict=True):
            torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", [*FOLDED, *OTHERS])
def test_values_are_those_of_eager_and_programs_those_of_all_layers(name: str, compiles: Compiles) -> None:
    function = (FOLDED | OTHERS)[name]
    check(function, symshape.compile(function), weights_of(1))
    if name in FOLDED:
        assert min(compiles.folded[0], compiles.unfolded[0]) > 0
    for compiled, plain in compiles.pairs:
        assert not compiled.report.fallbacks
        assert compiled.program.source == plain.program.source
        assert compiled.program.user_lines == plain.program.user_lines
        assert compiled.kernels.object_code == plain.kernels.object_code


@pytest.mark.parametrize("function", [residual, mask_for_all, dropout])
def test_gradients_are_those_of_eager(function: Callable[..., Any], compiles: Compiles) -> None:
    compiled = symshape.compile(function)
    for size in (5, 33):
        x = torch.randn(size, WIDTH)
        gradients = []
        for f in (function, compiled):
            leaves = [w.clone().requires_grad_() for w in [x, *weights_of(2)]]
            torch.manual_seed(size)
            found = f(leaves[0], leaves[1:])
            sum(one.square().sum() for one in (found if isinstance(found, tuple) else (found,))).backward()
            gradients.append([leaf.grad for leaf in leaves])
        for expected, actual in zip(*gradients, strict=True):
            torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-3)
    assert len(compiles.folded) == 2 and min(compiles.folded) > 0 and min(compiles.unfolded) > 0


def test_layers_whose_weights_are_laid_out_differently(compiles: Compiles) -> None:
    """They are no equal layers: a product is another call, and a kernel reads other addresses."""

    def function(x: torch.Tensor, weights: Weights) -> Any:
        for weight in weights:
            x = torch.relu(x @ weight) + weight.sum(0)
        return x

    weights = [w.t() if number in (5, 6) else w for number, w in enumerate(weights_of(3, 16))]
    check(function, symshape.compile(function), weights)
    assert all(compiled.program.source == plain.program.source for compiled, plain in compiles.pairs)


def test_modules(compiles: Compiles) -> None:
    torch.manual_seed(0)
    block = nn.TransformerEncoderLayer(WIDTH, 2, 16, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(block, 8, enable_nested_tensor=False)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    compiled = symshape.compile(model)
    with torch.no_grad():
        for shape in ((2, 5), (1, 1), (3, 13)):
            x = torch.randn(*shape, WIDTH)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
    assert min(compiles.folded) > 0 and min(compiles.unfolded) > 0


def test_layers_that_come_out_differently_are_all_compiled(compiles: Compiles, monkeypatch: pytest.MonkeyPatch) -> None:
    def differ(_: Any) -> None:
        raise RunWithout(("fold-layers", "unfold-layers"), "they differ")

    monkeypatch.setattr(unfold_layers._Unfolding, "_compare", differ)
    check(residual, symshape.compile(residual, strict=True), weights_of(1))
    for compiled, plain in compiles.pairs:
        assert not compiled.report.fallbacks
        assert compiled.program.source == plain.program.source


@pytest.mark.parametrize("name", ["fold-layers", "unfold-layers"])
def test_without_one_of_the_passes(name: str) -> None:
    torch._dynamo.reset()
    check(residual, symshape.compile(residual, disable_passes=[name]), weights_of(1))
