"""Equal layers of a Dynamo graph are traced once (``frontend/graph_rewrites/repeated_layers.py``): the graphs of all
layers, their gradients, draws and running statistics are those of eager mode."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import symshape
from symshape.frontend.bridge import traced_layers
from symshape.frontend.bridge.traced_layers import Layer

WIDTH, LAYERS = 8, 4
Loss = Callable[[Any], Tensor]


class Traces:
    """Counts the calls of layers that are traced operator by operator into a graph."""

    count = 0


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[Traces]:
    """No test here may need all layers to be traced, but where it says so by ``caplog.clear()``."""
    counted, run = Traces(), Layer.run

    def counting(layer: Layer, operands: Sequence[Any]) -> Any:
        counted.count += traced_layers.get_proxy_mode() is not None
        return run(layer, operands)

    monkeypatch.setattr(Layer, "run", counting)
    caplog.set_level(logging.INFO, logger="symshape.frames")
    yield counted
    assert "traced one by one" not in caplog.text


def sum_of_squares(y: Tensor) -> Tensor:
    return y.square().sum()


def step(call: Any, module: nn.Module, x: Tensor, loss: Loss, seed: int) -> list[Tensor | None]:
    """Results, gradients and buffers of a training step."""
    module.zero_grad()
    torch.manual_seed(seed)
    given = x.clone().requires_grad_()
    results = call(given)
    loss(results).backward()
    found = [*results] if isinstance(results, tuple) else [results]
    found += [given.grad, *(p.grad for p in module.parameters())]
    return [None if one is None else one.detach().clone() for one in (*found, *module.buffers())]


def assert_close(found: Sequence[Tensor | None], expected: Sequence[Tensor | None]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            largest = other.abs().max().item() if other.numel() and other.is_floating_point() else 0.0
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5 * max(largest, 1.0), check_stride=True)


def assert_equals_eager(
    module: nn.Module, *shapes: tuple[int, ...], loss: Loss = sum_of_squares, dynamic: bool | None = True
) -> None:
    torch._dynamo.reset()  # nor are floats inputs because they were others in another test
    eager = copy.deepcopy(module)
    compiled = torch.compile(module, backend="symshape", options={"strict": True}, dynamic=dynamic)
    for seed, shape in enumerate(shapes or ((2, 5, WIDTH), (3, 7, WIDTH), (1, 1, WIDTH))):
        x = torch.randn(shape)
        assert_close(step(compiled, module, x, loss, seed), step(eager, eager, x, loss, seed))


class Stack(nn.Module):
    """Equal layers, one after the other."""

    def __init__(self, make: Callable[[int], nn.Module], count: int = LAYERS) -> None:
        super().__init__()
        self.layers = nn.ModuleList(map(make, range(count)))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Attention(nn.Module):
    def __init__(self, p: float = 0.0) -> None:
        super().__init__()
        self.norm, self.project, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.drop = nn.Dropout(p)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(self.norm(x)).chunk(3, -1)
        return x + self.drop(self.out(F.softmax(q @ k.transpose(-1, -2), -1) @ v))


def test_one_of_many_layers_is_traced(traces: Traces) -> None:
    module = Stack(lambda i: Attention())
    assert_equals_eager(module)
    assert traces.count == 1
    with torch.no_grad():
        x = torch.randn(2, 3, WIDTH)
        compiled = torch.compile(module, backend="symshape", options={"strict": True})
        torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-5)
    assert traces.count == 2


def test_draws(traces: Traces) -> None:
    """Each layer draws its own numbers, those of eager mode."""
    assert_equals_eager(Stack(lambda i: Attention(0.3)), (2, 5, WIDTH), dynamic=None)
    assert traces.count == 1


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = (nn.Conv2d(4, 4, 3, padding=1, bias=False) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm2d(4) for _ in range(2))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norms[1](self.two(self.relu(self.norms[0](self.one(x)))))
        y += x
        return self.relu(y)


@pytest.mark.parametrize("training", [True, False])
def test_running_statistics(traces: Traces, training: bool) -> None:
    """Each layer writes to its own."""
    assert_equals_eager(Stack(lambda i: Residual()).train(training), (2, 4, 6, 6), (3, 4, 6, 6))
    assert traces.count == 1


class Counted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        with torch.no_grad():
            self.mean.mul_(0.9).add_(y.mean((0, 1)) * 0.1)
            self.calls += 1
        return torch.tanh(y - self.mean) * self.calls + x.cos()


@pytest.mark.parametrize("shared", [True, False])
def test_written_buffers(traces: Traces, shared: bool) -> None:
    """Also one that all layers write to."""
    module = Stack(lambda i: Counted())
    for layer in module.layers if shared else ():
        layer.mean = module.layers[0].mean
    assert_equals_eager(module)


class Scaled(nn.Module):
    def __init__(self, i: int) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH, eps=0.1 * (i + 1))
        self.scale = 0.5 * i

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.linear(self.norm(x) + self.scale) * self.scale) + torch.rsqrt(x.square() + self.scale + 1)
        return x + (y * 2 if self.scale > 0.6 else y * 3)


@pytest.mark.parametrize("dynamic", [True, None])
def test_floats_of_layers(traces: Traces, dynamic: bool | None) -> None:
    """Constants, or inputs of the graph, on which a guard may decide."""
    assert_equals_eager(Stack(Scaled), dynamic=dynamic)


class Signed(nn.Module):
    def __init__(self, i: int) -> None:
        super().__init__()
        self.zero = -0.0 if i % 2 else 0.0

    def forward(self, x: Tensor) -> Tensor:
        return torch.copysign(x.abs().sin().exp() + 1, torch.full_like(x, self.zero)).tanh() + x


def test_signed_zeros_are_different_constants(traces: Traces) -> None:
    assert_equals_eager(Stack(Signed))


class Results(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = self.one(x).tanh() + 1
        z = self.two(y).sigmoid() * 2
        return y * z + x, y / z, z > 1, z.argmax(-1)


class ManyResults(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Results() for _ in range(LAYERS))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        kept = []
        for i, layer in enumerate(self.layers):
            x, y, mask, index = layer(x)
            kept += [y] if i != 1 else []
            x = x * mask + index.unsqueeze(-1)
        x += 1  # a write to what a layer has returned
        return x, *kept


def test_results_without_gradients(traces: Traces) -> None:
    """Some results are read by nobody, have no gradient, or are of integers."""
    assert_equals_eager(ManyResults(), loss=lambda y: y[0].square().mean() + y[2].sum())
    assert traces.count > 0


class Viewing(nn.Module):
    """A result that is a view of another, and an operand that is written to."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = F.relu(x, inplace=True)
        y = torch.sigmoid(self.linear(x).tanh() + 1) + x
        return y, y.transpose(-1, -2)


