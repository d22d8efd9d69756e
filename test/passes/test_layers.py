"""Equal layers that are compiled as one function: values and gradients are eager mode's, and the work is that of a
compile without it."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import symshape
from symshape import compiler
from symshape.compiler import Compiled
from symshape.options import Options

WIDTH, LAYERS = 8, 7
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


def chain_beside(x: torch.Tensor, weights: Weights) -> Any:
    """A second chain, which no product interrupts: it is one kernel, however many layers there are."""
    y = x * 0.5
    for weight in weights:
        x = layer(x, weight)
        y = torch.tanh(torch.sin(y) * 2 + 0.1) + 0.25 * y - 0.125
    return x, y


def counted(x: torch.Tensor, weights: Weights) -> Any:
    """A chain of integers, and one of half numbers."""
    n, h = torch.arange(x.shape[0]), x.half()
    for weight in weights:
        x = layer(x, weight)
        n = (n * 3 + 1) % 11
        h = h * 0.5 + x.half()
    return x, n, h


def mask_for_all(x: torch.Tensor, weights: Weights) -> Any:
    """A value from before the layers is used in each of them."""
    mask = torch.sort(x, 0).values > 0
    for weight in weights:
        x = torch.where(mask, layer(x, weight), x)
    return x


def bias_for_all(x: torch.Tensor, weights: Weights) -> Any:
    """What is cheap to compute is computed in each layer, and what is dear once."""
    light, heavy = x * 2 + 1, torch.sin(x).exp()
    for weight in weights:
        x = layer(x, weight) + light - heavy
    return x


def first_state_for_all(x: torch.Tensor, weights: Weights) -> Any:
    """What the first layer computes is used by all others."""
    first = layer(x, weights[0]) @ weights[1]
    for weight in weights[2:]:
        x = layer(x, weight) + first
    return x


def used_before(x: torch.Tensor, weights: Weights) -> Any:
    """The weight of one layer is used before the layers, and what comes of it after them."""
    p = weights[3][0].exp()
    return residual(x, weights) * p


def used_again(x: torch.Tensor, weights: Weights) -> Any:
    """The weight of one layer is used elsewhere, too."""
    return residual(x, weights) @ weights[4]


def shared_weight(x: torch.Tensor, weights: Weights) -> Any:
    """One weight for several of the layers, which others have of their own."""
    return residual(x, [*weights[:3], weights[1], weights[1], *weights[3:]])


def swapped_weights(x: torch.Tensor, weights: Weights) -> Any:
    """Layers use two weights, in another order every other time."""
    for number, weight in enumerate(weights):
        first, second = (weight, weights[0]) if number % 2 else (weights[0], weight)
        x = torch.relu(layer(x, first) @ second) - torch.sigmoid(x @ first)
    return x


def one_is_different(x: torch.Tensor, weights: Weights) -> Any:
    """A layer in the middle does something else."""
    for number, weight in enumerate([*weights, *weights]):
        x = layer(x, weight) if number != LAYERS else torch.tanh(x @ weight)
    return x


def one_has_another_number(x: torch.Tensor, weights: Weights) -> Any:
    """Layers whose constants differ are not equal."""
    for number, weight in enumerate(weights):
        x = layer(x, weight) * (0.5 if number == 4 else 0.75)
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


def views_between(x: torch.Tensor, weights: Weights) -> Any:
    """What goes from layer to layer is a view, and so is what is returned."""
    for weight in weights:
        x = torch.relu(x.t().contiguous().t() @ weight)[:, : WIDTH - 1]
        x = torch.cat([x, x[:, :1]], 1).t().reshape(WIDTH, -1).t()
    return x, x.t()


def lengths(x: torch.Tensor, weights: Weights) -> Any:
    """Numbers of sizes are part of the layers."""
    for weight in weights:
        x = layer(x, weight) * (1 / (x.shape[0] + 1)) + x.shape[0] % 3
    return x


def written_in_place(x: torch.Tensor, weights: Weights) -> Any:
    """A buffer is written between layers."""
    buffer = torch.zeros_like(x)
    for weight in weights:
        x = layer(x, weight)
        buffer[:, :2] += x[:, :2]
    return x, buffer


def dropout(x: torch.Tensor, weights: Weights) -> Any:
    """Numbers are drawn in the order of the layers, once in each."""
    for weight in weights:
        x = torch.nn.functional.dropout(layer(x, weight), 0.5)
    return x


def random_numbers(x: torch.Tensor, weights: Weights) -> Any:
    """They are drawn in two places of a layer."""
    for weight in weights:
        x = torch.nn.functional.dropout(layer(x, weight), 0.5) @ weight + torch.rand_like(x)
    return x


OUTLINED = (residual, all_states, mask_for_all, bias_for_all, first_state_for_all, used_before, used_again, lengths)
OTHERS = (
    *(random_numbers, dropout, two_streams, chain_beside, counted, shared_weight, swapped_weights, one_is_different),
    *(one_has_another_number, middle_is_returned, alternating, views_between, written_in_place),
)


class Compiles:
    """The compiles of a test: each graph as it is, and with every layer by itself."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pairs: list[tuple[Compiled, Compiled]] = []
        compile_graph = compiler.compile_graph

        def both(gm: torch.fx.GraphModule, options: Options, **kwargs: Any) -> Any:
            compiled = compile_graph(gm, options, **kwargs)
            without = dataclasses.replace(options, disable_passes=(*options.disable_passes, "outline-layers"))
            plain = compile_graph(gm, without, **kwargs)
            assert isinstance(compiled, Compiled) and isinstance(plain, Compiled)
            self.pairs.append((compiled, plain))
            return compiled

        monkeypatch.setattr(compiler, "compile_graph", both)
        monkeypatch.setenv("SYMSHAPE_CACHE", "0")
        torch._dynamo.reset()

    @property
    def outlined(self) -> list[int]:
        """Layers that were calls, by graph."""
        return [compiled.report.statistics["outline-layers"]["layers"] for compiled, _ in self.pairs]

    def require_same_work(self) -> None:
        """The same kernels are launched as often, the same library calls made, and as much memory allocated."""
        for compiled, plain in self.pairs:
            assert not compiled.report.fallbacks
            assert work_of(compiled) == work_of(plain)


