"""pack-convolutions: which convolutions our kernels compute, what folds into them, layouts, changed parameters."""

from __future__ import annotations

import copy
import gc
import logging
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import symshape
from symshape.cache.compiled_graphs import Loaded
from symshape.frontend.graph_rewrites import packed_convolutions
from symshape.runtime.parameter_constants import ParameterConstants

PACKED = "symshape.packed_convolution.default"
PLAIN = "aten.convolution.default"


def norm(channels: int) -> nn.BatchNorm2d:
    """A batch norm that has seen data."""
    made = nn.BatchNorm2d(channels)
    with torch.no_grad():
        made.running_mean.normal_()  # type: ignore[union-attr]
        made.running_var.uniform_(0.5, 2)  # type: ignore[union-attr]
        made.weight.normal_()
        made.bias.normal_()
    return made


class Bottleneck(nn.Module):
    """1x1, depthwise and 1x1, and a shortcut that is a convolution too."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(5, 18, 1, bias=False), norm(18), nn.ReLU6())
        self.second = nn.Sequential(nn.Conv2d(18, 18, 3, 2, 1, groups=18, bias=False), norm(18), nn.ReLU6())
        self.third = nn.Sequential(nn.Conv2d(18, 7, 1, bias=False), norm(7))
        self.shortcut = nn.Sequential(nn.Conv2d(5, 7, 1, 2, bias=False), norm(7))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.third(self.second(self.first(x))) + self.shortcut(x))


class Lambda(nn.Module):
    def __init__(self, function: Callable[..., object], *layers: nn.Module) -> None:
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> object:
        return self.function(x, *self.layers)


def conv(channels: int = 7, kernel: int = 3, **more: int) -> nn.Conv2d:
    return nn.Conv2d(5, channels, kernel, padding=kernel // 2, **more)  # type: ignore[arg-type]


# name: module, calls of our kernels, launches of others (one copies the result into the layout of eager mode)
MODELS: dict[str, tuple[nn.Module, int, int]] = {
    "bottleneck": (Bottleneck(), 4, 1),
    "no bias": (nn.Conv2d(5, 6, 3, bias=False), 1, 1),
    "dilated": (conv(dilation=2), 1, 1),
    "a norm and a limit": (nn.Sequential(conv(), norm(7), nn.Hardtanh(-0.5, 2)), 1, 1),
    "numbers": (Lambda(lambda x, a: (2 - (a(x) / 3 - 1) * 2).clamp(max=0.5), conv()), 1, 1),
    "limits in the other order": (Lambda(lambda x, a: a(x).clamp_max(1).clamp_min(-1), conv()), 1, 1),
    "limits that exclude each other": (Lambda(lambda x, a: a(x).clamp_max(-1).clamp_min(1), conv()), 1, 1),
    "an activation behind": (nn.Sequential(conv(), norm(7), nn.SiLU()), 1, 1),
    "activations of activations": (
        Lambda(lambda x, a: F.gelu(F.hardswish(F.leaky_relu(a(x), 0.1))) * F.mish(x[:, :1]), conv()),
        1,
        1,
    ),
    "a gate of another convolution": (Lambda(lambda x, a, b: a(x) * torch.sigmoid(b(x)), conv(), conv()), 2, 1),
    "a channel's slope": (nn.Sequential(conv(), norm(7), nn.PReLU(7)), 1, 1),
    "an image's numbers": (
        Lambda(lambda x, a, b: F.silu(a(x) + b(x).mean((2, 3), keepdim=True)) * 2, conv(), conv()),
        2,
        2,
    ),
    "squeeze and excite": (
        Lambda(
            lambda x, a, b, c: c((y := F.silu(a(x))) * b(y.mean((2, 3), keepdim=True)).sigmoid()),
            conv(5),
            conv(5, 1),
            conv(kernel=1),
        ),
        3,
        2,
    ),
    "a product that is read twice": (
        Lambda(lambda x, a: (p := x * x.mean((2, 3), keepdim=True)) + a(p), conv(5, 1)),
        1,
        2,
    ),
    "a product before a larger filter": (Lambda(lambda x, a: a(x * x.mean((2, 3), keepdim=True)), conv(5)), 1, 2),
    "a mask times a value": (Lambda(lambda x, a: (y := a(x)) * (y > 0.5) + (y < 0).float(), conv()), 1, 1),
    "more operands than there is room for": (
        Lambda(lambda x, a: (((a(x) * x + x.cos()) * x.sin() - x.exp()) * x.tan() + x.sinh()).tanh(), conv(5)),
        1,
        2,
    ),
    "inner values that are read": (Lambda(lambda x, a: ((s := a(x).sigmoid()) * 2, s.sum()), conv()), 1, 2),
    "read twice": (Lambda(lambda x, a: ((y := a(x)), y.relu()), conv()), 1, 1),
    "added to itself": (Lambda(lambda x, a: (y := a(x)) + y, conv()), 1, 1),
    "broadcast on the left": (Lambda(lambda x, a: x.mean(1, keepdim=True) - a(x), conv()), 1, 2),
    "a sum of two": (Lambda(lambda x, a, b: a(x) + b(x), conv(), conv(kernel=1)), 2, 1),
    "an image of another size added": (Lambda(lambda x, a: a(x) + x.mean((2, 3), keepdim=True)[:, :1], conv()), 1, 2),
    "views behind": (Lambda(lambda x, a, b: (a(x).tanh().flatten(1), b(x)), conv(), conv()), 2, 2),
    "pools behind": (nn.Sequential(conv(), nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(2, 2, ceil_mode=True)), 1, 2),
    "attention over pixels": (
        Lambda(lambda x, a, b: (a(x).flatten(2).transpose(1, 2).softmax(1), b(x)), conv(), conv()),
        2,
        2,
    ),
    "a norm of groups behind": (nn.Sequential(conv(5), nn.ReLU(), conv(8), nn.GroupNorm(2, 8)), 2, 2),
    "upsampled and joined": (
        Lambda(lambda x, a, b: torch.cat([F.interpolate(a(x)[..., :1], x.shape[2:]), b(x)], 1), conv(), conv()),
        2,
        2,
    ),
}
SIZES = [(2, 12, 10), (1, 7, 13), (3, 3, 3), (0, 8, 8), (1, 4, 5)]


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", MODELS)
def test_results(name: str) -> None:
    model, calls, launches = MODELS[name]
    torch._dynamo.reset()
    model = model.eval()
    with torch.no_grad():
        report = symshape.explain(model, torch.randn(2, 5, 12, 10))
        for n, h, w in SIZES:
            x = torch.randn(n, 5, h, w)
            for given in (x, x.to(memory_format=torch.channels_last), torch.randn(n, 5, w, h + 1)[..., 1:].mT):
                assert_same(report.run(given), model, given)
    assert len(report.graphs) <= 4, "one for each layout of the input, and one for sizes at which layouts look alike"
    for graph in report.graphs:
        assert graph.library_calls.count(PACKED) == calls and PLAIN not in graph.library_calls
    assert report.graphs[0].launches == launches


def assert_same(found: object, model: nn.Module, x: torch.Tensor) -> None:
    """Numbers, sizes and strides (eager mode's choice for an empty batch is its own)."""
    exact = copy.deepcopy(model).double()(x.double())
    flat = [value if isinstance(value, tuple) else (value,) for value in (found, model(x), exact)]
    for a, b, c in zip(*flat, strict=True):
        assert isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)
        assert a.shape == b.shape and (not a.numel() or a.stride() == b.stride())
        torch.testing.assert_close(a.double(), c, rtol=2e-5, atol=2e-5)


