"""Operators whose results, layouts or forms are unlike those of others."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import symshape


def both(function, *args):
    """(ours, eager's) of copies of the arguments."""
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="symshape", dynamic=True, fullgraph=True)
    return [f(*(a.clone() if isinstance(a, torch.Tensor) else a for a in args)) for f in (compiled, function)]


@pytest.fixture(scope="module")
def halves():
    @torch.library.custom_op("symshape_test::halves", mutates_args=())
    def halves(x: torch.Tensor, at: int) -> tuple[list[torch.Tensor], torch.Tensor, int]:
        return [x[:at].clone(), x[at:].clone()], x.sum(), at + 1

    @halves.register_fake
    def _(x, at):
        return [x.new_empty(at), x.new_empty(x.size(0) - at)], x.new_empty(()), at + 1

    return halves


def test_lists_in_tuples_of_results(halves):
    def f(x, at):
        (left, right), total, count = halves(x * 2, at)
        return left + 1, right * total + count

    ours, eager = both(f, torch.randn(7), 3)
    torch.testing.assert_close(ours, eager)


def test_max_unpool2d_keeps_channels_last_and_polygamma_is_in_place():
    def f(x, y):
        pooled, places = F.max_pool2d(x, 2, return_indices=True)
        return F.max_unpool2d(pooled, places, 2), y.polygamma_(1), y + 1

    ours, eager = both(f, torch.randn(2, 3, 4, 6).to(memory_format=torch.channels_last), torch.rand(5) + 1)
    torch.testing.assert_close(ours, eager)
    assert ours[0].stride() == eager[0].stride() == (72, 1, 18, 3)


@pytest.mark.parametrize("place", [-11, -1, 8])
def test_max_unpool_refuses_places_in_other_rows(place):
    def f(x, places):
        return F.max_unpool1d(x, places, 2) * 2

    x, places = torch.ones(1, 3, 4), torch.tensor([1, 2, place, 3]).expand(1, 3, 4)
    for function in (f, symshape.compile(f)):
        with pytest.raises(RuntimeError, match=f"invalid max index: {place} "):
            function(x, places)


def test_the_angle_of_complex_numbers_is_contiguous():
    def f(x, y):
        return torch.complex(x.t(), y.t()).angle(), (torch.complex(x.t(), y.t()).angle() + 1).exp(), x.t().angle()

    for sizes in (4, 6), (5, 3):
        ours, eager = both(f, torch.randn(sizes), torch.randn(sizes))
        torch.testing.assert_close(ours, eager)
        assert [x.stride() for x in ours] == [x.stride() for x in eager]


