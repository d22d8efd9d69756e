"""Masks that `mask-to-where` leaves: selected elements are read at positions that are found once, on both targets."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from symshape.backend import symshape_backend
from symshape.frame_compiler import compile_with
from symshape.runtime import compact
from symshape.runtime.cpu.compact import CHUNK
from symshape.tools.report import GraphReport

Tensor = torch.Tensor
POSITIONS = "symshape.mask_positions.default"


def compiled(function: Any, **options: Any) -> tuple[Callable[..., Any], list[GraphReport]]:
    reports: list[GraphReport] = []

    def backend(graph: Any, inputs: Any) -> Any:
        return symshape_backend(graph, inputs, options=options, reports=reports)

    return compile_with(function, backend, fullgraph=True), reports


@pytest.mark.parametrize(
    ("target", "sizes"), [("cpu", (0, 1, 7, CHUNK, 3 * CHUNK + 5, 40 * CHUNK)), ("triton", (0, 1, 1024, 3000))]
)
def test_positions(target: str, sizes: tuple[int, ...]) -> None:
    for size in sizes:
        for share in (0, 0.3, 1):
            mask = torch.rand(size) < share
            assert torch.equal(compact.mask_positions(mask, target), mask.nonzero().squeeze(1))
    mask = torch.rand(9, 7).t()[::2] < 0.5
    assert torch.equal(compact.mask_positions(mask, target), mask.flatten().nonzero().squeeze(1))
    at = compact.mask_positions(mask, target)
    assert torch.equal(compact.unravel_positions(mask, at), mask.nonzero())
    x = torch.rand(3, *mask.shape)
    assert torch.equal(compact.select_at(x, at, 1, 2), x[:, mask])
    operators = torch.ops.symshape
    assert torch.equal(operators.mask_positions(mask, target), at)
    assert torch.equal(operators.unravel_positions(mask, at), mask.nonzero())
    assert torch.equal(operators.select_at(x, at, 1, 2), x[:, mask])


def programs(x: Tensor, y: Tensor, w: Tensor, m: Tensor, n: Tensor) -> tuple[Any, ...]:
    """x: (rows, columns), y: (rows), m: (rows), n: (rows, columns)."""
    at_most = x[m].shape[0]
    torch._check(at_most <= x.shape[0])
    rows = (x[m] * 2) @ w
    inner = x.unsqueeze(0).repeat(2, 1, 1)[:, n]
    return rows, y[m], m.nonzero(), n.nonzero(), x[n].sort()[0], inner, x.to(torch.bool)[n], x.half()[m, :]


@pytest.mark.parametrize("target", ["cpu", "triton"])
def test_equals_eager(target: str) -> None:
    function, reports = compiled(programs, target=target)
    for rows, columns in ((6, 5), (2, 9), (300, 7)):
        for share in (0.5, 0, 1):
            x, y, w = torch.randn(rows, columns), torch.randn(rows), torch.randn(columns, 4)
            m, n = torch.rand(rows) < share, torch.rand(columns, rows).t() < share
            torch.testing.assert_close(function(x, y, w, m, n), programs(x, y, w, m, n))
    (report,) = reports
    assert [call for call in report.library_calls if "index" in call or "nonzero" in call] == []
    assert report.library_calls.count(POSITIONS) == 2  # of two masks
    assert len(report.remarks["compact-masks"]) == 8 and "compacted" in report.remarks["compact-masks"][0]
    checks = [one for one in report.constraints if one.kind == "expect_true"]
    assert {one.status for one in checks} == {"proven"}, checks


def test_gradients() -> None:
    def function(x: Tensor, w: Tensor, m: Tensor) -> Tensor:
        return x[m].exp() @ w

    program, _ = compiled(function)
    for rows, share in ((6, 0.5), (9, 0), (33, 1)):
        m = torch.rand(rows) < share
        ours, theirs = (
            [t.clone().requires_grad_() for t in (torch.ones(rows, 4) / rows, torch.ones(4, 3))] for _ in "12"
        )
        program(*ours, m).square().sum().backward()
        function(*theirs, m).square().sum().backward()
        torch.testing.assert_close([t.grad for t in ours], [t.grad for t in theirs])


def test_triton_code_compiles_for_a_gpu() -> None:
    """In a process of its own: the compiler is not there where kernels are interpreted."""
    code = """if True:
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource
        from symshape.runtime.triton.compact import BLOCK, count_blocks, write_positions
        for function in (count_blocks, write_positions):
            types = {"mask": "*u8", "counts": "*i64", "ends": "*i64", "positions": "*i64", "n": "i64"}
            signature = {name: types.get(name, "constexpr") for name in function.arg_names}
            for arch in (80, 90):
                source = ASTSource(fn=function, signature=signature, constexprs={"BLOCK": BLOCK})
                assert triton.compile(source, target=GPUTarget("cuda", arch, 32)).asm["cubin"]
    """
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