KEPT: dict[str, nn.Module] = {
    "transposed": nn.ConvTranspose2d(5, 6, 3),
    "float64": nn.Conv2d(5, 6, 3).double(),
    "most results would be transposed": nn.Sequential(conv(8), nn.GroupNorm(2, 8)),
    "weights that are computed of the input": Lambda(lambda x, a: F.conv2d(x, a.weight * x.sum()), conv()),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_stays(name: str) -> None:
    torch._dynamo.reset()
    model = KEPT[name].eval()
    x = torch.randn(2, 5, 9, 8, dtype=next(model.parameters()).dtype)
    with torch.no_grad():
        report = symshape.explain(model, x)
        torch.testing.assert_close(report.result, model(x))
    assert report.graphs[0].library_calls == [PLAIN]


def test_rows() -> None:
    """Convolutions over one dim, as of images of height 1."""
    torch._dynamo.reset()
    model = nn.Sequential(
        nn.Conv1d(5, 8, 3, 2, 1), nn.GELU(), nn.Conv1d(8, 8, 3, padding=1, groups=8), nn.BatchNorm1d(8), nn.ReLU()
    ).eval()
    with torch.no_grad():
        report = symshape.explain(model, torch.randn(2, 5, 12))
        for n, length in ((1, 7), (3, 1), (0, 5), (2, 64)):
            x = torch.randn(n, 5, length)
            assert_same(report.run(x), model, x)
            x = torch.randn(5, n + 1, length).transpose(0, 1)
            assert_same(report.run(x), model, x)
    assert [graph.library_calls for graph in report.graphs] == [[PACKED] * 2] * 2, "one for each layout of the input"


def test_gradients_are_those_of_the_operator() -> None:
    torch._dynamo.reset()
    model = conv().eval()
    compiled = symshape.compile(model)
    x = torch.randn(2, 5, 6, 6)
    compiled(x).sum().backward()
    assert model.weight.grad is not None
    torch.testing.assert_close(model.weight.grad, torch.autograd.grad(model(x).sum(), model.weight)[0])


def _by_data(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.data.mul_(2)


def _by_numpy(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.detach().numpy()[...] += 1


def _one_element(model: nn.Module) -> None:
    next(model.parameters()).data.view(-1)[-1] += 1


def _by_operator(model: nn.Module) -> None:
    for buffer in model.buffers():
        buffer.add_(1)


def _by_state(model: nn.Module) -> None:
    model.load_state_dict({name: value + 1 for name, value in model.state_dict().items()})


def _by_optimiser(model: nn.Module) -> None:
    with torch.enable_grad():
        model(torch.randn(2, 5, 8, 8)).square().mean().backward()
    torch.optim.SGD(model.parameters(), 0.1).step()


def _by_new_memory(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.data = parameter.data + 1


CHANGES = [_by_data, _by_numpy, _one_element, _by_operator, _by_state, _by_optimiser, _by_new_memory]


@pytest.mark.sample(3)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__[1:])
@pytest.mark.parametrize("how", ["compile", "jit"])
def test_changed_parameters(how: str, change: Callable[[nn.Module], None]) -> None:
    torch._dynamo.reset()
    model = nn.Sequential(conv(96), norm(96), nn.ReLU()).eval()  # some are watched and some hashed
    compiled = symshape.compile(model) if how == "compile" else symshape.jit(model)
    x = torch.randn(2, 5, 8, 8)
    with torch.no_grad():
        for _ in range(2):
            before = model(x)
            torch.testing.assert_close(compiled(x), before, rtol=2e-5, atol=2e-5)
            change(model)
            assert not torch.allclose(model(x), before, rtol=2e-5, atol=2e-5)
            torch.testing.assert_close(compiled(x), model(x), rtol=2e-5, atol=2e-5)


def test_threads() -> None:
    """Threads call a program that has not run yet."""
    torch._dynamo.reset()
    model = nn.Sequential(conv(), norm(7), nn.ReLU()).eval()
    compiled = symshape.jit(model)
    x = torch.randn(2, 5, 8, 8)
    wrong: list[int] = []
    with torch.no_grad():
        expected = model(x)

    def call(i: int) -> None:
        with torch.no_grad():
            if not torch.allclose(compiled(x), expected, rtol=2e-5, atol=2e-5):
                wrong.append(i)

    threads = [threading.Thread(target=call, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_inference_mode() -> None:
    torch._dynamo.reset()
    with torch.inference_mode():
        model = nn.Sequential(conv(), norm(7)).eval()
        compiled = symshape.compile(model)
        x = torch.randn(2, 5, 8, 8)
        torch.testing.assert_close(compiled(x), model(x), rtol=2e-5, atol=2e-5)
        model[0].weight.mul_(2)
        torch.testing.assert_close(compiled(x), model(x), rtol=2e-5, atol=2e-5)


def test_disabled() -> None:
    torch._dynamo.reset()
    model = nn.Sequential(conv(), norm(7)).eval()
    with torch.no_grad():
        report = symshape.explain(model, torch.randn(2, 5, 8, 8), options={"disable_passes": ["pack-convolutions"]})
    assert report.graphs[0].library_calls == [PLAIN]


def test_a_failure_leaves_the_graph_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("not today")

    monkeypatch.setattr(packed_convolutions, "_replace", fail)
    torch._dynamo.reset()
    model = nn.Sequential(conv(), norm(7)).eval()
    x = torch.randn(2, 5, 8, 8)
    with torch.no_grad(), pytest.warns(UserWarning, match="pack-convolutions"):
        report = symshape.explain(model, x, options={"strict": False})
        torch.testing.assert_close(report.result, model(x), rtol=2e-5, atol=2e-5)
    assert report.graphs[0].library_calls == [PLAIN]
    assert [fallback.step for fallback in report.graphs[0].fallbacks] == ["pack-convolutions"]


def test_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A program from the disk has the weights of the module at hand."""
    monkeypatch.setenv("SYMSHAPE_CACHE", "1")
    monkeypatch.setenv("SYMSHAPE_CACHE_DIR", str(tmp_path))
    x = torch.randn(2, 5, 8, 8)
    said = []
    for _ in range(2):
        torch._dynamo.reset()
        model = nn.Sequential(conv(), norm(7), nn.ReLU()).eval()
        with torch.no_grad(), caplog.at_level(logging.INFO, "symshape.cache"):
            torch.testing.assert_close(symshape.compile(model)(x), model(x), rtol=2e-5, atol=2e-5)
        said.append([record.getMessage().rpartition(": ")[2] for record in caplog.records])
        caplog.clear()
    assert said[0][0] == "miss" and said[1] == ["hit"]


@pytest.mark.parametrize("how", ["compile", "jit"])
def test_modules_that_share_a_graph(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers that are compiled one by one have one graph; each has its own constants, which are computed once."""
    computed = []
    usual = ParameterConstants._computed

    def counted(self: ParameterConstants, *args: Any) -> Any:
        computed.append(args)
        return usual(self, *args)

    monkeypatch.setattr(ParameterConstants, "_computed", counted)
    torch._dynamo.reset()
    layers = [nn.Sequential(conv(), norm(7), nn.ReLU()).eval() for _ in range(3)]
    compiled = [symshape.compile(layer) if how == "compile" else symshape.jit(layer) for layer in layers]
    x = torch.randn(2, 5, 8, 8)
    with torch.no_grad():
        for _ in range(3):
            for layer, call in zip(layers, compiled, strict=True):
                torch.testing.assert_close(call(x), layer(x), rtol=2e-5, atol=2e-5)
    assert len(computed) == 3
    del layers, layer, computed[:]


def test_constants_of_modules_that_are_gone_are_freed() -> None:
    made: list[weakref.ref[torch.Tensor]] = []

    def compute(parameter: torch.Tensor) -> list[torch.Tensor]:
        result = parameter * 2
        made.append(weakref.ref(result))
        return [result]

    constants = ParameterConstants(compute, [0])
    for n in range(3):
        (found,) = constants.of([torch.full((4,), n)])
        assert found.tolist() == [2 * n] * 4
        del found
    gc.collect()
    assert [one() is None for one in made] == [True, True, False]


def test_reports_of_other_graphs_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of graphs from the cache are decoded when somebody asks for them."""
    monkeypatch.setenv("SYMSHAPE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("SYMSHAPE_CACHE", "1")
    weight, x = torch.randn(3, 3, requires_grad=True), torch.randn(4, 3)
    decoded: list[Any] = []
    for _ in range(2):
        torch._dynamo.reset()
        with monkeypatch.context() as patched:
            patched.setattr(Loaded, "report", property(lambda self: decoded.append(self)))
            for grad in (False, True):
                with torch.set_grad_enabled(grad):
                    found = symshape.compile(lambda x, weight: (x @ weight).relu() + 1)(x, weight)
                torch.testing.assert_close(found, (x @ weight).relu() + 1)
    assert not decoded
