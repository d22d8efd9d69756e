"""Sizes 0 and 1 are sizes: an entry made at any size serves all for which the user's Python takes the same path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from size_oracle import graphs_needed
from torch._dynamo.utils import counters

import symshape
from symshape.frontend.bridge.general_shape_env import if_larger, strides_of_larger_sizes
from symshape.tools.measure import Graphs

W = torch.linspace(-1, 1, 64).view(8, 8)
B = torch.linspace(0, 1, 8)
FILTERS = torch.linspace(-1, 1, 8 * 8 * 3).view(8, 8, 3)


def _rows(n: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(n, 8),)


def _columns(n: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(8, n),)


def _middle(n: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(2, n, 8),)


def _branching(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] == 0:
        return x.sum() + 5
    return x + 1 if x.shape[0] > 1 else x * 3


def _heads(x: torch.Tensor) -> torch.Tensor:
    q = x.view(x.shape[0], x.shape[1], 2, 4).transpose(1, 2)
    return F.scaled_dot_product_attention(q, q + 1, q * 2).transpose(1, 2).reshape(x.shape)


def _rotated(x: torch.Tensor) -> torch.Tensor:
    angles = torch.arange(x.shape[1])[:, None].cos()
    return torch.cat((-x[..., 4:], x[..., :4]), -1) * angles


Program = tuple[Callable[[int], tuple[torch.Tensor, ...]], Callable[..., Any]]
PROGRAMS: dict[str, Program] = {
    "softmax": (_rows, lambda x: torch.softmax(x, -1)),
    "softmax along it": (_columns, lambda x: torch.softmax(x, -1)),
    "linear": (_middle, lambda x: F.linear(x, W, B)),
    "layer norm": (_rows, lambda x: F.layer_norm(x, (8,), B, B)),
    "pointwise": (_rows, lambda x: torch.relu(x * 2 + 1).sin()),
    "convolution": (lambda n: (torch.randn(n, 8, 5),), lambda x: F.conv1d(x, FILTERS, B, padding=1)),
    "mean": (_middle, lambda x: x.mean(1)),
    "cross entropy": (lambda n: (torch.randn(n, 8), torch.arange(n) % 8), F.cross_entropy),
    "broadcast and sum": (lambda n: (torch.randn(n, 1), torch.randn(1, n)), lambda x, y: (x + y).sum(0)),
    "transposed": (_middle, lambda x: x.transpose(0, 1).contiguous().view(-1, 16) + 1),
    "rotated": (_middle, _rotated),
    "outer": (lambda n: (torch.randn(n), torch.randn(3)), torch.outer),
    "branches": (_rows, _branching),
    "log softmax along it": (_columns, lambda x: torch.log_softmax(x, -1)),
    "logsumexp": (
        _columns,
        lambda x: x.logsumexp((-1, 0), keepdim=True) + x.int().logsumexp(1, True) + x.double().logsumexp(0),
    ),
    "logsumexp of infinities": (_columns, lambda x: (x * torch.inf).logsumexp(0)),
    "running extrema": (_columns, lambda x: sum(x.cummax(1)) + sum(x.cummin(0))),
    "triangular": (
        lambda n: (torch.randn(n, n) / 8 + 4 * torch.eye(n), torch.randn(n, 2)),
        lambda a, b: torch.linalg.solve_triangular(a.tril(), b, upper=False) * 2,
    ),
    "cosines of all pairs": (_rows, lambda x: F.cosine_similarity(x[:, None], x[None], -1)),
    "cosines with one": (lambda n: (torch.randn(n, 8), torch.randn(1, 8)), F.cosine_similarity),
    "roll": (_columns, lambda x: x.roll((1, -3), (1, 0)) + x.roll(2)),
    "roll of images": (lambda n: (torch.randn(2, n, n + 1, 3),), lambda x: x.roll((-2, 1), (1, 2)) - x.roll(1, 1)),
}
AT_LEAST_ONE: dict[str, Program] = {
    "attention": (_middle, _heads),
    "triangle": (lambda n: (torch.randn(n, n),), lambda x: x.tril() * 2),
}


def _checked(compiled: Callable[..., Any], program: Program, n: int) -> None:
    make, function = program
    arguments = make(n)
    expected = function(*arguments)
    actual = compiled(*arguments)
    torch.testing.assert_close(actual, expected, equal_nan=True, rtol=1e-4, atol=1e-4)
    if expected.numel():
        strides = zip(expected.shape, expected.stride(), actual.stride(), strict=True)
        assert all(size == 1 or one == other for size, one, other in strides)


@pytest.mark.sample(11)
@pytest.mark.parametrize("name", [*PROGRAMS, *AT_LEAST_ONE])
@pytest.mark.parametrize("first", [4, 1])
def test_graphs(name: str, first: int) -> None:
    program = PROGRAMS.get(name) or AT_LEAST_ONE[name]
    sizes = [first, *(n for n in (4, 1, 0, 2, 33) if n != first and (n or name in PROGRAMS))]
    torch._dynamo.reset()
    counters.clear()
    compiled = symshape.compile(program[1])
    for n in sizes:
        _checked(compiled, program, n)
    assert counters["stats"]["unique_graphs"] == graphs_needed(program[1], [program[0](n) for n in sizes])


def test_rank_that_depends_on_a_size() -> None:
    """``squeeze`` of a dim that is 1 has another rank: graphs of their own."""
    for function in (
        lambda x: x.squeeze() + 1,
        lambda x: x.squeeze(1) * 2,
        lambda x: torch.squeeze(input=x, dim=(0, 1)) * 2,
    ):
        for wrap in (symshape.compile, symshape.jit):
            compiled = wrap(function)
            for shape in ((3, 4), (1, 4), (3, 1), (1, 1)):
                x = torch.randn(shape)
                with torch.inference_mode(shape == (3, 1)):
                    assert torch.equal(compiled(x), function(x))


@pytest.mark.sample(5)
@pytest.mark.parametrize("wrap", [symshape.compile, symshape.jit])
@pytest.mark.parametrize(
    ("function", "sizes"),
    [
        (lambda x: (x[::2] * -3).squeeze(), (2, 4, 3, 1)),
        (lambda x: (x[::2] * 2).squeeze(0) + 1, (4, 2, 3, 1)),
        (lambda x: (x[x.shape[0] // 3 :].clone() * 3).squeeze(0) + 1, (1, 2, 3)),
        (lambda x: torch.squeeze(x[: x.shape[0] // 2] * 2), (4, 2, 3, 1)),
        (lambda x: (x.unfold(0, 2, 2) * 2).squeeze().sum(0), (2, 4, 3)),
        (lambda x: F.avg_pool1d(x.mT + 1, 2).squeeze(-1), (4, 2, 3)),
    ],
)
def test_rank_that_depends_on_a_quotient(
    function: Callable[..., Any], sizes: tuple[int, ...], wrap: Callable[..., Any]
) -> None:
    """Operators before ``squeeze`` took it for larger than 1, without a guard."""
    for order in (sizes, sizes[::-1]):
        torch._dynamo.reset()
        compiled = wrap(function)
        for n in order:
            x = torch.randn(n, 3, max(n, 2), requires_grad=n % 2 == 1)
            torch.testing.assert_close(compiled(x), function(x))


def test_one_element_has_no_dims() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x.t().reshape(x.shape[:0])
        return y.permute([]) + y.dim()

    x = torch.randn(1, 1)
    torch.testing.assert_close(symshape.compile(program)(x), program(x))


@pytest.mark.parametrize("first", [0, 2])
def test_operand_of_another_rank_must_be_empty(first: int) -> None:
    """The cache of a first token: ``torch.cat([torch.tensor([]), x])``."""
    compiled = symshape.compile(lambda x, y: torch.cat([x, y]) + 1)
    y = torch.randn(3, 4)
    for x in (torch.empty(0), torch.randn(2, 4))[:: 1 if first == 0 else -1]:
        assert torch.equal(compiled(x, y), torch.cat([x, y]) + 1)
    with pytest.raises(RuntimeError, match="dim"):
        compiled(torch.ones(2), y)


@pytest.mark.parametrize("pads", [(-1, 2), (2, -1), (-2, -1)])
@pytest.mark.parametrize("wrap", [symshape.compile, symshape.jit])
def test_no_more_is_cut_off_than_there_is(wrap: Callable[..., Any], pads: tuple[int, int]) -> None:
    """Also where as much is added: eager mode refuses it, and so does an entry for larger sizes."""
    compiled = wrap(lambda x: F.pad(x * 2, pads))
    for n in (5, 4, 3):
        x = torch.randn(3, n)
        assert torch.equal(compiled(x), F.pad(x * 2, pads))
    for x in (torch.ones(3, 0), torch.ones(2, 0)):
        with pytest.raises(RuntimeError, match="length must be non-negative"):
            F.pad(x, pads)
        with pytest.raises(RuntimeError):
            compiled(x)


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("first", [(6, 1), (1, 1)])
def test_layouts_of_what_may_have_to_be_repeated(first: tuple[int, int], gradient: bool) -> None:
    """Of two sizes that are 1 at the first call, which may be repeated later: if none is, eager mode's layout."""

    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x + y, y + x, x.t() * 2 + y.t(), torch.where(y > 0, y, x), y.expand(x.shape) * 2

    compiled = symshape.compile(function)
    for n, m in (first, (6, 5), (4, 9)):
        x, y = torch.randn(n, m, requires_grad=gradient), torch.randn(m, n, requires_grad=gradient).t()
        for actual, expected in zip(compiled(x, y), function(x, y), strict=True):
            assert torch.equal(actual, expected)
            assert min(n, m) < 2 or actual.stride() == expected.stride()


