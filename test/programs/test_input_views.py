"""In-place view operators on arguments: the argument's layout after the call, also as aliases of it show it."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch

import symshape
from symshape.errors import CompileError
from symshape.frontend.bridge.guards import track_sources
from symshape.tools.measure import Graphs

SHAPES = ((3, 4), (5, 2), (1, 3), (4, 1), (0, 3), (2, 2))


def returned(x):
    y = x.t_()
    return y, x.shape[0], x * 2


def turned_around_and_written_to(x):
    before = x[:1]
    x.unsqueeze_(1)
    x.transpose_(0, 2).swapaxes_(0, 1)
    x.add_(1)
    return before + 1, x.sum(0), x.dim()


def laid_out_anew(x):
    torch.Tensor.as_strided_(x, (x.size(1), x.size(0)), (1, x.size(1)))
    return x + 1


def squeezed(x):
    y = x.squeeze_()
    x.unsqueeze_(0)
    return y.dim(), y * 2, y is x


def in_a_list(x):
    held = {"x": [x]}
    held["x"][0].t_()
    return x - 1, held["x"][0].shape


@pytest.mark.parametrize("f", [returned, turned_around_and_written_to, laid_out_anew, squeezed, in_a_list])
def test_like_eager_mode(f):
    torch._dynamo.reset()
    compiled = symshape.compile(f, fullgraph=True)
    for shape in SHAPES:
        x = torch.randn(shape)
        y = x.clone()
        torch.testing.assert_close(compiled(x), f(y))
        torch.testing.assert_close(x, y)
        strides = [[s for s, n in zip(t.stride(), t.shape) if n > 1] for t in (x, y)]
        assert strides[0] == strides[1] or not x.numel()


PARTS = {
    "dense": lambda: torch.arange(24.0).view(4, 6),
    "offset": lambda: torch.arange(24.0).view(4, 6)[1:],
    "strided": lambda: torch.arange(60.0).view(6, 10)[::2, 1:7:3],
    "transposed": lambda: torch.arange(24.0).view(4, 6)[1:, 2:].t(),
    "empty": lambda: torch.arange(24.0).view(4, 6)[4:],
}


def turned_around_with_its_rows_doubled(x):
    x.t_()
    x[::2].mul_(2)
    return x.sum(0)


def laid_out_anew_twice(x, z):
    x.unsqueeze_(0)
    z.copy_(x[0])
    x.transpose_(0, 2)
    x.sub_(1)
    z.t_()
    return x * 2, z.shape


@pytest.mark.sample(3)
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("f", [turned_around_with_its_rows_doubled, turned_around_and_written_to, laid_out_anew_twice])
def test_what_is_written_is_written_into_the_part_of_the_memory_that_it_is(f, part):
    compiled = symshape.compile(f)
    for name in ("dense", part, "strided"):
        found = []
        for run in (compiled, f):
            x = PARTS[name]()
            base = x._base if x._base is not None else x
            inputs = (x,) if f is not laid_out_anew_twice else (x, torch.zeros(x.shape))
            found.append((run(*inputs), [(one, one.stride(), one.storage_offset()) for one in inputs], base))
        torch.testing.assert_close(found[0], found[1])


def test_jit_refuses_an_argument_that_it_would_write_elsewhere():
    def turned(x):
        return x.t_() + 1

    x = torch.randn(5, 3)
    y = x.clone()
    torch.testing.assert_close(symshape.jit(turned)(x), turned(y))
    torch.testing.assert_close(x, y)
    with pytest.raises(CompileError, match="sizes or strides in place"):
        symshape.jit(turned_around_with_its_rows_doubled)(torch.randn(4, 3))


def test_the_argument_itself_is_returned():
    torch._dynamo.reset()
    compiled = symshape.compile(returned, fullgraph=True)
    x = torch.randn(3, 4)
    assert compiled(x)[0] is x and x.shape == (4, 3)
    assert compiled(x)[0] is x and x.shape == (3, 4)


def test_buffers_and_globals():
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.arange(12.0).reshape(3, 4))

        def forward(self, x):
            self.table.t_()
            return self.table @ x, self.table.shape

    torch._dynamo.reset()
    ours, theirs = Layer(), Layer()
    compiled = symshape.compile(ours, fullgraph=True)
    for n in (3, 4, 3):
        x = torch.randn(n, 2)
        torch.testing.assert_close(compiled(x), theirs(x))
        assert ours.table.shape == theirs.table.shape


def test_arguments_that_share_memory():
    def f(x, z):
        x.t_()
        return z + 1, z.shape, x.shape

    for other in (lambda x: x, lambda x: x.clone(), lambda x: x[1:], lambda x: x.view(-1)):
        torch._dynamo.reset()
        compiled = symshape.compile(f)
        for n in (3, 5):
            x = torch.randn(n, 4)
            y = x.clone()
            torch.testing.assert_close(compiled(x, other(x)), f(y, other(y)))
            assert x.shape == y.shape


def test_what_another_variable_shows_is_left_to_eager_mode():
    def f(x):
        y = x.add_(1)
        x.t_()
        return y.shape, y + 1

    def g(x):
        x.add_(1).t_()
        return x + 1

    for function in (f, g):
        torch._dynamo.reset()
        compiled = symshape.compile(function)
        for shape in SHAPES:
            x = torch.randn(shape)
            y = x.clone()
            torch.testing.assert_close(compiled(x), function(y))
            torch.testing.assert_close(x, y)


def test_with_gradients_it_stays_an_error():
    torch._dynamo.reset()
    with pytest.raises(RuntimeError, match="in-place"):
        symshape.compile(lambda x: x.t_() * 2)(torch.randn(3, 4, requires_grad=True))


def _doubled(x: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = 2 + x
    v *= 2
    return x, y, v + 1


def test_inputs_of_one_memory_at_other_sizes() -> None:
    """Guards are on the sizes of a base that the tracer has given symbols of its own."""
    torch._dynamo.reset()
    compiled = symshape.compile(_doubled)
    for rows, columns in ((3, 5), (5, 3), (2, 7), (4, 4), (1, 6), (3, 5)):
        for view in (torch.Tensor.t, lambda x: x.reshape(-1)[: 2 * x.shape[1] : 2], lambda x: x[:, 1:]):
            x = torch.arange(rows * columns, dtype=torch.float32).view(rows, columns)
            expected, actual = x.clone(), x.clone()
            torch.testing.assert_close(compiled(actual, view(actual)), _doubled(expected, view(expected)))
            torch.testing.assert_close(actual, expected)


def test_a_size_that_only_a_base_has_is_read_at_calls() -> None:
    from torch._dynamo.source import AttrSource, LocalSource, TensorProperty, TensorPropertySource
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, TrackedFake

    env = ShapeEnv(tracked_fakes=[])
    sources = [LocalSource("x"), AttrSource(LocalSource("x"), "_base")]
    sizes = []
    for source, value in zip(sources, (4, 6), strict=True):
        size_source = TensorPropertySource(source, TensorProperty.SIZE, 0)
        symbol = env.create_symbol(value, size_source, dynamic_dim=DimDynamic.DYNAMIC)
        sizes.append(env.create_symintnode(symbol, hint=value, source=size_source))
    env.tracked_fakes = [TrackedFake(sizes[0], TensorPropertySource(sources[0], TensorProperty.SIZE, 0), None)]
    assert sizes[0] < sizes[1]
    track_sources(env)
    track_sources(env)
    assert [one.source.name for one in env.tracked_fakes] == ["L['x'].size()[0]", "L['x']._base.size()[0]"]


def scaled(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x * 2, x.add_(1)


MEMORY: tuple[Callable[[int], torch.Tensor], ...] = (
    lambda n: torch.arange(2.0 * n).view(n, 2).view(n, 2),
    lambda n: torch.arange(3.0 * n).view(n, 3).sum(1, keepdim=True) * torch.ones(2),
    lambda n: torch.arange(6.0 * n).view(3, n, 2)[0],
    lambda n: torch.arange(4.0 * n).view(2 * n, 2)[:n],
)


@pytest.mark.parametrize("compiler", ["compile", "backend"])
def test_whether_an_input_is_a_view_is_no_other_graph(compiler: str) -> None:
    backend = functools.partial(torch.compile, backend="symshape", dynamic=True)
    with Graphs() as graphs:
        compiled = (symshape.compile if compiler == "compile" else backend)(scaled)
        for make in MEMORY:
            for n in (3, 5, 1):
                x, y = make(n), make(n)
                torch.testing.assert_close(compiled(x), scaled(y))
                torch.testing.assert_close(x, y)
    assert graphs.graphs == 1 and not graphs.breaks