class Views(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Viewing() for _ in range(LAYERS))

    def forward(self, x: Tensor) -> Tensor:
        x = x * 2
        for layer in self.layers:
            x, view = layer(x)
            view += 1
        return x


def test_shared_memory(traces: Traces) -> None:
    assert_equals_eager(Views())


def test_one_layer_called_often(traces: Traces) -> None:
    layer = Attention()
    assert_equals_eager(Stack(lambda i: layer), (2, 5, WIDTH), (3, 7, WIDTH))
    assert traces.count == 1


class Siamese(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = (Stack(lambda i: Attention(), 3) for _ in range(2))
        self.up = Stack(lambda i: Attention(), 2)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            fixed = self.right(x)
        skips = [self.left(x), self.left(x + 1), self.left(x[:, :1]), fixed]
        for layer in self.up.layers:
            x = layer(x + skips.pop()) @ skips.pop().mean(1, keepdim=True).transpose(-1, -2) + x
        return x


def test_layers_in_layers(traces: Traces) -> None:
    """Also for other sizes, and without gradients in a graph with them."""
    assert_equals_eager(Siamese(), (2, 5, WIDTH), (3, 7, WIDTH))


def test_layouts_of_gradients(traces: Traces) -> None:
    """The last layer's are expanded, or transposed; all others have their own."""
    assert_equals_eager(Stack(lambda i: Attention()), (2, 5, WIDTH), (3, 7, WIDTH), loss=lambda y: y[:, :1].sum())


def test_frozen_layer(traces: Traces) -> None:
    module = Stack(lambda i: Attention())
    module.layers[1].requires_grad_(False)
    assert_equals_eager(module, (2, 5, WIDTH), (3, 7, WIDTH))


@torch.compiler.nested_compile_region
def region(x: Tensor, weight: Tensor) -> Tensor:
    return torch.relu((x @ weight).sin() + x.cos()).exp().tanh() + x


class Regions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(WIDTH, WIDTH)) for _ in range(LAYERS))

    def forward(self, x: Tensor) -> Tensor:
        for weight in self.weights:
            x = region(x, weight)
        return x