def work_of(compiled: Compiled) -> tuple[Counter[str], Counter[str], int]:
    text = {kernel.name: kernel.source.replace(kernel.name, "kernel") for kernel in compiled.report.kernels}
    launches = Counter(text[name] for name, _ in compiled.report.launched)
    calls = Counter(call.target for call in compiled.report.called)
    return launches, calls, compiled.report.statistics["reuse-buffers"]["allocated"]


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> Compiles:
    return Compiles(monkeypatch)


def weights_of(seed: int, count: int = LAYERS) -> Weights:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(WIDTH, WIDTH, generator=generator) / 4 for _ in range(count)]


def check(function: Callable[..., Any], compiled: Callable[..., Any], weights: Weights, sizes: Any = SIZES) -> None:
    for size in sizes:
        x = torch.randn(size, WIDTH)
        results = []
        for f in (function, compiled):
            torch.manual_seed(size)
            found = f(x, weights)
            results.append(found if isinstance(found, (list, tuple)) else [found])
        assert len(results[0]) == len(results[1])
        for expected, actual in zip(*results, strict=True):
            tolerance = 2e-3 if expected.dtype == torch.float16 else 1e-4  # two roundings
            torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.sample(5)
@pytest.mark.parametrize("function", [*OUTLINED, *OTHERS])
def test_values_are_those_of_eager(function: Callable[..., Any], compiles: Compiles) -> None:
    check(function, symshape.compile(function), weights_of(1))
    if function in OUTLINED:
        assert compiles.outlined[0] >= LAYERS // 2
        compiles.require_same_work()


@pytest.mark.sample(2)
@pytest.mark.parametrize("function", [residual, mask_for_all, dropout, bias_for_all, chain_beside])
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
    assert len(compiles.outlined) == 2
    if function in OUTLINED:
        assert min(compiles.outlined) > 0


def test_what_is_one_kernel_stays_one(compiles: Compiles) -> None:
    """Nothing is outlined where a kernel computes something of all layers."""
    check(chain_beside, symshape.compile(chain_beside), weights_of(1), (5,))
    compiles.require_same_work()


