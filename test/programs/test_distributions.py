"""Distributions over vectors: one graph for all sizes, values and gradients as in eager mode."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.distributions import (
    Beta,
    Dirichlet,
    Gamma,
    LowRankMultivariateNormal,
    MultivariateNormal,
    StudentT,
    kl_divergence,
)

import symshape
from symshape.tools.measure import Graphs

Tensor = torch.Tensor


def _normal(x: Tensor, scale: float) -> MultivariateNormal:
    return MultivariateNormal(x * scale, scale_tril=torch.outer(x, x).tril() * 0.1 + scale * torch.eye(x.shape[-1]))


def divergence(x: Tensor) -> Tensor:
    return kl_divergence(_normal(x, 1.0), _normal(x, 2.0))


def divergence_of_batches(x: Tensor) -> Tensor:
    return kl_divergence(_normal(x, 1.0).expand([3, 1]), _normal(x, 2.0).expand([2]))


def divergence_from_low_rank(x: Tensor) -> Tensor:
    other = LowRankMultivariateNormal(x, x[:, None], x.square() + 1)
    return kl_divergence(_normal(x, 1.0), other)


def density(x: Tensor) -> Tensor:
    return _normal(x, 1.5).log_prob(torch.outer(x, x))


_expanded = pytest.param(
    divergence_of_batches,
    marks=pytest.mark.xfail(
        torch.__version__ < "2.12", raises=RuntimeError, reason="Dynamo of 2.11 traces no object.__new__"
    ),
)


@pytest.mark.sample(2)
@pytest.mark.parametrize("function", [divergence, _expanded, divergence_from_low_rank, density])
def test_normal_distributions(function: Callable[[Tensor], Tensor]) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = symshape.compile(function, fullgraph=True, strict=True)
    for size in (4, 1, 7, 2):
        found = []
        for run in (function, compiled):  # the first call of kl_divergence notes which rule it took
            x = torch.arange(1, size + 1).sin().requires_grad_()
            result = run(x)
            result.sum().backward()
            found.append((result, x.grad))
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def gammas(x: Tensor) -> Tensor:
    return Gamma(x, x).rsample() + StudentT(x + 2, x, x).rsample()


def simplices(x: Tensor) -> Tensor:
    return Dirichlet(x.mT).rsample().mT + Beta(x, x + 1).rsample()


@pytest.mark.parametrize("function", [gammas, simplices])
def test_draws_have_gradients(function: Callable[[Tensor], Tensor]) -> None:
    compiled = symshape.compile(function, fullgraph=True, strict=True)
    with Graphs() as made:
        for rows in (4, 0, 1, 7):
            found = []
            for run in (function, compiled):
                x = torch.linspace(0.5, 2, 3 * rows).view(rows, 3).requires_grad_()
                torch.manual_seed(rows)
                result = run(x)
                result.square().sum().backward()
                found.append((result, x.grad))
            torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
    assert made.read().graphs == 1


def test_draws_of_permuted_parameters_are_contiguous() -> None:
    def draws(x: Tensor) -> list[Tensor]:
        rates, counts = x.mT, x.mT.floor() * 5
        half = torch.full_like(rates, 0.5)
        made = [torch.poisson(rates), torch._standard_gamma(rates), torch.binomial(counts, half)]
        return [*made, torch._standard_gamma_grad(rates, rates + 1), torch._sample_dirichlet(rates)]

    x = torch.linspace(0.5, 2, 12).view(4, 3)
    compiled = symshape.compile(draws, fullgraph=True, strict=True)
    torch.manual_seed(0)
    actual = compiled(x)
    torch.manual_seed(0)
    for found, expected in zip(actual, draws(x), strict=True):
        assert found.stride() == expected.stride()
        torch.testing.assert_close(found, expected)