@pytest.mark.parametrize("sizes", [[(3, 4), (5, 2)], [(1, 3), (4, 3)]])
def test_layouts_of_what_has_at_most_one_element(sizes: list[tuple[int, int]]) -> None:
    """A dim of size ``min(n, 1)`` is repeated, so the other operand decides the layout."""

    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        single = F.pad(x[None], (1, 1), mode="circular").diagonal()
        return single * y.ravel(), single.t() + y.ravel()[:, None], torch.where(y.ravel() > 0, single, 1.0)

    compiled = symshape.compile(function)
    for n, m in sizes:
        x, y = torch.randn(n, 3), torch.randn(n, m)
        for actual, expected in zip(compiled(x, y), function(x, y), strict=True):
            assert torch.equal(actual, expected)
            assert actual.stride() == expected.stride()


@pytest.mark.parametrize("first", [3, 1, 0])
def test_zero_is_seen(first: int) -> None:
    """What the user asks of a size that may be 0 is asked of the size at hand, also by ``max`` and by ``not``."""

    def function(x: torch.Tensor) -> Any:
        n = x.shape[0]
        return x.sum() / max(n, 1), not n, n == 0, n >= 1, [n] * min(n, 2)

    compiled = symshape.compile(function)
    for n in (first, 0, 1, 3):
        assert compiled(torch.ones(n)) == function(torch.ones(n))


