"""Programs over masks, each compiled once: at 12 sizes what eager gives, NaN where eager has NaN, nothing selected."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from masks import CASES, MASKS, Case, MaskProgram, vectors

from symshape.backend import symshape_backend
from symshape.frame_compiler import compile_with
from symshape.tools.report import GraphReport

PROGRAMS = {program.name: program for program in MASKS}
POSITIONS = "symshape.mask_positions.default"
SELECTING = re.compile(
    r"aten\.(index\.Tensor|_?(unsafe_)?index_put|masked_\w+|nonzero|_local_scalar_dense)|symshape\.mask_positions"
)
HOST_READ = re.compile(r"\.(item|tolist|cpu|numpy|nonzero)\(|\b(int|float|bool)\(|\bt\d+\.size\(|mask_positions")


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


@pytest.mark.sample(5)
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
    for report in reports:
        # Unbacked sizes: of the graph itself, of what forward saves for backward. Then what the host would wait for.
        assert "unbacked_symbol" not in report.stage("imported")
        assert not HOST_READ.search(report.program_source), report.program_source
        # `masked_fill` is a pointwise operator: there is nothing to rewrite.
        assert report.remarks["mask-to-where"] or name.startswith("masked_fill")
        assert all(not one.reason for one in report.remarks["mask-to-where"]), report.remarks["mask-to-where"]
        selecting = [call for call in report.library_calls if SELECTING.match(call)]
        if re.search("places|embedding", name):  # a table is read, and its gradient added to, at integers
            selecting = [call for call in selecting if "index" not in call]
        assert not selecting, report.library_calls


def write(x: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> None:
    x[m] = v


def scatter(x: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> None:
    x.masked_scatter_(m, v)


def look_up(x: torch.Tensor, i: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    return x[i[m]].exp().sum()


def exactly(n: int, count: int) -> torch.Tensor:
    m = torch.zeros(n, dtype=torch.bool)
    m[torch.randperm(n)[:count]] = True
    return m


@pytest.mark.parametrize(
    ("function", "good", "bad"),
    [
        (
            write,
            lambda: (torch.randn(9), torch.randn(4), exactly(9, 4)),
            lambda: (torch.randn(12), torch.randn(5), exactly(12, 4)),
        ),
        (
            scatter,
            lambda: (torch.randn(9), torch.randn(6), exactly(9, 4)),
            lambda: (torch.randn(12), torch.randn(5), exactly(12, 7)),
        ),
        (
            look_up,
            lambda: (torch.randn(9), torch.arange(3, 8), exactly(5, 2)),
            lambda: (torch.randn(7), torch.arange(2, 14), exactly(12, 12)),
        ),
    ],
)
def test_bad_values_are_eagers_error_and_nothing_is_written(function: Any, good: Any, bad: Any) -> None:
    run, reports = compiled(MaskProgram("", function, vectors()))
    torch.manual_seed(0)
    run(*good())
    inputs = bad()
    before = [x.clone() for x in inputs]
    with pytest.raises((RuntimeError, IndexError)) as theirs:
        function(*(x.clone() for x in inputs))
    with pytest.raises(theirs.type):
        run(*inputs)
    assert all(torch.equal(a, b) for a, b in zip(inputs, before))
    assert len(reports) == 1


def test_what_cannot_vanish_stays_and_says_why() -> None:
    def function(x: torch.Tensor, y: torch.Tensor, m: torch.Tensor) -> Any:
        return x[m].exp(), y[m].sum()

    run, reports = compiled(MaskProgram("", function, vectors(2)))
    for n in (5, 12):
        x, y, m = torch.randn(n), torch.randn(n), torch.rand(n) < 0.5
        torch.testing.assert_close(run(x, y, m), function(x, y, m))
    kept, gone = reports[0].remarks["mask-to-where"]
    assert "returned" in kept.reason and not gone.reason and "sum" in gone.operations
    text, place = str(reports[0]), rf"{re.escape(__file__)}:\d+"
    assert re.search(rf"mask \w+ \({place}\): kept: selected elements are returned \({place}\)", text)
    assert re.search(rf"mask \w+ \({place}\): rewritten: index, sum", text)
    assert re.search(rf"mask at {place}: compacted", text)
    assert [call for call in reports[0].library_calls if SELECTING.match(call)] == [POSITIONS]


def test_it_can_be_left_out() -> None:
    program = PROGRAMS["sum of chain"]
    run, reports = compiled(program, disable_passes=["mask-to-where"])
    x, m = torch.randn(9), torch.rand(9) < 0.5
    torch.testing.assert_close(run(x, m), program.function(x, m))
    assert POSITIONS in reports[0].library_calls


def test_equal_masks_are_apart_where_the_caller_could_tell() -> None:
    """Both are returned; one is handed to an operator that writes to it unseen."""

    def function(x: torch.Tensor, y: torch.Tensor, m: torch.Tensor) -> Any:
        first, second = (x[~m].sum(), ~m), (y[~m].sum(), ~m)
        selected = x[y > 0].sum(), x[y > 0].exp().sum()
        torch.ops.symshape_test.negate_unseen(y)
        return first, second, selected, x[y > 0].sum(), (x[first[1]] * y[second[1]]).sum()

    library = torch.library.Library("symshape_test", "DEF")
    library.define("negate_unseen(Tensor(a!) x) -> ()")
    library.impl("negate_unseen", lambda x: None if x.neg_() is x else None, "CPU")
    library.impl("negate_unseen", lambda x: None, "Meta")
    run, reports = compiled(MaskProgram("", function, vectors(2)))
    for n in (5, 130):
        x, y, m = torch.randn(n), torch.randn(n), torch.rand(n) < 0.5
        expected = function(x, y.clone(), m)
        actual = run(x, y, m)
        torch.testing.assert_close(actual, expected)
        actual[0][1].fill_(True)
        assert torch.equal(actual[1][1], ~m)
    assert len(reports) == 1
