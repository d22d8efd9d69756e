"""Decomposed operators against eager mode, with gradients: no library call is left."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.utils import counters

import symshape
from symshape.tools.measure import Graphs

SIZES = [(1, 1), (2, 3), (33, 7)]


def agree(function: Any, *inputs: torch.Tensor, compiled: Any, close: dict[str, float] | None = None) -> None:
    """Results, strides and gradients of the compiled function are eager's."""
    sides = []
    for run in (compiled, function):
        leaves = [x.detach().requires_grad_(x.is_floating_point()) for x in inputs]
        result = run(*leaves)
        torch.manual_seed(0)
        given = torch.randn_like(result)
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        sides.append((result, torch.autograd.grad(result, wanted, given)))
    torch.testing.assert_close(*sides, equal_nan=True, **(close or {}))
    steps = [[step for step, size in zip(x.stride(), x.shape) if size > 1] for x, _ in sides]
    assert steps[0] == steps[1]


def calls(function: Any, *inputs: torch.Tensor) -> set[str]:
    """Library calls of the graphs that compute results, but for views."""
    report = symshape.explain(function, *inputs)
    found = {one for graph in report.graphs for one in graph.library_calls}
    return {one for one in found if not one.startswith(("aten.view_as_", "aten.permute."))}


def torch_compile(function: Any) -> Any:
    return torch.compile(function, backend="symshape", dynamic=True, options={"strict": True})


