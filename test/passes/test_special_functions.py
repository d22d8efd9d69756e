"""Special functions against eager in float64, over ranges, at their poles and ends; one compile for each dtype."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch

import symshape

INF, NAN = float("inf"), float("nan")
ONE = (
    "i0 i1 i0e i1e modified_bessel_k0 modified_bessel_k1 scaled_modified_bessel_k0 scaled_modified_bessel_k1 "
    "bessel_j0 bessel_j1 bessel_y0 bessel_y1 spherical_bessel_j0 erfcx log_ndtr ndtri erfinv gammaln "
    "digamma airy_ai"
).split()
TWO = [f"{shifted}chebyshev_polynomial_{kind}" for shifted in ("", "shifted_") for kind in "tuvw"]
FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    **{name: lambda x, n, name=name: getattr(torch.special, name)(x) for name in ONE},
    "zeta": lambda x, n: torch.special.zeta(*torch.broadcast_tensors(x[:2000, None].abs(), (n - 5) * 1.37)),
    "zeta at integers": lambda x, n: torch.special.zeta(n, x[:2000, None]),
    **{f"polygamma {k}": lambda x, n, k=k: torch.polygamma(k, x) for k in range(1, 5)},
    **{name: lambda x, n, name=name: getattr(torch.special, name)(x[:2000, None].clamp(-40, 40), n) for name in TWO},
}


def arguments(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    ends = [0.0, -0.0, 1.0, 2.0, 8.0, -8.5, 0.5, INF, -INF, NAN, 1e-38, 1 - 1e-7, 1e4, 88.0, 100.0]
    x = [torch.linspace(-1.2, 1.2, 1501), torch.linspace(-30, 30, 2000) + 0.0012, torch.logspace(-30, 8, 300)]
    degrees = torch.tensor([-2.0, 0, 1, 2, 5, 6, 7, 9.7, 20])
    return torch.cat([torch.tensor(ends), *x]).to(dtype), degrees.to(dtype)


@pytest.mark.parametrize(("dtype", "relative"), [(torch.float32, 1e-6), (torch.float64, 1e-9)])
def test_special_functions(dtype: torch.dtype, relative: float) -> None:
    names = list(FUNCTIONS)
    inputs = arguments(dtype)
    report = symshape.explain(lambda x, n: [FUNCTIONS[name](x, n) for name in names], *inputs)
    assert report.totals()["library_calls"] == 0
    for name, actual in zip(names, report.result):
        expected = FUNCTIONS[name](*inputs).double()
        exact = FUNCTIONS[name](*(one.double() for one in inputs)).to(dtype).double()
        # Eager's own Bessel and Airy functions have errors of 1e-6 in float64, near zeros and beyond 5.
        inexact = name == "airy_ai" or ("bessel_" in name and "mod" not in name and "sph" not in name)
        tolerance = 3e-6 if inexact else relative
        near = [
            torch.isclose(actual.double(), one, rtol=tolerance, atol=tolerance, equal_nan=True)
            for one in (expected, exact)
        ]
        wrong = ~(near[0] | near[1])
        wrong &= ~(exact.abs() > 1e300) & ~((name == "polygamma 1") & (expected.abs() > 1e13))
        assert not wrong.any(), f"{name}: {actual[wrong][:3]} instead of {exact[wrong][:3]}"


@pytest.mark.parametrize("ends", [(0.001, 0.5), (0.5, 3), (3, 8), (8, 30), (30, 1e6)])
def test_log_gamma_has_the_digits_of_float64(ends: tuple[float, float]) -> None:
    """Between the fits and the series, too."""
    x = torch.linspace(*ends, 3001, dtype=torch.float64)
    torch.testing.assert_close(symshape.compile(torch.lgamma)(x), torch.lgamma(x), rtol=1e-15, atol=0.0)


def test_inverse_error_function_of_float32() -> None:
    """Of all exponents, up to the last number below 1: within 2 units of the last place."""
    compiled = torch.compile(torch.erfinv, backend="symshape", dynamic=True)
    x = torch.cat([torch.linspace(-1, 1, 20_001), torch.logspace(-38, -1, 500), 1 - torch.logspace(-7.2, -1, 3000)])
    exact = torch.erfinv(x.double())
    finite = exact.isfinite()
    assert torch.equal(compiled(x)[~finite], torch.erfinv(x)[~finite])
    ones = torch.ones(int(finite.sum()), dtype=torch.float64)
    place = torch.ldexp(ones, exact[finite].frexp()[1].clamp(min=-125) - 24)
    assert ((compiled(x)[finite] - exact[finite]).abs() <= 2 * place).all()


def test_log_gamma_next_to_its_zeros() -> None:
    """All digits of eager's, however small the result is."""
    steps = torch.logspace(-15, -0.31, 400, dtype=torch.float64)
    x = torch.cat([zero + sign * steps for zero in (1, 2) for sign in (-1, 1)] + [torch.linspace(0.5, 3, 501).double()])
    torch.testing.assert_close(symshape.compile(torch.lgamma)(x), torch.lgamma(x), rtol=2e-15, atol=0.0)


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
@pytest.mark.parametrize("name", [*TWO, "zeta"])
def test_one_operand_is_a_number(name: str, dtype: torch.dtype) -> None:
    """It has the type of the result before it is computed with: 0.3 is another number in float32, so is 5 - 1e-9."""
    function = getattr(torch.special, name)
    degrees, points = (0, 1, 6, 5 - 1e-9, 2.5), (0.3, 3, 1.0)

    def calls(x: torch.Tensor) -> list[torch.Tensor]:
        return [function(x, n) for n in degrees] + [function(n, x) for n in points]

    x = torch.arange(1, 30).to(dtype) / 16 if dtype.is_floating_point else torch.arange(1, 9)
    report = symshape.explain(calls, x)
    assert report.totals()["library_calls"] == 0
    tolerance = 1e-9 if dtype == torch.float64 else 1e-6
    for size in (len(x), 0, 1):
        given = x[:size].flip(0)
        for i, (actual, eager) in enumerate(zip(report.run(given), calls(given), strict=True)):
            number = (*degrees, *points)[i]
            rounded = torch.tensor(number, dtype=eager.dtype).double().expand(size)
            pair = (given.double(), rounded) if i < len(degrees) else (rounded, given.double())
            assert actual.dtype == eager.dtype
            near = [
                torch.isclose(actual.double(), one, rtol=tolerance, atol=tolerance, equal_nan=True)
                for one in (eager.double(), function(*pair))
            ]
            assert (near[0] | near[1]).all(), f"{name} {number}: {actual} instead of {eager}"


