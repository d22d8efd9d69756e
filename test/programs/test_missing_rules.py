"""Operators that PyTorch's tracer has no rule for, or stops at because they read data."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F

import symshape
from symshape.frontend.decompositions.result_types import result_type


def compiled(function):
    torch._dynamo.reset()
    return symshape.compile(function, fullgraph=True)


def same(ours, theirs):
    torch.testing.assert_close(ours, theirs, equal_nan=True)
    if isinstance(theirs, torch.Tensor):
        ours, theirs = [ours], [theirs]
    for mine, other in zip(ours, theirs):
        assert mine.numel() == 0 or all(a == b for a, b, n in zip(mine.stride(), other.stride(), other.shape) if n > 1)


def gradients(function, *args):
    leaves = [a.clone().requires_grad_(a.is_floating_point() or a.is_complex()) for a in args]
    results = function(*leaves)
    results = results if isinstance(results, tuple) else (results,)
    wanted = [x for x in results if x.requires_grad]
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(x.shape, generator=generator, dtype=x.dtype) for x in wanted]
    return torch.autograd.grad(wanted, [x for x in leaves if x.requires_grad], weights, allow_unused=True)


@pytest.mark.parametrize(("name", "dtype"), [("cov", torch.float64), ("corrcoef", torch.complex128)])
@pytest.mark.filterwarnings("ignore:cov")
def test_covariance(name, dtype):
    function = getattr(torch, name)
    ours = compiled(function)
    for shape in ((), (7,), (3, 1), (3, 8), (5, 9), (2, 0)):
        x = torch.randn(shape, dtype=dtype)
        same(ours(x), function(x))
        if x.numel() > max(shape, default=0) > 1:
            torch.testing.assert_close(gradients(ours, x), gradients(function, x))


@pytest.mark.filterwarnings("ignore:cov")
def test_covariance_with_weights():
    def f(x, counts, weights, correction):
        return torch.cov(x, correction=correction, fweights=counts, aweights=weights), torch.cov(x, fweights=counts)

    ours = compiled(f)
    for n in (2, 5, 8):  # of one observation with weights eager mode overwrites what it is given
        x, counts, weights = torch.randn(3, n).double(), torch.randint(1, 4, (n,)), torch.rand(n).double() + 0.1
        for correction in (0, 1, 30):
            same(ours(x, counts, weights, correction), f(x, counts, weights, correction))
        found = [gradients(lambda x, w, g=g, n=counts: g(x, n, w, 0), x, weights) for g in (ours, f)]
        torch.testing.assert_close(*found)
    with pytest.raises(RuntimeError, match="negative"):
        ours(x, -counts, weights, 1)
    with pytest.raises(RuntimeError, match="sum to zero"):
        ours(x, counts * 0, weights, 1)


def test_fractional_pooling_of_volumes():
    def f(x, samples):
        return F.fractional_max_pool3d(x, 2, output_size=(2, 3, 2), _random_samples=samples)

    ours = compiled(f)
    for n, size in ((1, 4), (2, 5), (3, 6)):
        args = torch.randn(n, 2, size, size + 1, size), torch.rand(n, 2, 3)
        same(ours(*args), f(*args))
        found = [gradients(lambda x, g=g, y=args[1]: g(x, y), args[0]) for g in (ours, f)]
        torch.testing.assert_close(*found)


@pytest.mark.parametrize("wrap", [compiled, symshape.jit])
def test_fake_quantisation(wrap):
    """By numbers, by tensors and by channel, and with numbers that are learnt."""

    def f(x, scale, zero):
        places = torch.zeros_like(scale, dtype=torch.int32)
        return (
            torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -8, 7),
            torch.fake_quantize_per_tensor_affine(x.t(), scale[:1].detach(), places[:1], 0, 5),
            torch.fake_quantize_per_channel_affine(x, scale.detach(), places, 1, -8, 7),
            torch._fake_quantize_learnable_per_tensor_affine(x, scale[:1], zero[:1], -8, 7, 0.5),
            torch._fake_quantize_learnable_per_channel_affine(x, scale, zero, 1, -8, 7, 0.5),
        )

    ours = wrap(f)
    for n in (7, 2, 1, 0, 40):
        args = torch.randn(n, 3), torch.rand(3) + 0.05, torch.zeros(3)
        same(ours(*args), f(*args))
        torch.testing.assert_close(gradients(ours, *args), gradients(f, *args))


def test_column_major_factors():
    def f(x):
        return torch.geqrf(x)

    ours = compiled(f)
    for shape in ((3, 5), (5, 3), (1, 4), (0, 3), (3, 0)):
        x = torch.randn(shape)
        same(tuple(ours(x)), tuple(f(x)))


@pytest.mark.parametrize("driver", ["gelsy", "gels", "gelsd", "gelss"])
def test_least_squares(driver):
    def f(a, b):
        return tuple(torch.linalg.lstsq(a, b, driver=driver))

    for batch, columns in (((), (2,)), ((), ()), ((3,), (2,)), ((2, 3), ())):
        ours = compiled(f)
        for m, n in ((3, 3), (3, 5), (6, 4), (7, 2), (0, 2)):
            a, b = torch.randn(*batch, m, n).double(), torch.randn(*batch, m, *columns).double()
            same(ours(a, b), f(a, b))
            if driver == "gelsd" and m > n:
                torch.testing.assert_close(gradients(ours, a, b), gradients(f, a, b))
    if driver == "gelsd":  # no residuals where the rank is not full
        _, residuals, rank, _ = ours(torch.ones(5, 3).double(), torch.randn(5, 2).double())
        assert residuals.numel() == 0 and rank == 1


def test_histograms_in_more_dims():
    def f(x, weights):
        counts, edges = torch.histogramdd(x, [4, 3], weight=weights)
        given = torch.histogramdd(x, edges, density=True).hist
        return counts, *edges, given, *torch.histogram(x, edges[0])

    ours = compiled(f)
    for n in (2, 5, 33):
        args = torch.randn(n, 2), torch.rand(n)
        same(ours(*args), f(*args))


def test_types_of_results_with_scalars():
    """Of tensors with and without dims, where PyTorch's tracing rules have another type than its kernels."""

    def types(x, s):
        made = torch.block_diag(s, x), torch.addr(s, x, x)
        return *made, *(y.element_size() * x.size(0) for y in made)

    function, scalar = compiled(types), torch.tensor(1.5, dtype=torch.float64)
    for n in (0, 2, 5):
        x = torch.randn(n)
        torch.testing.assert_close(function(x, scalar), types(x, scalar))


def test_result_type_is_pytorch_s():
    dtypes = [
        torch.bool,
        torch.uint8,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.complex64,
        torch.complex128,
    ]
    operands = [torch.ones(shape, dtype=dtype) for shape in ((), (1,)) for dtype in dtypes]
    for x, y in itertools.product(operands, repeat=2):
        assert result_type([x, y]) == torch.result_type(x, y)


@pytest.mark.parametrize("batch_first", [False, True])
def test_packed_rows(batch_first):
    """PyTorch's rule takes the number of packed rows for known, and the batch sizes for floats."""

    def f(x, lengths):
        data, batches = torch._VF._pack_padded_sequence(x, lengths, batch_first)
        return data * 2, batches + 1

    ours = symshape.jit(f)
    for lengths in ([3, 2], [5, 5, 1], [1]):
        x, lengths = torch.randn(lengths[0], len(lengths), 4), torch.tensor(lengths)
        x = x.transpose(0, 1).contiguous() if batch_first else x
        same(ours(x, lengths), f(x, lengths))
    assert len(ours.entries) == 1