def test_regions(traces: Traces) -> None:
    """Functions of ``torch.compiler.nested_compile_region`` are layers too."""
    assert_equals_eager(Regions(), (2, 5, WIDTH), (3, 7, WIDTH))
    assert traces.count == 1


class Selecting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x).tanh()
        return x + y * y[y > 0].sum() + torch.relu(y).exp()


def test_data_dependent_sizes(traces: Traces) -> None:
    assert_equals_eager(Stack(lambda i: Selecting(), 2), (2, 5, WIDTH), (3, 7, WIDTH))
    assert traces.count == 0


class Exponents(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return torch.exp(self.two(torch.sin(self.one(x)) + x.square()) - 3).sigmoid().exp()


class Overwritten(Stack):
    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
            x.add_(1)  # which the layer's backward reads
        return x


def test_writes_to_saved_tensors_are_an_error(traces: Traces, caplog: pytest.LogCaptureFixture) -> None:
    module, x = Overwritten(lambda i: Exponents()), torch.randn(3, WIDTH, requires_grad=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        module(x).sum().backward()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.compile(module, backend="symshape")(x).sum().backward()
    assert "traced one by one" in caplog.text
    caplog.clear()


class Descriptors(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        for function in (torch.Tensor.sin, torch.Tensor.cos, torch.Tensor.exp, torch.Tensor.tanh):
            x = function(torch.Tensor.add(x, 1))
        return x


def test_functions_without_a_module(traces: Traces) -> None:
    assert_equals_eager(Stack(lambda i: Descriptors(), 2), (2, 5, WIDTH))


def test_without_the_step(traces: Traces) -> None:
    module, x = Stack(lambda i: Attention()), torch.randn(2, 5, WIDTH)
    options = {"strict": True, "disable_passes": ["trace-layers-once"]}
    compiled = torch.compile(module, backend="symshape", options=options)
    torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-5)
    assert traces.count == 0


class Keys(nn.Module):
    """Layers that return what they have computed, as a cache of keys does."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))

    def forward(self, x: Tensor) -> list[Tensor]:
        found = []
        for layer in self.layers:
            x = layer(x).tanh()
            found.append(x.unflatten(-1, (2, -1)).transpose(1, 2).contiguous())
        return found


def test_results_of_layers_are_no_views_of_one_another(traces: Traces) -> None:
    torch._dynamo.reset()
    module = Keys().eval()
    compiled = symshape.compile(module)
    with torch.no_grad():
        for sizes in ((2, 5, WIDTH), (3, 7, WIDTH)):
            x = torch.randn(sizes)
            found, expected = compiled(x), module(x)
            torch.testing.assert_close(found, expected)
            assert [one._base is None for one in found] == [one._base is None for one in expected] == [True] * LAYERS