def test_sizes_by_way_of_floats_are_numbers_in_kernels():
    def f(x):
        return F.interpolate(x, scale_factor=1.7, mode="nearest", recompute_scale_factor=True)

    x = torch.randn(2, 3, 11)
    report = symshape.explain(f, x)
    assert {call for graph in report.graphs for call in graph.library_calls} <= {"python.math.trunc"}
    torch.testing.assert_close(*both(f, x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bits_of_numbers(dtype):
    limits, inf, nan = torch.finfo(dtype), float("inf"), float("nan")
    some = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        1.5,
        3e10,
        -1e-10,
        limits.max,
        -limits.max,
        limits.tiny,
        -limits.tiny,
        limits.eps,
        limits.smallest_normal / 3,
        limits.smallest_normal / 2**20,
        inf,
        -inf,
        nan,
    ]
    x = torch.tensor(some, dtype=dtype)
    report = symshape.explain(lambda x: (torch.nextafter(x[:, None], x), *torch.frexp(x)), x)
    assert report.totals()["library_calls"] == 0
    pairs = zip(report.result, (torch.nextafter(x[:, None], x), *torch.frexp(x)))
    for mine, eager in pairs:
        torch.testing.assert_close(mine, eager, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(mine.signbit() & (mine == 0), eager.signbit() & (eager == 0))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_the_gradient_of_soft_margin_loss_is_kept_for_large_margins(reduction: str) -> None:
    def gradient(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        loss = torch.nn.functional.soft_margin_loss(x, target, reduction=reduction)
        return torch.autograd.grad(loss.sum(), x)[0]

    compiled = symshape.compile(torch.nn.functional.soft_margin_loss)
    for n in (0, 1, 7, 300):
        target = torch.randn(n).sign()
        x = (torch.linspace(-30, 60, n) * target).requires_grad_()
        expected = gradient(x, target)
        loss = compiled(x, target, reduction=reduction)
        actual = torch.autograd.grad(loss.sum(), x)[0]
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_divisors(dtype):
    limits = torch.iinfo(dtype)
    small = [0, 1, 2, 3, 12, 60, 64, 96, limits.max, limits.max - 1, limits.min + 1 if limits.min else 7]
    drawn = torch.randint(limits.min + 1, limits.max, (300,), dtype=dtype)
    fibonacci = [a for a in (1, 2, 3, 5, 8, 13, 21, 34, 55, 89) if a <= limits.max]
    x = torch.cat([torch.tensor(small + fibonacci, dtype=dtype), drawn])
    report = symshape.explain(lambda x: (torch.gcd(x[:, None], x), torch.lcm(x[:40, None], x)), x)
    assert report.totals()["library_calls"] == 0
    assert torch.equal(report.result[0], torch.gcd(x[:, None], x))
    assert torch.equal(report.result[1], torch.lcm(x[:40, None], x))


def test_dropout_that_drops_nothing_is_its_operand():
    def f(x, training):
        return F.dropout(x, 0.0), F.dropout(x, 0.5, training)

    torch._dynamo.reset()
    compiled = torch.compile(f, backend="symshape", dynamic=True, fullgraph=True)
    for x in (torch.randn(6, 4)[::2, ::2], torch.randn(3), torch.randn(0, 2)):
        kept, also = compiled(x, False)
        assert kept is x and also is x
        torch.manual_seed(3)
        dropped = compiled(x, True)[1]
        assert dropped is not x and ((dropped == 0) | torch.isclose(dropped, 2 * x)).all()


def test_as_many_classes_as_there_are():
    def f(x):
        return F.one_hot(x).sum(0), F.one_hot(x + 1) * 2

    torch._dynamo.reset()
    compiled = symshape.compile(f, fullgraph=True)
    for x in (torch.tensor([2, 0, 5]), torch.tensor([0]), torch.tensor([[1, 1], [3, 0]]), torch.arange(17)):
        torch.testing.assert_close(compiled(x), f(x))
    with pytest.raises(RuntimeError, match="non-negative"):
        compiled(torch.tensor([3, -1, 2]))
    with pytest.raises(RuntimeError, match="empty"):
        compiled(torch.zeros(0, dtype=torch.int64))


def test_one_number_for_all_dims_of_an_operator():
    def f(x, size):
        values, places = F.max_pool2d(x, size, return_indices=True)
        return torch.ops.aten.max_pool2d_with_indices_backward.default(
            values * 2, x, size, [size, size], 0, 1, False, places
        )

    torch._dynamo.reset()
    compiled = symshape.compile(f, fullgraph=True)
    for size in (2, 3, 2, 4):
        x = torch.randn(1, 2, 12, 12)
        torch.testing.assert_close(compiled(x, size), f(x, size))


def test_a_conjugate_that_only_the_gradient_makes_is_seen_as_pairs() -> None:
    compiled = symshape.compile(lambda x: torch.fft.ihfft(x, n=4, norm="ortho"))
    for n in (1, 3, 8):
        x, y = (torch.linspace(-1, 2, 2 * n).view(2, n).requires_grad_() for _ in range(2))
        results = compiled(x), torch.fft.ihfft(y, n=4, norm="ortho")
        torch.testing.assert_close(*results)
        assert results[0].is_conj() == results[1].is_conj()
        weights = torch.full_like(results[1].detach(), 1 + 2j)
        torch.testing.assert_close(*(torch.autograd.grad(r, t, weights)[0] for r, t in zip(results, (x, y))))


@pytest.mark.parametrize("is_deterministic", [True, False])
def test_uninitialised_memory_is_filled_where_eager_mode_fills_it(is_deterministic):
    """The setting is looked at when a function is called, as in eager mode."""

    def f(x):
        last = torch.empty(2, 3, 4, 5, memory_format=torch.channels_last)
        numbers = torch.empty(x.shape[0], dtype=torch.int32), torch.empty(2, 3, dtype=torch.bool)
        made = x.new_empty(3), x.new_empty_strided((2, 2), (1, 2)), torch.empty_like(last)
        return torch.empty(2, 1) * x, last, *numbers, *made

    compiled = symshape.compile(f)
    compiled(torch.ones(4))
    usual = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(is_deterministic)
    try:
        for n in (4, 1):
            ours, eager = compiled(torch.ones(n)), f(torch.ones(n))
            assert [x.stride() for x in ours] == [x.stride() for x in eager]
            if is_deterministic:
                torch.testing.assert_close(ours, eager, equal_nan=True)
                assert all(x.isnan().all() for x in ours if x.is_floating_point())
    finally:
        torch.use_deterministic_algorithms(usual)
