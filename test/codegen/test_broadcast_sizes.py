"""Sizes that are 1 at the first call: along the lanes 1 has a form without gathers, and other sizes stay right."""

from __future__ import annotations

import re

import pytest
import torch

import symshape
from symshape.codegen.cpu.objects.target import default
from symshape.codegen.cpu.schedule.forms import forms_of
from symshape.tools.report import KernelReport

SHAPES = (
    ((33, 300), (33, 1), (33, 1)),
    ((33, 300), (33, 300), (33, 1)),
    ((33, 300), (33, 1), (1, 300)),
    ((5, 7), (5, 7), (5, 7)),
    ((1, 1), (1, 1), (1, 1)),
    ((0, 3), (0, 1), (1, 3)),
    ((4, 0), (4, 1), (4, 0)),
    ((4, 0), (4, 0), (4, 1)),
    ((3, 65), (1, 1), (3, 65)),
    ((3, 1), (3, 64), (3, 1)),
    ((9, 50), (1, 50), (9, 1)),
)


def kernel_of(*shapes: tuple[int, int]) -> KernelReport:
    def product(*given: torch.Tensor) -> torch.Tensor:
        result = given[0]
        for other in given[1:]:
            result = result * other
        return result

    (graph,) = symshape.explain(product, *map(torch.randn, shapes)).graphs
    (kernel,) = graph.kernels
    return kernel


def test_a_repeated_element_is_no_gather() -> None:
    kernel = kernel_of((20, 30), (20, 1))
    forms = forms_of(kernel.loops, default())
    assert [form.suffix for form in forms if not form.division.packed] == ["", "_ones"]
    bodies = re.findall(r"@\w+_body\(%context: .*?\n}", kernel.source, re.DOTALL)
    others = [body for body in bodies if "_packed_" not in body.partition("(")[0]]
    assert len(others) == 2 and not any("masked.gather" in body for body in others)


def test_two_such_sizes_have_a_form_for_neither() -> None:
    kernel = kernel_of((20, 30), (20, 1), (1, 1))
    suffixes = [form.suffix for form in forms_of(kernel.loops, default())]
    assert suffixes[0] == "" and {"_ones", "_more"} <= set(suffixes)


@pytest.mark.sample(2)
@pytest.mark.parametrize("gradient", [False, True])
def test_every_shape_in_one_graph(gradient: bool) -> None:
    def function(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> list[torch.Tensor]:
        return [x * y + z, (x + y).exp().sum(1), torch.where(x > 0, z, y)]

    compiled = symshape.compile(function, strict=True)
    for shapes in SHAPES:
        given = [torch.randn(shape, dtype=torch.float64, requires_grad=gradient) for shape in shapes]
        actual, expected = compiled(*given), function(*given)
        if gradient:
            weights = [torch.randn(one.shape, dtype=torch.float64) for one in expected]
            actual, expected = (
                [*results, *torch.autograd.grad(results, given, weights)] for results in (actual, expected)
            )
        for ours, theirs in zip(actual, expected, strict=True):
            torch.testing.assert_close(ours, theirs, msg=lambda text, shapes=shapes: f"{shapes}: {text}")


def test_the_gradient_of_what_is_repeated_is_no_scatter() -> None:
    report = symshape.explain(lambda x, y: x * y, torch.randn(9, 40), torch.randn(9, 1, requires_grad=True))
    report.result.sum().backward()
    kernels = [kernel for graph in report.graphs for kernel in graph.kernels]
    assert len(kernels) > 1 and all(kernel.loops.scatter is None for kernel in kernels)
