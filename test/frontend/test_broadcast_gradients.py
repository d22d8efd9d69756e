"""Gradients of operands that are broadcast where a size that is computed from others is 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape
from symshape.frontend.decompositions.broadcasting import transformed_kernels

aten: Any = torch.ops.aten
Binary = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
# Called by rules alone, on tensors of one shape.
GRADIENTS = ("gelu_backward", "native_dropout_backward", "sigmoid_backward", "tanh_backward", "threshold_backward")


def _differentiable(op: Any) -> bool:
    """Whether an operator of several tensors has a gradient, and rules of autograd of its own."""
    if op._schema.is_mutable or torch.Tag.pointwise not in op.tags:
        return False
    if torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd"):
        return False
    given: list[Any] = []
    for argument in (a for a in op._schema.arguments if not a.kwarg_only):
        tensor = str(argument.type) in ("Tensor", "Optional[Tensor]")
        given.append(torch.full((2,), 2.5, requires_grad=True) if tensor else argument.default_value or 1)
    if sum(isinstance(x, torch.Tensor) for x in given) < 2:
        return False
    try:
        result = op(*given)
    except (RuntimeError, TypeError, NotImplementedError):  # of integers, or an inner operator of a gradient
        return False
    found = isinstance(result, torch.Tensor) and result.requires_grad
    return found and "NotImplemented" not in type(result.grad_fn).__name__


def test_every_pointwise_operator_with_a_gradient_has_a_kernel() -> None:
    packets = (getattr(aten, name) for name in dir(aten))
    ops = [getattr(p, o) for p in packets if hasattr(p, "overloads") for o in p.overloads()]
    missing = [str(op) for op in ops if op not in transformed_kernels() and _differentiable(op)]
    assert [name for name in missing if not any(own in name for own in GRADIENTS)] == []


OPERATORS: dict[str, Binary] = {
    "clamp": lambda a, b: torch.clamp(a, b, b + 1),
    "of two": lambda a, b: torch.clamp(b, a, b),
    "clamp_max": lambda a, b: torch.clamp(b, max=a),
    "igamma": lambda a, b: torch.igamma(a.detach() + 1, b),
    "zeta": lambda a, b: torch.special.zeta(a.detach() + 2, b),
    "ldexp": lambda a, b: torch.ldexp(a, b.detach().round()),
    "clamp_": lambda a, b: (b * 2).clamp_(min=a),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_part_of_size_one(name: str) -> None:
    """The second half of two elements, or of three, is one; with no gradient and with one."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return OPERATORS[name](x.chunk(2, -1)[-1], x)

    compiled = symshape.compile(function, options={"strict": True})
    for size in (2, 3, 2):
        own, other = (torch.arange(1.0, size + 1).requires_grad_() for _ in range(2))
        actual, expected = compiled(own), function(other)
        actual.sum().backward()
        expected.sum().backward()
        torch.testing.assert_close(actual, expected)
        torch.testing.assert_close(own.grad, other.grad)


def _triangular(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.linalg.solve_triangular(a.tril(), b, upper=False)


MATRICES: dict[str, Binary] = {
    "solve": torch.linalg.solve,
    "solve_triangular": _triangular,
    "lstsq": lambda a, b: torch.linalg.lstsq(a, b).solution,
    "cdist": lambda a, b: torch.cdist(a, b.mT),
    "cosine_similarity": lambda a, b: torch.cosine_similarity(a, b[..., :1].mT, -1),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("first", [(3, 1), (1, 1)])
def test_batches_of_size_one(name: str, first: tuple[int, int]) -> None:
    """Of matrices, whose gradients have the batch of the result unless they are summed."""
    function = MATRICES[name]
    compiled = symshape.compile(function, options={"strict": True})
    for left, right in (first, (3, 1), (1, 4), (2, 2)):
        a = (torch.randn(left, 3, 3) / 4 + 2 * torch.eye(3)).requires_grad_()
        b = torch.randn(right, 3, 2, requires_grad=True)
        found = []
        for run in (compiled, function):
            result = run(a, b)
            found.append((result, *torch.autograd.grad(result.sin().sum(), (a, b))))
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)