def test_hermite_polynomials() -> None:
    """Of degrees that are data: in float32, beyond which eager's own recurrence loses what is too large for it."""
    degrees = torch.tensor([-3.0, -1, 0, 1, 2, 3, 4.7, 9, 20, 33, 60, 127, 128, 129, 1e6, INF, -INF, NAN])
    x = torch.cat([torch.tensor([0.0, -0.0, 1.0, -1.0, NAN]), torch.linspace(-6, 6, 301)])[:, None]
    for function in (torch.special.hermite_polynomial_h, torch.special.hermite_polynomial_he):
        report = symshape.explain(function, x, degrees)
        assert report.totals()["library_calls"] == 0
        exact = function(x.double(), torch.where(degrees > 128, 1e6, degrees).double())
        exact = torch.where(degrees.isinf() | degrees.isnan(), 0.0, exact).float()
        torch.testing.assert_close(report.result, exact, rtol=1e-6, atol=0, equal_nan=True)
        eager = function(x, degrees)
        kept = eager.isfinite() & (degrees <= 4) | (degrees > 128) | degrees.isnan()
        torch.testing.assert_close(report.result[kept], eager[kept], rtol=1e-5, atol=1e-5, equal_nan=True)
        at_a_number = symshape.explain(partial(function, 0.7), degrees)
        assert at_a_number.totals()["library_calls"] == 0
        at_a_tensor = report.run(torch.full((2, 1), 0.7), degrees)[0]
        torch.testing.assert_close(at_a_number.result, at_a_tensor, rtol=1e-6, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    "name", ["hermite_polynomial_h", "hermite_polynomial_he", "legendre_polynomial_p", "laguerre_polynomial_l"]
)
def test_polynomials_of_a_known_degree(name: str) -> None:
    """In kernels, up to a limit. (A degree that the function closes over is a symbol, no number.)"""
    function = getattr(torch.special, name)
    for dtype, tolerance in ((torch.float32, 1e-6), (torch.float64, 1e-9)):
        ends = torch.tensor([0.0, -0.0, 1.0, -1.0, 1e-30, INF])
        x = torch.cat([ends, torch.linspace(-6, 6, 301), torch.linspace(-1, 1, 100)]).to(dtype)
        report = symshape.explain(lambda x: [function(x, n) for n in (-3, 0, 1, 2, 3, 4.7, 9, 32)], x[::2])
        assert report.totals()["library_calls"] == 0
        for own in (x, x[:1], x[:0], x[:300:3]):
            for degree, actual in zip((-3, 0, 1, 2, 3, 4.7, 9, 32), report.run(own), strict=True):
                exact = function(own.double(), degree).to(dtype)
                torch.testing.assert_close(actual, exact, rtol=tolerance, atol=tolerance, equal_nan=True)
    report = symshape.explain(lambda x: function(x, 33), x)
    assert report.totals()["library_calls"] == 1
    torch.testing.assert_close(report.result, function(x, 33), equal_nan=True)
    assert symshape.compile(lambda x: function(x, 5))(torch.tensor([NAN])).isnan().all()


def test_hypot_of_float32_is_rounded_once() -> None:
    """Also of numbers whose squares are no float32, and below the smallest normal one."""
    compiled = torch.compile(torch.hypot, backend="symshape", dynamic=True)
    generator = torch.Generator().manual_seed(0)
    pool = torch.tensor([0.0, -0.0, 1.0, INF, -INF, NAN, 3e38, 1e-45, 1e-30])
    grid = [side.reshape(-1) for side in torch.meshgrid(pool, pool, indexing="ij")]
    random = [[scale * torch.randn(10_001, generator=generator) for _ in "xy"] for scale in (1, 1e30, 1e-30, 1e-42)]
    for x, y in (grid, *random):
        exact = torch.hypot(x.double(), y.double()).to(torch.float32)
        torch.testing.assert_close(compiled(x, y), exact, rtol=0, atol=0, equal_nan=True)