def test_layers_whose_weights_are_laid_out_differently(compiles: Compiles) -> None:
    """They are no equal layers: a product is another call, and a kernel reads other addresses."""

    def function(x: torch.Tensor, weights: Weights) -> Any:
        for weight in weights:
            x = torch.relu(x @ weight) + weight.sum(0)
        return x

    weights = [w.t() if number in (5, 6) else w for number, w in enumerate(weights_of(3, 16))]
    check(function, symshape.compile(function), weights)
    compiles.require_same_work()


def test_modules(compiles: Compiles) -> None:
    torch.manual_seed(0)
    block = nn.TransformerEncoderLayer(WIDTH, 2, 16, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(block, 5, enable_nested_tensor=False)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    compiled = symshape.compile(model)
    with torch.no_grad():
        for shape in ((2, 5), (1, 1), (3, 13)):
            x = torch.randn(*shape, WIDTH)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
    assert min(compiles.outlined) > 0
    compiles.require_same_work()


def test_errors_show_the_line_of_their_layer() -> None:
    """An index that is out of range in one of the layers only."""
    torch._dynamo.reset()

    def function(x: torch.Tensor, table: torch.Tensor, indices: list[torch.Tensor]) -> Any:
        for index in indices:
            x = torch.relu(torch.nn.functional.layer_norm(x, (WIDTH,)) @ table) + table[index] * 2
        return x

    x, table = torch.randn(4, WIDTH), torch.randn(WIDTH, WIDTH)
    indices = [torch.randint(0, WIDTH, (4,)) for _ in range(LAYERS)]
    compiled = symshape.compile(function, options={"strict": True})
    torch.testing.assert_close(compiled(x, table, indices), function(x, table, indices))
    indices[3] = torch.tensor([0, 1, WIDTH, 2])
    with pytest.raises(IndexError, match="test_layers.py"):
        compiled(x, table, indices)


@pytest.mark.parametrize("name", ["outline-layers", "inline-layers"])
def test_without_one_of_the_passes(name: str) -> None:
    torch._dynamo.reset()
    check(residual, symshape.compile(residual, options={"disable_passes": [name], "strict": True}), weights_of(1))


# --- random layers ---------------------------------------------------------------------------------------------------

_STEPS: list[Callable[..., torch.Tensor]] = [
    lambda a, b, w: a @ w,
    lambda a, b, w: torch.nn.functional.layer_norm(a, (WIDTH,)),
    lambda a, b, w: torch.softmax(a, -1),
    lambda a, b, w: a + b,
    lambda a, b, w: a * torch.sigmoid(b),
    lambda a, b, w: torch.relu(a),
    lambda a, b, w: torch.where(a > b, a, b * 0.5),
    lambda a, b, w: a - a.mean(0),
    lambda a, b, w: torch.cat([b[:, :3], a[:, 3:]], 1),
    lambda a, b, w: a.roll(1, 0) + w[0],
    lambda a, b, w: a.view(-1, 2, WIDTH // 2).transpose(1, 2).reshape(-1, WIDTH),
    lambda a, b, w: a + w.sum(0) * 0.1,
    lambda a, b, w: (a.t() @ b).tanh()[0] + a,
]


def random_layers(seed: int) -> Callable[..., Any]:
    """Layers of the same random steps over two or three values, which go from layer to layer."""
    rng = random.Random(seed)
    streams = rng.randint(1, 3)
    steps = [
        (rng.choice(_STEPS), *(rng.randrange(streams + 1) for _ in range(2)), rng.randrange(streams))
        for _ in range(rng.randint(4, 9))
    ]
    returns_all = rng.random() < 0.3

    def function(x: torch.Tensor, weights: Weights) -> Any:
        extra = x * 0.5 + 1
        values = [x * (1 + 0.1 * i) for i in range(streams)]
        states = []
        for weight in weights:
            for step, a, b, to in steps:
                given = [*values, extra]
                values[to] = torch.tanh(step(given[a], given[b], weight)) if to else step(given[a], given[b], weight)
            if returns_all:
                states.append(values[0])
        return (*values, *states)

    return function


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(s, marks=pytest.mark.long) for s in range(6, 120))])
def test_random_layers(seed: int, compiles: Compiles) -> None:
    torch.manual_seed(seed)
    function = random_layers(seed)
    check(function, symshape.compile(function), weights_of(seed, 5), (5, 1, 16))
    for compiled, plain in compiles.pairs:
        assert not compiled.report.fallbacks and not plain.report.fallbacks
