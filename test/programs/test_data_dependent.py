"""Programs whose sizes are in the data: compiled once, for every value what eager gives, its errors too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from data_dependent import DATA_DEPENDENT, DataProgram

from symshape.backend import symshape_backend
from symshape.report import GraphReport
from symshape.settings import compile_with

PROGRAMS = {program.name: program for program in DATA_DEPENDENT}


def compiled(function: Callable[..., Any]) -> tuple[Callable[..., Any], list[GraphReport]]:
    reports: list[GraphReport] = []

    def backend(graph: Any, inputs: Any) -> Any:
        return symshape_backend(graph, inputs, reports=reports)

    return compile_with(function, backend, fullgraph=True), reports


def outcome(function: Callable[..., Any], program: DataProgram, u: int) -> Any:
    """Results and gradients; or the type of the error."""
    torch.manual_seed(u)
    inputs = [x.requires_grad_(program.gradient and x.is_floating_point()) for x in program.inputs(u)]
    try:
        result = function(*inputs)
    except (RuntimeError, IndexError, ValueError) as error:
        return next(kind for kind in (IndexError, ValueError, RuntimeError) if isinstance(error, kind)).__name__
    found = [result]
    if program.gradient:
        outputs = [t for t in pytree.tree_leaves(result) if t.requires_grad]
        torch.manual_seed(1)
        leaves = [x for x in inputs if x.requires_grad]
        found.append(torch.autograd.grad(outputs, leaves, [torch.randn(t.shape) for t in outputs]))
    return pytree.tree_map(lambda t: t.detach() if isinstance(t, torch.Tensor) else t, found)


def close(ours: torch.Tensor, theirs: torch.Tensor, label: str) -> None:
    """Up to the order in which sums are taken."""
    options = {}
    if theirs.is_floating_point():
        finite = theirs[theirs.isfinite()].abs()
        options = {"rtol": 1e-5, "atol": 1e-5 * max(1.0, finite.max().item() if len(finite) else 0.0)}
    torch.testing.assert_close(ours, theirs, equal_nan=True, msg=lambda m: f"{label}: {m}", **options)


@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_eager(name: str) -> None:
    program = PROGRAMS[name]
    function, reports = compiled(program.function)
    for u in program.values:
        expected, actual = (outcome(f, program, u) for f in (program.function, function))
        leaves = [pytree.tree_leaves(tree) for tree in (actual, expected)]
        assert len(leaves[0]) == len(leaves[1]), f"u = {u}: {actual} instead of {expected}"
        for ours, theirs in zip(*leaves):
            if isinstance(theirs, torch.Tensor):
                assert isinstance(ours, torch.Tensor), f"u = {u}: {ours} instead of {theirs}"
                close(ours, theirs, f"u = {u}")
            else:
                assert ours == theirs and type(ours) is type(theirs), f"u = {u}: {ours} instead of {theirs}"
    assert len(reports) == 1 + program.gradient, [str(report) for report in reports]