@pytest.mark.parametrize("wrap", [symshape.compile, symshape.jit])
def test_extrema(wrap: Callable[..., Any]) -> None:
    """Of all elements or along a dim, with the dim kept or not; of nothing eager mode's error."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        whole = x.max(), x.min(), x.argmax(), x.argmax(keepdim=True), x.argmin(None, True), x.argmin(-1, True)
        return *whole, *x.max(1), *x.min(dim=0, keepdim=True), *torch.max(x, -2, True), x.argmax(dim=1, keepdim=True)

    compiled = wrap(function)
    for shape in ((5, 4), (1, 4), (5, 1), (1, 1), (7, 3)):
        x = torch.randn(shape)
        for actual, expected in zip(compiled(x), function(x), strict=True):
            assert torch.equal(actual, expected)
    with pytest.raises((RuntimeError, IndexError)):
        compiled(torch.empty(0, 4))


@pytest.mark.parametrize("first", [4, 1])
def test_norms_of_one_element(first: int) -> None:
    """Its absolute value, and no root of a square, which would overflow."""

    def norms(x: torch.Tensor) -> Any:
        return (
            x.norm(dim=1),
            x.norm(),
            x.sum().norm(dim=-1),
            F.normalize(x, dim=-1),
            torch.linalg.vector_norm(x, 3, -1, keepdim=True),
        )

    torch._dynamo.reset()
    counters.clear()
    compiled = symshape.compile(norms)
    for rows, columns in ((first, first), (1, 1), (4, 4), (5, 1), (1, 5), (7, 8)):
        x = torch.randn(rows, columns) * (1e30 if columns == 1 else 1)
        torch.testing.assert_close(compiled(x), norms(x))
    assert counters["stats"]["unique_graphs"] == 3  # of all one, of each one, of several


@pytest.mark.parametrize("first", [4, 0])
def test_attention_without_features(first: int) -> None:
    """Whose scale is infinite."""

    def attention(q: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, q, v)

    torch._dynamo.reset()
    counters.clear()
    compiled = symshape.compile(attention)
    for features in (first, 0, 4, 8):
        q, v = torch.randn(2, 3, features), torch.randn(2, 3, 5)
        torch.testing.assert_close(compiled(q, v), attention(q, v))
    assert counters["stats"]["unique_graphs"] == 2


def test_any_stride_of_a_dim_of_size_one() -> None:
    counters.clear()
    compiled = symshape.compile(lambda x: x * 2 + 1)
    base = torch.randn(6, 5, 7)
    for x in (base, base[:1], base[2:3, :, :], torch.randn(5, 1, 7).transpose(0, 1), torch.empty(0, 5, 7)):
        assert torch.equal(compiled(x), x * 2 + 1)
    assert counters["stats"]["unique_graphs"] == 1
    for column in (torch.randn(1, 6).t(), torch.randn(6, 3)[:, :1], torch.randn(6, 2)):
        assert torch.equal(compiled(column), column * 2 + 1)
    strided = base[:, :1, :]
    assert torch.equal(compiled(strided), strided * 2 + 1)


def test_layouts_as_if_larger() -> None:
    assert strides_of_larger_sizes([11, 5, 7], [1, 5, 7], [999, 7, 1]) == [35, 7, 1]
    assert strides_of_larger_sizes([11, 5, 7], [0, 5, 7], [35, 7, 1]) == [35, 7, 1]
    assert strides_of_larger_sizes([7, 11], [7, 0], [1, 1]) == [11, 1]
    # (batch, heads, 1, 16) as a transposed (batch, 1, heads, 16)
    assert strides_of_larger_sizes([2, 3, 11, 16], [2, 3, 1, 16], [48, 16, 48, 1]) == [528, 16, 48, 1]
    assert strides_of_larger_sizes([5, 11], [5, 1], [8, 1]) == [8, 1]
    # one channel in channels-last, and the same as rows of one column
    assert strides_of_larger_sizes([2, 11, 3, 5], [2, 1, 3, 5], [15, 1, 5, 1]) == [165, 1, 55, 11]
    assert strides_of_larger_sizes([2, 11, 3, 5], [2, 1, 3, 5], [15, 15, 5, 1]) == [165, 15, 5, 1]


@pytest.mark.parametrize("wrap", [symshape.compile, symshape.jit])
def test_an_answer_for_a_layout_is_none_for_a_slice(wrap: Callable[..., Any]) -> None:
    """The parts of ``cumsum`` ask for their layout what the slice asks for its size."""
    torch._dynamo.reset()

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(x, 0)[:1].sum(0) * 2

    compiled = wrap(function)
    for n in (5, 0, 1, 33):
        x = torch.randn(n, 8)
        torch.testing.assert_close(compiled(x), function(x))


def test_conditions_as_if_larger() -> None:
    import sympy
    from torch.utils._sympy.functions import FloorDiv, Mod, PythonMod

    a, b = sympy.symbols("s0 s1", nonnegative=True, integer=True)
    assert if_larger(sympy.Lt(a, a * b, evaluate=False)) is True
    assert if_larger(sympy.Gt(a, a * b, evaluate=False)) is False
    assert if_larger(sympy.Ne(a * b, 0)) is True
    assert if_larger(sympy.Eq(a, b)) is None
    assert if_larger(sympy.Lt(a, b)) is None
    assert if_larger(sympy.Ge(a * b, a + b)) is True
    assert if_larger(a < a * a) is True
    assert if_larger(a * a < 3) is False
    assert if_larger(a * a < 2 * a + b) is None
    assert if_larger(sympy.Eq(a * FloorDiv(b, 2), 0)) is False
    last = PythonMod(b - 1, sympy.Max(1, b))
    assert if_larger(a * last < 2) is False
    assert if_larger(sympy.Eq(b - last, 1)) is True
    assert if_larger(sympy.Eq(b - last, 0)) is False
    assert if_larger(a * Mod(b + 2, sympy.Max(1, b)) < 2) is None  # 0 where b is 2
    nested = FloorDiv(FloorDiv(a, 4) + 1, 2)  # the outermost quotient is what is at least 2
    assert if_larger(sympy.Lt(3 * nested * b, 2)) is False and if_larger(sympy.Lt(nested, 3)) is None
    assert if_larger(sympy.Eq(nested, FloorDiv(a, 4))) is None and if_larger(sympy.Ne(nested * a, b)) is None
    found = if_larger.cache_info().hits
    assert if_larger(sympy.Lt(a, b)) is None and if_larger.cache_info().hits == found + 1  # asked for each tensor


def _running(x: torch.Tensor) -> torch.Tensor:
    return x.cumsum(0) * x.T.cumsum(0).T + x.logcumsumexp(1)


def _products(x: torch.Tensor) -> torch.Tensor:
    return x.prod() * x.round().cumprod(1) + x.prod(1, keepdim=True) * x.round().prod(0)


def _contracted(x: torch.Tensor) -> torch.Tensor:
    y = torch.tensordot(x, x.T, 1) @ x
    return torch.tensordot(y, x, 2) + torch.tensordot(x.T, y, 1).mm(x.T).sum() + torch.addmm(x, x @ x.T, y)


def _averages(x: torch.Tensor) -> torch.Tensor:
    """Of as many channels, and in as many windows, as there are columns."""
    image, columns = x.T[None, :, None].repeat(1, 1, 4, 1), x.shape[1]
    found = F.interpolate(image, size=columns, mode="area") + F.adaptive_avg_pool2d(image, (columns, 1))
    return found.sum() + F.adaptive_avg_pool2d(image, (2, 3)).sin().sum()


def _extrema(x: torch.Tensor) -> torch.Tensor:
    image = x.T[None, :, None].repeat(1, 1, 4, 1)
    windows = F.fractional_max_pool2d(image, 2, output_size=(2, 2), _random_samples=x.new_full((1, x.shape[1], 2), 0.5))
    return windows.sin().sum() + F.adaptive_max_pool2d(image, (2, 3)).cos().sum()


def _losses(x: torch.Tensor) -> torch.Tensor:
    sequences, target = torch.stack([x, x.cos()]), torch.arange(2 * x.shape[1]).view(2, x.shape[1]) % 5
    classes = F.cross_entropy(sequences, target, reduction="none").sum() + F.cross_entropy(sequences, target)
    classes = classes + F.cross_entropy(x.T, x.T.exp())
    return classes + F.mse_loss(x, x.sin()) + F.smooth_l1_loss(x, x.cos()) * F.huber_loss(x.exp(), x)


def _built(x: torch.Tensor) -> torch.Tensor:
    """Matrices whose C++ reads sizes as integers, and parts of which some are longer by one."""
    parts = [part * (i + 1) for i, part in enumerate(x.tensor_split(3, 1))]
    blocks = torch.block_diag(x, x[0], x[0].sum(), torch.arange(x.shape[1])).sin().sum()
    vectors = torch.linalg.multi_dot((x, x.T, x[:, :0].sum(1).cos())).sum() + x.cummax(1)[0].cummin(1)[0].exp().sum()
    powers = torch.linalg.vander(x, N=4).cos().sum() + torch.vander(x[0].detach(), 3, increasing=True).sum()
    return torch.cat(parts, 1).sum() + blocks + vectors + powers + torch.vander(x[0].detach(), 4).sin().sum()


def _spreads(x: torch.Tensor) -> torch.Tensor:
    """Of a single element NaN, or 0 where nothing is subtracted from the count."""
    means = torch.std_mean(x[1])[1] + torch.var_mean(x[2])[1]
    return x[0].var(correction=0) + x[0].std(correction=0) * means + x[1:2].var() + x[:1].std()


def _spectra(x: torch.Tensor) -> torch.Tensor:
    """Of one element, and of two, no frequency is left out or counts twice."""
    spectrum = torch.fft.rfft(x, n=2 * x.shape[1]) * torch.fft.rfft(x.sin(), n=2 * x.shape[1])
    wide = torch.cat((x, x[:, :1]), 1)
    return (
        torch.fft.irfft(spectrum, n=2 * x.shape[1]) + torch.fft.rfft2(wide).abs().sum() + torch.fft.rfft(x).abs().sum()
    )


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.sample(7)
@pytest.mark.parametrize(("wrap", "first"), [(symshape.compile, 4), (symshape.compile, 0), (symshape.jit, 1)])
@pytest.mark.parametrize(
    "function", [_running, _products, _contracted, _averages, _extrema, _losses, _built, _spreads, _spectra]
)
def test_shortcuts_of_few_elements_are_not_taken(
    function: Callable[..., torch.Tensor], wrap: Callable[..., Any], first: int
) -> None:
    """What PyTorch asks of sizes to save work is no guard; products of zeros have gradients."""
    torch._dynamo.reset()
    counters.clear()
    compiled = wrap(function)
    for n in (first, 4, 1, 0, 7):
        if n == 0 and function in (_averages, _extrema, _spectra):
            continue  # refused in eager mode
        x = torch.linspace(-1.3, 1.7, 5 * n, dtype=torch.float64).view(5, n)
        found = []
        for one in (compiled, function):
            leaf = x.clone().requires_grad_()
            result = one(leaf)
            found.append((result, *torch.autograd.grad(result.sum(), leaf)))
        torch.testing.assert_close(*found, equal_nan=True)
    assert (len(compiled.entries) if wrap is symshape.jit else counters["stats"]["unique_graphs"]) == 1


@pytest.mark.parametrize("first", [5, 1, 0])
def test_gradients(first: int) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (torch.softmax(x @ W, -1) * y[:, None] + x.mean(0)).pow(2).sum()

    compiled = symshape.compile(function)
    for n in (first, 5, 1, 0, 3):
        operands = [torch.randn(n, 8), torch.randn(n)]
        found = []
        for one in (function, compiled):
            leaves = [x.clone().requires_grad_() for x in operands]
            one(*leaves).backward()
            found.append([leaf.grad for leaf in leaves])
        torch.testing.assert_close(found[1], found[0], equal_nan=True)


def _well_posed(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(n, n).tril() + 4 * torch.eye(n), torch.randn(n, 2)


DIFFERENTIATED: dict[str, Program] = {
    "solve": (_well_posed, torch.linalg.solve),
    "solve of columns": (lambda n: (_well_posed(3)[0], torch.randn(n, 3)), lambda a, b: torch.linalg.solve(a, b.mT)),
    "slogdet": (lambda n: _well_posed(n)[:1], lambda a: torch.linalg.slogdet(a)[1]),
    "inverse": (lambda n: _well_posed(n)[:1], torch.linalg.inv),
    "windows": (lambda n: (torch.randn(n + 3), torch.randn(3)), lambda x, y: x.unfold(0, 3, 1) @ y),
    "columns of windows": (lambda n: (torch.randn(n + 3), torch.randn(n + 1)), lambda x, y: x.unfold(0, 3, 1).mT @ y),
    "matrix and vector": (lambda n: (torch.randn(4, n), torch.randn(n)), lambda x, y: x @ y),
    "sums of windows": (lambda n: (torch.randn(n + 3, 2),), lambda x: x.unfold(0, 3, 2).square().sum(-1)),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", DIFFERENTIATED)
@pytest.mark.parametrize("first", [4, 1, 0])
def test_one_graph_with_its_gradient(name: str, first: int) -> None:
    make, function = DIFFERENTIATED[name]
    torch._dynamo.reset()
    counters.clear()
    compiled = symshape.compile(function)
    for n in (first, 3, 0, 1):
        operands, found = make(n), []
        for one in (compiled, function):
            leaves = [x.clone().requires_grad_() for x in operands]
            result = one(*leaves)
            result.sum().backward()
            found.append([result, *(leaf.grad for leaf in leaves)])
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)
    assert counters["stats"]["unique_graphs"] == 1


def test_gradients_that_divide_by_a_size() -> None:
    """Also where it is 0 at the first call."""
    mean, variance = torch.full((6,), 0.2), torch.full((6,), 0.7)
    for first in (0, 1):
        compiled = symshape.compile(lambda x, w: F.batch_norm(x, mean, variance, w).var(0).sum() + x.std(-1).sum())
        for n in (first, 4):
            found = []
            for one in (compiled, compiled.__wrapped__):
                torch.manual_seed(n)
                leaves = [torch.randn(n, 6, 3, requires_grad=True), torch.randn(6, requires_grad=True)]
                one(*leaves).backward()
                found.append([leaf.grad for leaf in leaves])
            torch.testing.assert_close(found[0], found[1], equal_nan=True)


def test_jit_has_one_entry() -> None:
    function = symshape.jit(lambda x: torch.softmax(x, 0) * 2 + x.sum())
    for n in (1, 4, 0, 7):
        x = torch.randn(n)
        torch.testing.assert_close(function(x), torch.softmax(x, 0) * 2 + x.sum())
    assert len(function.entries) == 1


@pytest.mark.parametrize("wrap", [symshape.compile, symshape.jit])
@pytest.mark.parametrize("order", [(2, 0, 1), (1, 0, 2), (2, 1, 0), (0, 1, 2)])
@pytest.mark.parametrize("batch", [0, 1, 3])
def test_an_image_in_another_order_of_its_dims(wrap: Callable[..., Any], order: tuple[int, ...], batch: int) -> None:
    """A batch of one has any stride along it: ``[None]``, ``expand`` and slices give different ones."""
    function = wrap(lambda x: x / 2 + x.mean())
    for height, width in ((5, 7), (2, 9), (8, 3)):
        image = torch.rand(height, width, 3).permute(order)
        for x in (image[None], image.expand(4, *image.shape)[:1], torch.stack([image] * 5)[batch : batch + 1]):
            torch.testing.assert_close(function(x), x / 2 + x.mean(), equal_nan=True)


@pytest.mark.parametrize(
    "make", [lambda b: b[:, :7], lambda b: b.t()[:5], lambda b: b[::2], lambda b: b.view(2, 5, 12).transpose(1, 2)]
)
def test_a_branch_on_contiguity(make: Callable[..., torch.Tensor]) -> None:
    function = symshape.compile(lambda x: x * 2 if x.is_contiguous() else x * 3)
    for _ in range(2):
        x = make(torch.randn(10, 12))
        assert torch.equal(function(x), x * 3)
        assert torch.equal(function(x.contiguous()), x * 2)


@pytest.mark.parametrize("wrap", [symshape.compile, symshape.jit])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x[y.shape[0]] * 2,
        lambda x, y: x[-y.shape[0]] * 2,
        lambda x, y: x[x.shape[0] // 2] + y.shape[0],
        lambda x, y: torch.select_scatter(x, x[0], 0, y.shape[0]) * 2,
        lambda x, y: torch.diagonal_scatter(x, y) * 2,
        lambda x, y: F.interpolate(x[None], size=y.shape[0]),
    ],
)
def test_what_is_refused(wrap: Callable[..., Any], function: Callable[..., Any]) -> None:
    """An entry made for sizes that eager mode allows refuses those that it refuses, and the reverse."""
    compiled = wrap(function)
    for rows, count in ((5, 4), (5, 9), (4, 4), (0, 0), (5, 0), (1, 1), (9, 4)):
        x, y = torch.randn(rows, 4), torch.randn(count)
        try:
            expected = function(x, y)
        except (RuntimeError, IndexError):
            with pytest.raises((RuntimeError, IndexError)):
                compiled(x, y)
        else:
            assert torch.equal(compiled(x, y), expected)


@pytest.mark.sample(3)
@pytest.mark.parametrize("wrap", [symshape.compile, symshape.jit])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x @ torch.cat([y, y], 1).transpose(1, 2),
        lambda x, y: x.transpose(1, 2).expand(y.shape[0], -1, -1),
        lambda x, y: torch.baddbmm(x, y, y),
        lambda x, y: F.cosine_similarity(x, y, dim=1),
        lambda x, y: torch.take_along_dim(y, x.argsort(1), 1),
        lambda x, y: y.clone().copy_(x),
        lambda x, y: F.scaled_dot_product_attention(x, y, y),
    ],
)
@pytest.mark.parametrize("first", [1, 2])
def test_repeated_operands(wrap: Callable[..., Any], function: Callable[..., Any], first: int) -> None:
    """Which of two sizes is repeated may differ from call to call."""
    compiled = wrap(function)
    for n in (first, 1, 2, 3):
        for rows in (1, n):
            x, y = torch.randn(rows, 3, 3), torch.randn(n, 3, 3)
            torch.testing.assert_close(compiled(x, y), function(x, y), rtol=1e-4, atol=1e-5)


def test_entries_that_divide() -> None:
    """The guard of one entry has no value at a size that another is for."""
    function = symshape.jit(lambda x: torch.cat(x.chunk(2)[::-1]) * 2)
    for n in (5, 1, 0, 4):
        x = torch.randn(n, 4)
        assert torch.equal(function(x), torch.cat(x.chunk(2)[::-1]) * 2)


@pytest.mark.parametrize("first", [1, 3])
def test_sizes_that_are_joined_again_and_again(first: int) -> None:
    """A residual network adds a row of each sample in each layer: the size that both broadcast to stays as short."""
    layer = torch.nn.Linear(4, 8)

    def residual(x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        for _ in range(12):
            x = x + (x + layer(time)[:, :, None]).sin()
        return x.reshape(-1, 2)

    with Graphs() as graphs, torch.no_grad():
        compiled = symshape.compile(residual)
        for batch, times in ((first, first), (2, 2), (1, 1), (5, 5)):
            x, time = torch.randn(batch, 8, 3), torch.randn(times, 4)
            torch.testing.assert_close(compiled(x, time), residual(x, time), rtol=1e-4, atol=1e-4)
    assert graphs.read().graphs == 1


def _of_every_layout(x: torch.Tensor) -> list[torch.Tensor]:
    y = x.exp()
    made = torch.zeros(3, x.shape[1], 5), x.new_empty(5, x.shape[1], x.shape[1] + 2), torch.stack([x, y], -1)
    views = y.t(), y[:, :, None].transpose(0, 1), (x * 2)[None].expand(3, -1, -1)
    computed = x * 7, torch.cat([x, x]), x.softmax(-1), x.cumsum(0), x.double(), x @ x.t(), x.repeat(2, 2)
    copied = made[0].index_add(0, torch.tensor([0, 2]), made[0][:2]), torch.sort(x, 0)[0], x.clone()
    return [*made, *views, *computed, *copied]


@pytest.mark.parametrize("wrap", [symshape.compile, symshape.jit])
def test_strides_of_results_without_elements(wrap: Callable[..., Any]) -> None:
    """No size counts as less than 1 in them."""
    compiled = wrap(_of_every_layout)
    for n in (3, 0, 8):
        x = torch.ones(4, n)
        expected = _of_every_layout(x)
        assert [y.stride() for y in compiled(x)] == [y.stride() for y in expected], n
        assert n == 0 or compiled(x)[6].equal(expected[6])


def _written_after(x: torch.Tensor) -> Any:
    y = x.t().contiguous()
    x.add_(1)
    return y * 1


def _written_itself(x: torch.Tensor) -> Any:
    made = x * 2
    y = made.t().reshape(-1)
    y[0] = 7.0
    return y + 0, made


def _slice_of_all(x: torch.Tensor) -> Any:
    y = x[:, :2].contiguous()
    torch._foreach_mul_([x], 3.0)
    return y + 0


def _expanded(x: torch.Tensor) -> Any:
    y = x[:1].expand(3, x.shape[1])
    x[0] = 9.0
    return y * 1


def _written_copy(x: torch.Tensor) -> Any:
    y = (x * 2).t().contiguous()  # nothing shows whether it is a copy
    y.add_(1)
    return y + 0


@pytest.mark.parametrize(
    ("fn", "graphs"),
    [(_written_after, 4), (_written_itself, 4), (_slice_of_all, 5), (_expanded, 2), (_written_copy, 1)],
)
def test_a_write_shows_in_what_is_a_view_at_some_sizes(fn: Callable[..., Any], graphs: int) -> None:
    compiled = symshape.compile(fn, fullgraph=True)
    with Graphs() as made:
        for sizes in ((3, 4), (1, 4), (5, 6), (3, 1), (1, 1), (2, 2), (1, 7)):
            x = torch.arange(1.0, 1 + sizes[0] * sizes[1]).view(sizes)
            ours, theirs = x.clone(), x.clone()
            torch.testing.assert_close((compiled(ours), ours), (fn(theirs), theirs), rtol=0, atol=0)
    assert made.read().graphs <= graphs


def _pairs(x: torch.Tensor) -> Any:
    y = x.permute(1, 2, 0).reshape(-1, 2)  # a view if x.size(0) is 2
    y.mul_(2)
    return y + 0


def _pairs_by_name(x: torch.Tensor) -> Any:
    y = torch.reshape(x.permute(1, 2, 0), shape=(-1, 2))
    x.add_(1)
    return y + 0


def _pairs_like_another(x: torch.Tensor) -> Any:
    y = x.permute(1, 2, 0).reshape_as(x.new_empty(x.numel() // 2, 2))
    return y, x


@pytest.mark.parametrize("fn", [_pairs, _pairs_by_name, _pairs_like_another])
@pytest.mark.parametrize("first", [2, 4])
def test_a_write_shows_in_what_is_a_view_in_some_shapes(fn: Callable[..., Any], first: int) -> None:
    compiled = symshape.compile(fn, fullgraph=True)
    with Graphs() as made:
        for rows, columns in ((first, 5), (2, 7), (4, 3), (6, 5), (8, 2), (2, 3)):
            x = torch.arange(1.0, 1 + 4 * rows * columns).view(rows, columns, 4)
            ours, theirs = x.clone(), x.clone()
            found, expected = compiled(ours), fn(theirs)
            torch.testing.assert_close((found, ours), (expected, theirs), rtol=0, atol=0)
            if fn is _pairs_like_another:
                assert found[0].stride() == expected[0].stride()
                assert (found[0].data_ptr() == ours.data_ptr()) == (rows == 2)
    assert made.read().graphs <= 3


def copied_into_columns(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    doubled = x * 2
    doubled[:, :3].copy_(y)
    return doubled


def column_of_zeros(x: torch.Tensor) -> torch.Tensor:
    made = torch.zeros(x.shape[0], 3, 3)
    made[:, :2, 2] = x[:, :2] * 2
    return made


def block_of_zeros(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    made = y.new_zeros(y.shape[0], 5, 5)
    made[:, 1:4, :4] = x[:, None]
    made[:, 2] += y
    made[:, 0, 1:] = x * 3
    return made


CELL, LONG_CELL = torch.nn.GRUCell(4, 3), torch.nn.LSTMCell(4, 3)
WRITES = {
    "copy": (copied_into_columns, [(4,), (3,)]),
    "column": (column_of_zeros, [(4,)]),
    "block": (block_of_zeros, [(4,), (5,)]),
    "gru": (lambda x, h: CELL(x, h), [(4,), (3,)]),
    "lstm": (lambda x, h, c: LONG_CELL(x, (h, c))[0], [(4,), (3,), (3,)]),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("first", [3, 1, 0])
@pytest.mark.parametrize("program", WRITES.values(), ids=WRITES)
def test_what_is_written_overlaps_itself_at_no_size(program: Any, first: int) -> None:
    """PyTorch asks of each dim of a part of a tensor whether it is larger than 1."""
    function, shapes = program
    torch._dynamo.reset()
    counters.clear()
    compiled = symshape.compile(function, fullgraph=True)
    for rows in (first, 0, 1, 2, 64):
        sides = []
        inputs = [torch.randn(rows, *shape) for shape in shapes]
        for run in (compiled, function):
            leaves = [x.clone().requires_grad_() for x in inputs]
            result = run(*leaves)
            sides.append((result, torch.autograd.grad(result.square().sum(), leaves)))
        torch.testing.assert_close(*sides)
    assert counters["stats"]["unique_graphs"] == 1


def test_what_overlaps_itself_is_not_written() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x[:1].expand(y.shape).copy_(y)

    torch._dynamo.reset()
    compiled = symshape.compile(function, fullgraph=True)
    for rows in (3, 5):
        with pytest.raises(RuntimeError, match="single memory location"):
            function(torch.randn(3, 4), torch.randn(rows, 4))
        with pytest.raises(RuntimeError, match="single memory location"):
            compiled(torch.randn(3, 4), torch.randn(rows, 4))


@pytest.mark.parametrize("first", [3, 1, 0])
def test_bilinear(first: int) -> None:
    torch._dynamo.reset()
    counters.clear()
    layer = torch.nn.Bilinear(4, 5, 3)
    compiled = symshape.compile(layer, fullgraph=True)
    for rows in (first, 0, 1, 2, 64):
        x, y = torch.randn(rows, 4), torch.randn(rows, 5)
        sides = []
        for run in (compiled, layer):
            leaves = [x.clone().requires_grad_(), y.clone().requires_grad_()]
            result = run(*leaves)
            sides.append((result, torch.autograd.grad(result.square().sum(), [*leaves, *layer.parameters()])))
        torch.testing.assert_close(*sides)
    assert counters["stats"]["unique_graphs"] == 1
    with pytest.raises(RuntimeError):
        symshape.compile(F.bilinear)(torch.randn(2, 0), torch.randn(2, 5), torch.randn(3, 0, 5))


@pytest.mark.parametrize("wrap", [symshape.compile, symshape.jit])
@pytest.mark.parametrize("first", [(0, 2, 6, 6), (1, 2, 6, 6), (3, 2, 6, 6)])
def test_images_after_an_empty_batch_keep_their_layout(wrap: Callable[..., Any], first: tuple[int, ...]) -> None:
    def images(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        doubled = F.interpolate(x, scale_factor=2)
        return F.max_pool2d(x, 2), F.avg_pool2d(x, 5), doubled, F.pad(x, (1, 1, 1, 1)), F.adaptive_avg_pool2d(x, 3)

    torch._dynamo.reset()
    counters.clear()
    compiled = wrap(images)
    for size in (first, (2, 2, 8, 10), (3, 5, 6, 7)):
        x = torch.randn(size).to(memory_format=torch.channels_last)
        found, expected = compiled(x), images(x)
        torch.testing.assert_close(found, expected)
        assert 0 in size or [one.stride() for one in found if 1 not in one.shape] == [
            one.stride() for one in expected if 1 not in one.shape
        ]
    assert wrap is symshape.jit or counters["stats"]["unique_graphs"] == 1


def test_a_squeezed_dim_that_is_an_argument() -> None:
    compiled = symshape.compile(lambda x, dim: x.squeeze(dim) * 2, dynamic=True)
    for dim in (-1, 2, -2, -3):
        x = torch.randn(3, 1, 4)
        assert torch.equal(compiled(x, dim), x.squeeze(dim) * 2)
    with pytest.raises(IndexError, match="Dimension out of range"):
        compiled(x, 5)


def test_a_copy_of_a_squeezed_tensor_is_written_to_another() -> None:
    def write(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        return torch.squeeze_copy(x, out=out) * 2

    compiled = symshape.compile(write, fullgraph=True)
    for shape in ((3, 1, 4, 1), (5, 2, 4, 1), (3, 1, 2, 1)):
        x = torch.randn(shape)
        ours, theirs = torch.zeros(x.squeeze().shape), torch.zeros(x.squeeze().shape)
        assert torch.equal(compiled(x, ours), write(x, theirs)) and torch.equal(ours, theirs)


@pytest.mark.parametrize("wrap", [symshape.compile, symshape.jit])
@pytest.mark.parametrize("dim", [(), (0,), ((0, 2),)])
def test_copies_of_squeezed_tensors(wrap: Callable[..., Any], dim: tuple[Any, ...]) -> None:
    def copied(x: torch.Tensor) -> torch.Tensor:
        found = torch.squeeze_copy(x, *dim)
        return found * found.dim()

    torch._dynamo.reset()
    compiled = wrap(copied)
    for shape in ((1, 5, 1, 5), (1, 1, 1, 1), (2, 5, 1, 5), (1, 0, 3, 2)):
        x = torch.randn(shape, requires_grad=True)
        found, expected = compiled(x), copied(x)
        torch.testing.assert_close(found, expected)
        gradients = [torch.autograd.grad(one, x, torch.full_like(expected, 3))[0] for one in (found, expected)]
        torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("odd", [(0, 0), (7, 2)])
def test_any_strides_of_an_empty_tensor(odd: tuple[int, int]) -> None:
    """NumPy gives all dims of an empty array the stride 0. Of a dim that stays constant, the frame's guards failed."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return x * 2 + x.sum()

    compiled = torch.compile(function, backend="symshape")
    with Graphs() as graphs:
        for n in (5, 1, 0, 7):
            x = torch.randn(n, 3) if n else torch.empty(0, 3).as_strided((0, 3), odd)
            torch.testing.assert_close(compiled(x), function(x))
    assert graphs.graphs <= 3
    turned = torch.randn(3, 4).t()
    torch.testing.assert_close(compiled(turned), function(turned), check_stride=True)


def test_empty_arrays_of_numpy() -> None:
    compiled = torch.compile(lambda a: torch.from_numpy(a) * 2 + a.sum(), backend="symshape")
    for n in (5, 1, 0):
        assert compiled(np.ones((n, 3), dtype="float32")).tolist() == [[2.0 + 3 * n] * 3] * n


def test_channels_last_images_of_a_group_norm_that_is_trained() -> None:
    """Its gradient's C++ reads the memory format, for which it asks of each size whether it is 1."""

    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.group_norm(F.conv2d(x, w), 2)

    compiled = symshape.compile(function)
    with Graphs() as graphs:
        for n, size in ((1, 4), (3, 5), (2, 4)):
            x = torch.randn(n, 3, size, 6).to(memory_format=torch.channels_last)
            w = torch.randn(4, 3, 2, 2, requires_grad=True)
            given = torch.randn(n, 4, size - 1, 5)
            found, wanted = (torch.autograd.grad(f(x, w), w, given) for f in (compiled, function))
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert graphs.graphs == 1
