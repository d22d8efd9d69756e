"""``while_loop``, ``scan`` and ``map``: one graph over all lengths, bodies of our kernels, results and gradients as in
plain Python."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from torch._higher_order_ops import scan

import symshape
from symshape.backend import symshape_backend
from symshape.frame_compiler import compile_with
from symshape.tools.measure import Graphs
from symshape.tools.report import GraphReport

from .loops import PLAIN, PROGRAMS, TRACED, Inputs, Program, scan_pointwise

Tensor = torch.Tensor
QUICK = ("while, two integers", "scan, trees", "while in scan", "scan, gradients", "while, gradients", "map, gradients")


def compiled(function: Callable[..., Any], **options: Any) -> tuple[Callable[..., Any], list[GraphReport]]:
    reports: list[GraphReport] = []

    def backend(graph: Any, inputs: Any) -> Any:
        return symshape_backend(graph, inputs, options=options, reports=reports)

    return compile_with(function, backend, fullgraph=True), reports


def run(function: Callable[..., Any], inputs: Inputs, gradients: bool) -> tuple[Any, list[Tensor | None]]:
    own = [x.clone().requires_grad_(gradients and x.is_floating_point()) for x in inputs]
    found = function(*own)
    if gradients:
        results = [v for v in pytree.tree_leaves(found) if isinstance(v, Tensor) and v.requires_grad]
        sum(v.square().sum() for v in results).backward()  # type: ignore[union-attr]
    return found, [x.grad for x in own]


def check(program: Program, name: str) -> None:
    with Graphs() as graphs:
        function, reports = compiled(functools.partial(program.function, TRACED), strict=True)
        for n in program.lengths:
            torch.manual_seed(n)
            inputs = program.inputs(n)
            expected = run(functools.partial(program.function, PLAIN), inputs, program.gradients)
            torch.testing.assert_close(run(function, inputs, program.gradients), expected)
        assert graphs.read().graphs == program.graphs
    assert [report.kind for report in reports] == (["forward", "backward"] if program.gradients else ["inference"])
    for report in reports:
        assert not any("higher_order" in call for call in report.library_calls), report.remarks
        assert report.statistics["inline-scans"]["inlined"] or _launches_in_bodies(report) > 0


def _launches_in_bodies(report: GraphReport) -> int:
    """Of kernels of ours, in the functions after the main one."""
    main, *bodies = report.program_source.split("\ndef ")
    assert main.startswith("def program(")
    return sum(body.count(f"{kernel.name}(") for body in bodies for kernel in report.kernels)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name in QUICK])
def test_loops(name: str) -> None:
    check(PROGRAMS[name], name)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in QUICK])
def test_more_loops(name: str) -> None:
    check(PROGRAMS[name], name)


def test_a_loop_without_steps_returns_memory_of_its_own() -> None:
    def function(x: Tensor) -> Any:
        end = x.shape[0] - 3
        return TRACED.while_loop(lambda i, a: i < end, lambda i, a: (i + 1, a * 2), (0, x))

    program, _ = compiled(function)
    for n in (2, 5):
        x = torch.randn(n)
        before = x.clone()
        steps, a = program(x)
        assert steps == max(n - 3, 0) and torch.equal(a, x * 2**steps)
        a.zero_()
        assert torch.equal(x, before)


def test_slices_are_views_and_steps_write_theirs() -> None:
    def function(x: Tensor, y: Tensor) -> Any:
        return TRACED.scan(lambda c, row: (c * 0.9 + row.sum(), (c * row).softmax(-1)), y, x)

    program, reports = compiled(function)
    program(torch.randn(5, 7), torch.randn(7))
    (source,) = (report.program_source for report in reports)
    assert "copy_(" not in source
    assert reports[0].statistics["write-slices"] == {"written": 1, "copied": 0, "tiles": 0}


def test_pointwise_loops_are_kernels() -> None:
    """Also what maps and scans are in other loops; a half type is rounded at each step."""

    def function(x: Tensor, y: Tensor) -> Any:
        last, ys = scan_pointwise(TRACED, x, y)
        rows = TRACED.map(lambda row, y: row * y + torch.arange(7), ys, y)
        half, _ = TRACED.scan(lambda c, row: (c + row, c * 2), y.bfloat16() * 100, x.bfloat16())
        return last, rows, half

    program, reports = compiled(function)
    for n in (1, 2, 300):
        x, y = torch.randn(n, 7), torch.randn(7)
        last, ys = scan_pointwise(PLAIN, x, y)
        half = y.bfloat16() * 100
        for row in x.bfloat16():
            half = half + row
        torch.testing.assert_close(program(x, y), (last, ys * y + torch.arange(7), half))
    (report,) = reports
    assert report.statistics["inline-scans"] == {"inlined": 2, "kept": 1}


def test_a_pointwise_scan_of_one_step_that_is_known() -> None:
    """Nothing is carried from step to step: there is no other one."""

    def fn(x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        last, products = scan(lambda carry, row: (carry + row, carry * row), x, rows)
        return last, products

    compiled = torch.compile(fn, backend="symshape", dynamic=True)
    for size in (4, 33, 1):
        x, rows = torch.randn(size), torch.randn(1, size)
        torch.testing.assert_close(compiled(x, rows), (x + rows[0], x * rows))


def test_loops_for_a_gpu() -> None:
    program, reports = compiled(functools.partial(scan_pointwise, TRACED), target="triton")
    for n in (2, 5):
        inputs = torch.randn(n, 7), torch.randn(7)
        torch.testing.assert_close(program(*inputs), scan_pointwise(PLAIN, *inputs))
    assert len(reports) == 1 and {kernel.target for kernel in reports[0].kernels} == {"triton"}


def test_loops_without_dynamo() -> None:
    @symshape.jit
    def function(x: Tensor, y: Tensor) -> Any:
        last, ys = scan_pointwise(TRACED, x, y)
        return last, TRACED.map(lambda row, y: row * y, ys, y)

    for n in (2, 5, 17):
        x, y = torch.randn(n, 7), torch.randn(7)
        last, ys = scan_pointwise(PLAIN, x, y)
        torch.testing.assert_close(function(x, y), (last, ys * y))
    assert len(function.entries) == 1


def test_a_carry_of_other_sizes_is_the_operators_error() -> None:
    def function(x: Tensor) -> Any:
        return TRACED.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, torch.cat([a, a])), (0, x))

    program, _ = compiled(function)
    with pytest.raises(Exception, match="(?s)same metadata|must have the same|carried_inputs"):
        program(torch.randn(4))


def test_a_scan_over_nothing_is_the_operators_error() -> None:
    program, _ = compiled(functools.partial(scan_pointwise, TRACED))
    program(torch.randn(3, 7), torch.randn(7))
    with pytest.raises(Exception, match="scan dimension > 0"):
        program(torch.randn(0, 7), torch.randn(7))
