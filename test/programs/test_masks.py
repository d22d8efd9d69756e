"""Programs over masks, each compiled once: at 12 sizes what eager gives, NaN where eager has NaN, nothing selected."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from masks import CASES, MASKS, Case, MaskProgram

from symshape.backend import symshape_backend
from symshape.report import GraphReport
from symshape.settings import compile_with

PROGRAMS = {program.name: program for program in MASKS}
SELECTING = re.compile(r"aten\.(index\.Tensor|_?(unsafe_)?index_put|masked_\w+|nonzero|_local_scalar_dense)")


def compiled(program: MaskProgram, **options: Any) -> tuple[Callable[..., Any], list[GraphReport]]:
    reports: list[GraphReport] = []

    def backend(graph: Any, inputs: Any) -> Any:
        return symshape_backend(graph, inputs, options=options, reports=reports)

    return compile_with(program.function, backend, fullgraph=True), reports


def outcome(function: Callable[..., Any], program: MaskProgram, case: Case) -> Any:
    """Results, what is left in the inputs, gradients; or the type of the error."""
    torch.manual_seed(case.n)
    inputs = [x.requires_grad_() if program.gradient and x.is_floating_point() else x for x in program.inputs(case)]
    try:
        result = function(*inputs)
    except (RuntimeError, IndexError) as error:
        return type(error).__name__, [x.detach() for x in inputs]
    found: list[Any] = [result, inputs]
    if program.gradient:
        outputs = [t for t in pytree.tree_leaves(result) if t.requires_grad]
        torch.manual_seed(1)
        given = [torch.randn(t.shape).to(t.dtype) for t in outputs]
        leaves = [x for x in inputs if x.requires_grad]
        gradients = torch.autograd.grad(outputs, leaves, given, allow_unused=True)
        found.append([torch.zeros_like(x) if g is None else g for g, x in zip(gradients, leaves)])
    return pytree.tree_map(lambda t: t.detach() if isinstance(t, torch.Tensor) else t, found)


@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_eager(name: str) -> None:
    program = PROGRAMS[name]
    function, reports = compiled(program)
    for case in CASES:
        expected, actual = (outcome(f, program, case) for f in (program.function, function))
        leaves = [pytree.tree_leaves(tree) for tree in (actual, expected)]
        assert len(leaves[0]) == len(leaves[1]), f"{case}: {actual} instead of {expected}"
        for ours, theirs in zip(*leaves):
            if isinstance(theirs, torch.Tensor):
                loose = {"rtol": 2e-2, "atol": 2e-2} if theirs.dtype in (torch.float16, torch.bfloat16) else {}
                torch.testing.assert_close(ours, theirs, equal_nan=True, msg=lambda m, at=case: f"{at}: {m}", **loose)
            else:
                assert ours == theirs, f"{case}: {ours} instead of {theirs}"
    assert len(reports) == 1 + program.gradient, [str(report) for report in reports]
    places = re.compile("places|embedding").search(name)  # a table is read and its gradient added to by integers
    for report in [] if places else reports:
        assert not [call for call in report.library_calls if SELECTING.match(call)], report.library_calls
        assert "unbacked_symbol" not in report.stage("imported")
        assert ".item(" not in report.program_source
        assert all(not one.reason for one in report.passes["mask-to-where"]), report.passes["mask-to-where"]