@pytest.mark.sample(3)
@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 1.5, 2.0, 3.5, float("inf")])
def test_distances(p: float) -> None:
    generator = torch.Generator().manual_seed(1)
    torch._dynamo.reset()

    def between(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.cdist(a, b, p, "donot_use_mm_for_euclid_dist")  # eager loses digits with it

    def among(a: torch.Tensor) -> torch.Tensor:
        return F.pdist(a, p)

    compiled = [symshape.compile(f, fullgraph=True) for f in (between, among)]
    for rows, length in SIZES[1:]:
        a = torch.randn(2, rows, length, generator=generator)
        b = torch.randn(rows + 1, length, generator=generator)
        b[0] = a[0, 0]  # a distance of 0
        agree(between, a, b, compiled=compiled[0], close={"rtol": 2e-5, "atol": 2e-5})
        agree(among, a[1], compiled=compiled[1], close={"rtol": 2e-5, "atol": 2e-5})
    for a, b in ((torch.empty(3, 0), torch.empty(2, 0)), (torch.empty(0, 4), torch.ones(2, 4))):
        agree(between, a, b, compiled=compiled[0])
    with torch.no_grad():
        assert compiled[1](torch.empty(1, 4)).shape == (0,)
    assert not calls(between, torch.randn(4, 6), torch.randn(5, 6)) | calls(among, torch.randn(4, 6))


@pytest.mark.parametrize("p", [1.0, 3.0, float("inf")])
def test_differences_of_pairs_are_not_stored(p: float) -> None:
    (graph,) = symshape.explain(lambda x: F.pdist(x, p), torch.randn(9, 5)).graphs
    (pairs,) = re.findall(r"(\w+) = .* // 2\n", graph.program_source)
    sizes = re.findall(r"empty_strided\(\(([^)]*)\)", graph.program_source)
    of_pairs = [one for one in sizes if pairs in one]
    assert of_pairs and all(one == f"{pairs}," for one in of_pairs), graph.program_source


def test_pairs_of_many_rows_are_the_right_ones() -> None:
    x = torch.arange(1500.0)[:, None] ** 1.5
    torch.testing.assert_close(symshape.compile(lambda x: F.pdist(x, 1.0))(x), F.pdist(x, 1.0))


def test_windows() -> None:
    torch._dynamo.reset()

    def normalised(x: torch.Tensor) -> torch.Tensor:
        return F.local_response_norm(x, 4)

    def smoothed(x: torch.Tensor) -> torch.Tensor:
        return F.avg_pool2d(x, (2, 3), 1)

    for function in (normalised, smoothed):
        compiled = symshape.compile(function, fullgraph=True)
        for batch, channels, size in ((1, 1, 3), (3, 2, 17)):
            x = torch.randn(batch, channels, size, size + 2)
            agree(function, x, compiled=compiled)
            agree(function, x.to(memory_format=torch.channels_last), compiled=compiled)
        assert not calls(function, torch.randn(2, 3, 5, 4))
    x = torch.randn(2, 5, 7, 6)
    for other in (
        lambda x: F.avg_pool2d(x, 2),
        lambda x: F.avg_pool2d(x, 3, 1, padding=1),
        lambda x: F.avg_pool2d(x, 2, 1, divisor_override=3),
    ):
        torch.testing.assert_close(symshape.compile(other)(x), other(x))


def test_complex_numbers_from_real_ones() -> None:
    functions = {
        "complex": torch.complex,
        "polar": torch.polar,
        "cfloat": lambda a, b: (a + b).cfloat(),
        "cdouble": lambda a, b: (a * b).cdouble(),
    }
    for function in functions.values():
        torch._dynamo.reset()
        compiled = symshape.compile(function, fullgraph=True)
        for rows, length in SIZES:
            a, b = torch.randn(3, rows, length), torch.randn(rows, length)
            a[0, 0, 0], b[-1] = 0.0, 0.0
            agree(function, a, b, compiled=compiled)
        agree(function, a.transpose(0, 2), b.t().unsqueeze(-1), compiled=compiled)
    for function in (torch.complex, torch.polar, lambda a, b: a.cfloat(), lambda a, b: b.cdouble()):
        assert not calls(function, torch.randn(3, 4), torch.randn(3, 4))
    a, b, out = torch.randn(4, 3), torch.randn(4, 3), torch.ones(4, 3, dtype=torch.complex64)
    symshape.compile(lambda a, b, out: torch.complex(a, b, out=out))(a, b, out)
    assert torch.equal(out, torch.complex(a, b))


def test_silu_of_complex_numbers() -> None:
    compiled = symshape.compile(F.silu, fullgraph=True)
    for dtype, within in ((torch.complex64, 3e-6), (torch.complex128, 1e-11)):
        for rows, length in SIZES:
            z = torch.complex(torch.randn(rows, length) * 3, torch.rand(rows, length) * 5 - 2.5).to(dtype)
            torch.testing.assert_close(compiled(z.t()), F.silu(z.t()), rtol=within, atol=within)
            assert compiled(z.t()).stride() == F.silu(z.t()).stride()
    z = torch.tensor([-80 + 1j, 80 - 2j, -200 + 3j, 0j])
    torch.testing.assert_close(compiled(z), F.silu(z.to(torch.complex128)).to(torch.complex64), rtol=1e-5, atol=0)
    assert not calls(F.silu, z)


def test_index_fill_with_a_tensor() -> None:
    torch._dynamo.reset()

    def function(x: torch.Tensor, at: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return x.index_fill(-1, at, value)

    compiled = symshape.compile(function, fullgraph=True)
    for rows, length in SIZES:
        x, at = torch.randn(rows, length), torch.tensor([0, length - 1, 0])
        agree(function, x, at, torch.tensor(1.5), compiled=compiled)
        for value in (torch.tensor(2.5), torch.tensor(3)):  # eager's own gradient knows no negative places
            assert torch.equal(compiled(x, at - length, value), function(x, at - length, value))
    assert not calls(
        function, torch.randn(3, 4, requires_grad=True), torch.tensor([1, 1]), torch.tensor(2.0, requires_grad=True)
    )
    with pytest.raises(IndexError):
        compiled(torch.randn(2, 3), torch.tensor([3, 0, 1]), torch.tensor(1.0))


@pytest.mark.long
def test_a_likelihood_asserts_that_variances_are_not_negative() -> None:
    for options in ({}, {"full": True, "reduction": "sum"}, {"eps": 0.5, "reduction": "none"}):
        torch._dynamo.reset()

        def function(x: Any, y: Any, v: Any, options: Any = options) -> torch.Tensor:
            return F.gaussian_nll_loss(x, y, v, **options)

        compiled = symshape.compile(function, fullgraph=True)
        for rows, length in SIZES[1:]:
            x, y = torch.randn(rows, length), torch.randn(rows, length)
            for sizes in ((rows, length), (rows,), (rows, 1)):
                agree(function, x, y, torch.rand(sizes), compiled=compiled)
        with pytest.raises(ValueError, match="negative"):
            compiled(torch.randn(2, 3), torch.randn(2, 3), torch.tensor([[0.5], [-0.5]]))
    assert calls(function, torch.randn(2, 3), torch.randn(2, 3), torch.rand(2, 3)) == {"aten._assert_async.msg"}


@pytest.mark.parametrize("invert", [False, True])
def test_membership_asks_no_number_of_elements(invert: bool) -> None:
    """Of a few elements compared, of others a call: in both cases one graph and one entry for all sizes."""
    torch._dynamo.reset()

    def in_three(x: torch.Tensor) -> torch.Tensor:
        return torch.isin(x, torch.tensor([1.0, float("nan"), 2.5]), invert=invert)

    def in_other(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.isin(x, y, invert=invert)

    for make in (lambda f: symshape.compile(f, fullgraph=True), symshape.jit):
        three, other = make(in_three), make(in_other)
        for n, m in ((3, 400), (90, 2), (7, 31)):
            x, y = torch.randint(0, 6, (n, 2)) / 2, torch.randint(0, 6, (m,)) / 2
            assert torch.equal(three(x), in_three(x))
            assert torch.equal(other(x, y), in_other(x, y))
        assert torch.equal(three(torch.empty(0, 2)), torch.empty(0, 2, dtype=torch.bool))
        if make is symshape.jit:
            assert (len(three.entries), len(other.entries)) == (1, 1)
    assert not calls(in_three, torch.randn(4, 2))


@pytest.mark.parametrize("windows", [(2, 3), (1, 1), (4, 4)])
def test_adaptive_pooling_has_one_graph(windows: tuple[int, int]) -> None:
    """Whether windows are equal is nothing that a graph depends on."""

    def run(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        volume = F.adaptive_max_pool3d(x[:, None].expand(-1, 4, -1, -1, -1), (2, *windows))
        return F.adaptive_max_pool2d(x * 2, windows), F.adaptive_avg_pool2d(x, windows), volume

    torch._dynamo.reset()
    counters.clear()
    compiled = symshape.compile(run, fullgraph=True)
    for size in ((8, 9), (7, 6), (10, 12), (16, 15), (4, 3), (5, 5), (12, 12)):
        x = torch.randn(2, 3, *size, dtype=torch.float64, requires_grad=True)
        found, expected = compiled(x), run(x)
        torch.testing.assert_close(found, expected)
        gradients = [torch.autograd.grad(sum(t.sum() for t in each), x)[0] for each in (found, expected)]
        torch.testing.assert_close(*gradients)
    assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.parametrize("compile", [symshape.compile, symshape.jit])
@pytest.mark.parametrize("dims", [2, 3])
def test_one_window_of_everything(compile: Any, dims: int) -> None:
    """Of equal elements the first is named, of NaN the last."""

    def run(x: torch.Tensor) -> Any:
        return (F.adaptive_max_pool2d if dims == 2 else F.adaptive_max_pool3d)(x, 1, return_indices=True)

    torch._dynamo.reset()
    counters.clear()
    compiled = compile(run)
    for batch, size in ((2, 5), (0, 3), (3, 1), (1, 7)):
        for nans in (0, 1, 9):
            x = torch.randn(batch, 3, *range(size, size + dims)).round()
            if batch:
                x.view(-1)[torch.randint(0, x.numel(), (nans,))] = torch.nan
            x.requires_grad_()
            found, expected = compiled(x), run(x)
            torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
            gradients = [torch.autograd.grad(each[0].nansum(), x)[0] for each in (found, expected)]
            torch.testing.assert_close(*gradients, rtol=0, atol=0)
    with pytest.raises(RuntimeError, match="non-zero size"):
        compiled(torch.randn(2, 3, *[0] * dims))
    assert compile is symshape.jit or counters["stats"]["unique_graphs"] == 1
    assert compile is symshape.compile or len(compiled.entries) == 1


@pytest.mark.parametrize(
    ("indices", "graphs"),
    [
        (lambda x: x.argsort(1), 1),
        (lambda x: x.argmax(1, keepdim=True), 1),
        (lambda x: torch.tensor([[0, -1 % x.shape[1]]]), 2),  # repeated for every row, but for one row
    ],
)
def test_take_along_dim_is_no_graph_for_each_size(indices: Any, graphs: int) -> None:
    def run(x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.take_along_dim(x * 2, i, 1), torch.take_along_dim(x, i, -1), torch.take_along_dim(x, i[:1])

    torch._dynamo.reset()
    counters.clear()
    compiled = symshape.compile(run, fullgraph=True)
    for size in ((6, 8), (7, 9), (1, 5), (3, 1), (16, 11)):
        x = torch.randn(*size, dtype=torch.float64, requires_grad=True)
        i = indices(x.detach())
        found, expected = compiled(x, i), run(x, i)
        torch.testing.assert_close(found, expected)
        gradients = [torch.autograd.grad(sum(t.square().sum() for t in each), x)[0] for each in (found, expected)]
        torch.testing.assert_close(*gradients)
    assert counters["stats"]["unique_graphs"] == graphs


def test_take_along_dim_counts_from_the_end_where_eager_mode_does() -> None:
    def run(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return torch.take_along_dim(x, i, 1) * 2

    compiled = symshape.compile(run, fullgraph=True)
    i = torch.tensor([[0, -1, -2]])
    try:
        expected = run(torch.arange(12.0).view(3, 4), i)
    except RuntimeError:
        pytest.skip("this version of PyTorch refuses negative indices")
    torch.testing.assert_close(compiled(torch.arange(12.0).view(3, 4), i), expected)
    torch.testing.assert_close(compiled(torch.arange(14.0).view(2, 7), i), run(torch.arange(14.0).view(2, 7), i))


def _pooled_rows(x: torch.Tensor) -> torch.Tensor:
    return F.max_pool1d(x * 2, 2) + F.max_pool1d(x, 3, 2, 1, ceil_mode=True)[..., : x.shape[-1] // 2]


def _padded_to_a_multiple(x: torch.Tensor) -> torch.Tensor:
    return F.pad(x.sin(), (1, -x.shape[-1] % 4))


def _padded_or_cut(x: torch.Tensor) -> torch.Tensor:
    missing = x.shape[0] - x.shape[-1]
    return F.pad(x.sin(), (missing // 2, missing - missing // 2))


@pytest.mark.parametrize("function", [_pooled_rows, _padded_to_a_multiple, _padded_or_cut])
@pytest.mark.parametrize("compile", [symshape.compile, symshape.jit])
def test_one_graph_for_all_lengths(function: Any, compile: Any) -> None:
    """Windows are no numbers, and whether padding adds or takes away is nothing that a graph depends on."""
    torch._dynamo.reset()
    counters.clear()
    compiled = compile(function)
    for size in ((5, 7), (4, 8), (3, 2), (7, 7), (2, 13)):
        agree(function, torch.randn(*size, dtype=torch.float64), compiled=compiled)
    assert compile is symshape.jit or counters["stats"]["unique_graphs"] == 1
    assert compile is symshape.compile or len(compiled.entries) == 1


@pytest.mark.sample(3)
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("compile", [symshape.compile, symshape.jit])
@pytest.mark.filterwarnings("ignore:Since version 1.3.0, affine_grid")
def test_affine_grids_have_gradients(compile: Any, align: bool) -> None:
    """Their own takes no symbolic sizes. Which size is the least is no guard."""

    def flat(x: torch.Tensor, theta: torch.Tensor) -> torch.Tensor:
        return torch.affine_grid_generator(theta, x.shape, align).sin() + F.affine_grid(theta, x.shape, align)

    def deep(x: torch.Tensor, theta: torch.Tensor) -> torch.Tensor:
        batch = x.shape[0]
        return F.affine_grid(theta.new_ones(batch, 3, 4) * theta.sum(), [batch, 1, 2, *x.shape[2:]], align)

    torch._dynamo.reset()
    counters.clear()
    compiled = [compile(function) for function in (flat, deep)]
    for size in ((2, 3, 4, 5), (1, 1, 7, 2), (3, 2, 1, 6), (5, 7, 3, 1)):
        x, theta = torch.zeros(*size, dtype=torch.int64), torch.randn(size[0], 2, 3, dtype=torch.float64)
        for function, ours in zip((flat, deep), compiled):
            agree(function, x, theta, compiled=ours)
    if compile is symshape.compile:
        assert counters["stats"]["unique_graphs"] == 2
    else:
        assert [len(ours.entries) for ours in compiled] == [1, 1]
    for function in (flat, *compiled[:1]):
        with pytest.raises((RuntimeError, ValueError), match="non-zero"):
            function(torch.ones(2, 3, 0, 5), torch.ones(2, 2, 3))


@pytest.mark.sample(2)
@pytest.mark.parametrize("compile", [symshape.compile, symshape.jit, torch_compile])
@pytest.mark.filterwarnings("ignore:Since version 1.3.0, affine_grid")
def test_grid_sampling_is_a_call_on_cpus(compile: Any) -> None:
    """Forward and backward, of any size, as PyTorch's own operators. (Plain torch.compile knows sizes as well.)"""

    def transformed(x: torch.Tensor, theta: torch.Tensor) -> torch.Tensor:
        grid = F.affine_grid(theta.expand(x.shape[0], 2, 3), [*x.shape], align_corners=False)
        return F.grid_sample(x.sin(), grid, padding_mode="border", align_corners=False).exp()

    def solid(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        return F.grid_sample(x.cos(), grid, mode="nearest", align_corners=True)

    torch._dynamo.reset()
    compiled = [compile(function) for function in (transformed, solid)]
    theta = torch.tensor([[0.97, 0.1, 0.03], [0.02, 0.9, 0.1]], dtype=torch.float64)  # no point is on an edge
    for batch, channels, height, width in ((2, 3, 4, 5), (3, 2, 7, 2), (1, 1, 1, 6), (0, 3, 5, 5)):
        x = torch.randn(batch, channels, height, width, dtype=torch.float64)
        if batch:  # a grid is of something
            agree(transformed, x, theta, compiled=compiled[0])
        agree(solid, x[:, :, None], torch.rand(batch, 2, 3, height, 3, dtype=torch.float64), compiled=compiled[1])
    found = calls(transformed, torch.randn(2, 3, 4, 5, requires_grad=True), theta.float())
    assert any("grid_sampler_2d" in one for one in found), found


@pytest.mark.parametrize("compile", [symshape.compile, symshape.jit])
def test_maxima_of_windows_without_gradients(compile: Any) -> None:
    def run(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return F.max_pool1d(x, 2), F.max_pool1d(x[:, None], 3, 2), F.max_pool1d(x, 2, 1, dilation=2)

    compiled = compile(run)
    for size in ((2, 9), (1, 3), (3, 8), (4, 64)):
        x = torch.randn(*size)
        x[0, 1] = float("nan")
        torch.testing.assert_close(compiled(x), run(x), rtol=0, atol=0, equal_nan=True)
    if compile is symshape.jit:
        assert len(compiled.entries) == 1
    assert not any("pool" in one for one in calls(run, torch.randn(3, 9)))


def test_roll_copies_two_slices() -> None:
    """It gathered each element by a remainder: no element is divided for, and none is gathered."""
    torch._dynamo.reset()
    x = torch.randn(5, 7)
    report = symshape.explain(lambda x: x.roll((3, -1), (1, 0)), x)
    assert torch.equal(report.result, x.roll((3, -1), (1, 0)))
    (kernels,) = [graph.stages["kernels"] for graph in report.graphs]
    assert "remsi" not in kernels and "tensor.extract " not in kernels


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "window, dilation, padding, stride",
    [
        ((3, 3), 1, 1, 1),
        ((3, 2), 2, (1, 2), 1),
        ((2, 2), 1, 0, 2),
        ((4, 3), 1, (1, 2), (5, 4)),
        ((3, 1), (1, 2), (0, 1), (3, 2)),
        ((3, 3), 1, 1, 2),  # patches that overlap, with steps: still tables of indices
    ],
)
def test_patches_of_images(window: Any, dilation: Any, padding: Any, stride: Any) -> None:
    """Forward and backward, to the last bit: elements are added in eager mode's order."""
    torch._dynamo.reset()

    def patches(x: torch.Tensor) -> torch.Tensor:
        return F.unfold(x, window, dilation, padding, stride)

    def image(x: torch.Tensor) -> torch.Tensor:
        columns = F.unfold(x, window, dilation, padding, stride) * 2 + 1
        return F.fold(columns, x.shape[-2:], window, dilation, padding, stride)

    for function in (patches, image):
        compiled = symshape.compile(function, fullgraph=True)
        for size in ((2, 3, 7, 8), (1, 1, 9, 9), (0, 2, 8, 8), (2, 3, 16, 40), (3, 8, 12)):
            x = torch.randn(size, requires_grad=True)
            got, expected = compiled(x), function(x)
            assert torch.equal(got, expected) and got.stride() == expected.stride()
            (got,) = torch.autograd.grad(got.square().sum(), x)
            (expected,) = torch.autograd.grad(expected.square().sum(), x)
            torch.testing.assert_close(got, expected)
        with pytest.raises(RuntimeError, match="non-zero dimensions"):
            compiled(torch.randn(1, 1, 1, 0))
    found = symshape.explain(image, torch.randn(2, 3, 7, 8)).totals()
    assert found["library_calls"] == 0 and (found["kernels"] <= 2 or (window, stride) == ((3, 3), 2))


def _images(dtype: torch.dtype = torch.float32) -> Any:
    """With NaN, infinities, and windows of nothing but the least number."""
    for size in ((2, 3, 7, 8), (1, 1, 4, 5), (0, 2, 6, 6), (2, 20, 17, 40), (3, 8, 12)):
        x = torch.randn(size).mul(2).round()  # many are equal
        if x.numel():
            x[..., :3, :3] = -torch.inf
            x.view(-1)[3::11] = torch.nan
            x.view(-1)[5::7] = torch.inf
        yield x.to(dtype)
        if x.dim() == 4:
            yield x.to(dtype, memory_format=torch.channels_last)


WINDOWS = [(2, 2, 0, 1), (3, 2, 1, 1), ((2, 3), (3, 1), (1, 0), 2)]


def _maxima(window: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    def pooled(x: torch.Tensor) -> Any:
        values, indices = F.max_pool2d(x, window, stride, padding, dilation, return_indices=True)
        return values, indices, F.max_pool2d(x.abs(), window, stride, padding, dilation)

    return pooled


@pytest.mark.sample(7)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("arguments", WINDOWS)
def test_maxima_of_images(arguments: Any, dtype: torch.dtype) -> None:
    """And where they are: the first of equal ones, NaN before all."""
    torch._dynamo.reset()
    pooled = _maxima(*arguments)
    compiled = symshape.compile(pooled)
    for x in _images(dtype):
        for got, expected in zip(compiled(x), pooled(x), strict=True):
            torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
            assert got.stride() == expected.stride() or {0, 1} & {*expected.shape}


@pytest.mark.sample(2)
@pytest.mark.parametrize("arguments", WINDOWS)
def test_maxima_of_images_have_gradients(arguments: Any) -> None:
    torch._dynamo.reset()
    pooled = _maxima(*arguments)
    report = symshape.explain(pooled, torch.randn(2, 3, 7, 8))
    compiled = report.compiled
    assert not any("pool" in one for graph in report.graphs for one in graph.library_calls)
    x = torch.randn(2, 3, 9, 10, dtype=torch.float64, requires_grad=True)
    (got,) = torch.autograd.grad(compiled(x)[0].square().sum(), x)
    (expected,) = torch.autograd.grad(pooled(x)[0].square().sum(), x)
    torch.testing.assert_close(got, expected)
    if arguments[2] == 0:
        with pytest.raises(RuntimeError, match="too small"):
            compiled(torch.randn(1, 1, 1, 1))


@pytest.mark.sample(3)
@pytest.mark.parametrize("first", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("arguments", WINDOWS)
def test_gradients_of_maxima_of_every_size_are_one_operator(arguments: Any, first: torch.memory_format) -> None:
    torch._dynamo.reset()
    pooled = _maxima(*arguments)
    report = symshape.explain(
        lambda x: pooled(x * 2)[0].square(), torch.randn(2, 3, 7, 8).to(memory_format=first).requires_grad_()
    )
    report.result.sum().backward()
    sizes = [(1, 1, 5, 9), (0, 3, 7, 8), (3, 17, 11, 7), (1, 4, 7, 13), (4, 1, 6, 6)]
    for size in sizes:
        for layout in (torch.contiguous_format, torch.channels_last):
            x = torch.randn(size).round(decimals=1)
            x.view(-1)[::11] = torch.nan
            x = x.to(memory_format=layout).requires_grad_()
            (got,) = torch.autograd.grad(report.compiled(x).nan_to_num().sum(), x)
            (expected,) = torch.autograd.grad(pooled(x * 2)[0].square().nan_to_num().sum(), x)
            torch.testing.assert_close(got, expected, equal_nan=True)
    backward = [graph for graph in report.graphs if graph.kind == "backward"]
    assert 2 * len(backward) == len(report.graphs) <= 6  # contiguous, channels-last, and of one channel, which is both
    assert all(any("max_pool2d_with_indices_backward" in call for call in g.library_calls) for g in backward)


@pytest.mark.parametrize(
    "window, stride, padding, own", [(2, 2, 0, True), (3, 2, 1, True), ((2, 3), (3, 1), (1, 0), False)]
)
def test_averages_of_images(window: Any, stride: Any, padding: Any, own: bool) -> None:
    torch._dynamo.reset()

    def pooled(x: torch.Tensor) -> torch.Tensor:
        return F.avg_pool2d(x, window, stride, padding, count_include_pad=own)

    compiled = symshape.compile(pooled)
    for size in ((2, 3, 7, 8), (1, 1, 4, 5), (0, 2, 6, 6), (2, 20, 17, 40), (3, 8, 12)):
        x = torch.randn(size, requires_grad=True)
        for one in (x, x.to(memory_format=torch.channels_last) if len(size) == 4 else x):
            got, expected = compiled(one), pooled(one)
            torch.testing.assert_close(got, expected)
            assert got.stride() == expected.stride() or {0, 1} & {*expected.shape}
            (got,) = torch.autograd.grad(got.square().sum(), x)
            (expected,) = torch.autograd.grad(expected.square().sum(), x)
            torch.testing.assert_close(got, expected)
    assert any("pool" in one for one in calls(pooled, torch.randn(2, 3, 7, 8))) != own


def test_sums_of_complex_numbers_copy_neither() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [x * y + x, torch.add(x, y[0], alpha=2), x.mT + y.mT.conj(), x + y.real, x[::2, ::3] + 1j]

    compiled = symshape.compile(function)
    for dtype in (torch.complex64, torch.complex128):
        for shape in ((4, 3), (1, 1), (7, 0), (31, 17)):
            found = []
            x, y = (torch.randn(shape, dtype=dtype) for _ in range(2))
            for each in (compiled, function):
                leaves = [x.clone().requires_grad_(), y.clone().requires_grad_()]
                results = each(*leaves)
                sum(one.abs().square().sum() for one in results).backward()
                found.append([*results, *(leaf.grad for leaf in leaves)])
            torch.testing.assert_close(found[0], found[1])
    (graph,) = symshape.explain(lambda x, y: x + y, x, y).graphs
    assert graph.program_source.count("aten_") == 1


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.complex64])
@pytest.mark.parametrize("dim", [-1, 0])
def test_cross_products(dtype: torch.dtype, dim: int) -> None:
    """Of vectors that are broadcast, and are not contiguous; no index is computed."""

    def cross(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.linalg.cross(a, b, dim=dim)

    compiled = torch_compile(cross)
    for shapes in (((5, 3), (5, 3)), ((1, 3), (7, 3)), ((0, 3), (0, 3)), ((41, 3), (41, 3))):
        a, b = ((torch.randn(shape) * 5).to(dtype) for shape in shapes)
        if dim == 0:
            a, b = a.t(), b.t()
        torch.testing.assert_close(compiled(a, b), cross(a, b))
        if dtype.is_floating_point:
            agree(cross, a, b, compiled=compiled)
    if not dtype.is_complex:
        report = symshape.explain(cross, a, b)
        assert report.totals()["library_calls"] == 0
        assert [len(graph.kernels) for graph in report.graphs] == [1]
    with pytest.raises(RuntimeError, match="must have length 3"):
        compiled(a[:, :2], b[:, :2]) if dim else compiled(a[:2], b[:2])


@pytest.mark.parametrize("gradient", [False, True])
def test_shuffled_channels_have_memory_of_their_own(gradient: bool) -> None:
    """Also where there is one channel in each group, or one group, so that nothing moves."""

    def shuffled(x: torch.Tensor) -> list[torch.Tensor]:
        return [F.channel_shuffle(x.reshape(1, 2, -1, 1), 2), F.channel_shuffle(x.reshape(1, -1, 2, 1), 1)]

    for make in (symshape.compile, symshape.jit, torch_compile):
        compiled = make(shuffled)
        for size in (4, 2, 6):
            x = torch.randn(size, requires_grad=gradient)
            for actual, expected in zip(compiled(x), shuffled(x)):
                torch.testing.assert_close(actual, expected)
                assert actual.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()


def _interleaved(x: torch.Tensor) -> torch.Tensor:
    y, turn = torch.zeros_like(x), torch.ones(x.shape[1], 4)[None, :, None]
    y[..., ::2] = x[..., ::2] * turn
    y[..., 1::2] = x[..., 1::2] * turn
    return y


def _filled(x: torch.Tensor) -> list[torch.Tensor]:
    formats = (torch.channels_last, torch.contiguous_format, torch.preserve_format)
    made = [torch.full_like(x, 2, memory_format=one, dtype=torch.int8) for one in formats]
    return [x * x, *made, *(torch.zeros_like(x.mT, memory_format=one) for one in formats)]


@pytest.mark.parametrize("function", [_interleaved, _filled])
def test_filled_tensors_ask_for_no_sizes(function: Callable[..., Any]) -> None:
    compiled = symshape.compile(function, fullgraph=True)
    with Graphs() as made:
        for n in (5, 0, 1, 2, 7):
            ours, theirs = (torch.ones(2, n, 3, 8).requires_grad_() for _ in range(2))
            actual, expected = compiled(ours), function(theirs)
            torch.testing.assert_close(actual, expected)
            for found, wanted in zip(actual, expected):
                assert n == 0 or found.stride() == wanted.stride()
            (actual if function is _interleaved else actual[0]).sum().backward()
            (expected if function is _interleaved else expected[0]).sum().backward()
            torch.testing.assert_close(ours.grad, theirs.grad)
    assert made.read().graphs == 1
