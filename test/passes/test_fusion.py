"""Fusion: the order of kernels, errors, small reductions, memory of each type."""

from __future__ import annotations

import inspect
import math
import sys
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch_mlir import ir

import symshape
from symshape import dialects
from symshape.passes.framework.base import PassContext
from symshape.passes.framework.manager import run_pipeline
from symshape.passes.framework.pipeline_text import parse_step

SIZES = (5, 8, 0)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()


def agree(function: Any, compiled: Any, *args: torch.Tensor) -> None:
    torch.testing.assert_close(compiled(*args), function(*args))


def test_a_size_read_from_a_result_comes_after_it() -> None:
    """Both kernels read x over the same space, but the second needs a number that is made from the first."""

    def function(x: torch.Tensor) -> Any:
        y = x * 2 + x.exp()
        n = torch.sort(y)[0][0].to(torch.int64).item()
        return y, x.sin() + n

    agree(function, symshape.compile(function), torch.randn(9))


def _one_number(x: torch.Tensor) -> Any:
    total = x.sum()
    return x.mean() + int(total.item())


def _numbers_of_numbers(x: torch.Tensor) -> Any:
    y = x * 2
    first = int(y[0].item())
    second = int((y + first)[1].item()) // 2 * 3
    return y, x + second, y - first, x + torch.full((3,), second)[0]


def _real_numbers(x: torch.Tensor) -> Any:
    total = x.sum()
    scaled = x.mean() * total.item() ** 2
    return total, scaled, x.max() + math.exp(scaled.item() / 100)


def _computed_length(x: torch.Tensor) -> Any:
    steps = torch.arange(math.ceil(((x[-1] - x[0]) / 0.25 + 1).item()), dtype=x.dtype) * 0.25 + x[0]
    return steps[0] == x[0], steps


def _drawn_by_a_call(x: torch.Tensor) -> Any:
    drawn = torch.randperm(int((x[0] * 1.5).item()) + 2)
    return drawn.sum() + x[0], drawn.max() + x.sum()


@pytest.mark.parametrize(
    "program", [_one_number, _numbers_of_numbers, _real_numbers, _computed_length, _drawn_by_a_call]
)
def test_a_number_computed_from_a_result_comes_after_it(program: Any) -> None:
    """The kernels of both could be one, but for a size, a number or a call that is made from a result of one."""
    compiled = symshape.compile(program, strict=True)
    for n in (5, 8, 2):
        agree(program, compiled, torch.linspace(1, 3, n))


def test_nothing_raises_where_nothing_is_read() -> None:
    """Joined tensors are computed where they are; what is beyond their ends is no divisor, and no index."""

    def function(x: torch.Tensor, y: torch.Tensor, table: torch.Tensor) -> Any:
        quotient = torch.cat([x // y, y])
        remainder = torch.cat([y, x % y + 1])
        return quotient, remainder, torch.cat([table[x] * 2 + table[y], table[y]])

    compiled = symshape.compile(function)
    for size in SIZES:
        x, y = torch.randint(1, 9, (size, 3)), torch.randint(1, 9, (size, 3))
        agree(function, compiled, x, y, torch.randn(9))
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        compiled(torch.ones(5, 3, dtype=torch.int64), torch.zeros(5, 3, dtype=torch.int64), torch.randn(9))


def test_small_reductions() -> None:
    """Combiners, element types, several reduced dims; and those that stay reductions."""

    def function(x: torch.Tensor, i: torch.Tensor, h: torch.Tensor) -> Any:
        x, i, h = x.view(-1, 2, 4), i.view(-1, 4), h.view(-1, 3)  # dims of inputs are dynamic
        heads = x.sum(1)
        turned = torch.cat([-heads[:, 2:], heads[:, :2]], 1) * 2 + heads
        return (
            turned,
            x.amax((1, 2)),
            x.prod(1),
            i.sum(-1),
            i.amin(-1) + 1,
            (i > 3).any(-1),
            (i > 3).all(1),
            h.sum(1),
            torch.softmax(x, 1),
            x.mean(2) - x[:, :, 0],
            x.var(1),
            x.argmax(1),
        )

    reported = symshape.explain(function, torch.randn(40), torch.randint(0, 9, (20,)), torch.randn(15).half())
    assert reported.graphs[0].statistics["unroll-reductions"]["unrolled"] >= 8
    compiled = symshape.compile(function)
    for size in SIZES[:2]:
        args = torch.randn(size * 8), torch.randint(0, 9, (size * 4,)), torch.randn(size * 3).half()
        agree(function, compiled, *args)


def test_what_is_moved() -> None:
    """Values are stored in their own type, once, and only if something reads them; calls are counted apart."""

    def function(x: torch.Tensor, w: torch.Tensor) -> Any:
        positive = x > 0
        half = torch.where(positive, x, -x).to(torch.bfloat16)
        return positive, half @ w

    graph = symshape.explain(function, torch.randn(6, 8), torch.randn(8, 4, dtype=torch.bfloat16)).graphs[0]
    (row,) = (row for row in graph.symbols if row.hint == 6)
    assert graph.launches == 1
    for n in (6, 100):
        assert graph.bytes_accessed(**{row.name: n}) == n * 8 * (4 + 1 + 2)
        assert graph.library_bytes_accessed(**{row.name: n}) == 2 * (n * 8 + 8 * 4 + n * 4)


def test_a_workspace_is_moved_too() -> None:
    """Long rows are split among programs, whose partial results are written and read again; short ones are not."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return x.sum(1)

    graph = symshape.explain(function, torch.randn(4, 40), options={"target": "triton"}).graphs[0]
    rows, columns = (row.name for row in graph.symbols)
    for n, m in ((4, 40), (4, 10**7)):
        own = 4 * n * m + 4 * n
        workspace = graph.bytes_accessed(**{rows: n, columns: m}) - own
        assert workspace == 0 if m == 40 else 0 < workspace <= 2 * 4 * 2**20


def test_gathers_under_a_guard_share_a_kernel() -> None:
    """What is read at the ends of a joined tensor is stored first, in one kernel and not in one for each gather."""

    def function(table: torch.Tensor, i: torch.Tensor, row: torch.Tensor) -> Any:
        return torch.cat([row, table[i] + table[i - 1] * 2 + table[i // 2]])

    inputs = torch.randn(9, 4), torch.arange(6), torch.randn(1, 4)
    assert symshape.explain(function, *inputs).graphs[0].launches == 2
    agree(function, symshape.compile(function), *inputs)


def test_a_gather_reads_at_an_index_that_is_a_size() -> None:
    """Of ``n + 1`` columns the last one, whose values depend on where they are."""

    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        columns = torch.arange(x.shape[1] + 1) * w[:, None]
        last = columns[:, -1, None].expand(-1, 4) * 2
        return last.gather(1, (w[:, None] + torch.arange(4)).long().abs() % 4) + x.sum()

    compiled = symshape.compile(function)
    for rows, columns in ((3, 5), (2, 1), (1, 7), (5, 0)):
        agree(function, compiled, torch.randn(rows, columns), torch.randn(rows))
    found = symshape.explain(function, torch.randn(3, 5), torch.randn(3)).graphs[0].statistics["inline-into-gathers"]
    assert found["inlined"] == 1


def test_what_gathers_read() -> None:
    """Computed where it is read: through views, places and reductions; not what others need, or what costs more."""

    def inlined(x: torch.Tensor, i: torch.Tensor, table: torch.Tensor) -> Any:
        n = x.shape[0]
        places = torch.arange(n, device=x.device).unsqueeze(1) * 2.0 + x
        return (
            F.cross_entropy(x, i % x.shape[1]),
            (x.exp() + x.sum(1, keepdim=True)).gather(1, i.unsqueeze(1) % 3),
            table.to(torch.bfloat16)[i],
            (x * 2).t()[1, i % n],
            places[i % n, 0],
            places.amax(1)[i % n],
            torch.take_along_dim(x.log_softmax(0), i.unsqueeze(1) % n, 0),
        )

    def left(x: torch.Tensor, i: torch.Tensor, table: torch.Tensor) -> Any:
        stored = x * 2
        wide = torch.tanh(table)  # may be read more often than it has elements
        return stored, stored[i % x.shape[0]], wide[i], torch.cat([x, x + 1])[i], table[6 - i][i % x.shape[0]]

    for function, count in ((inlined, 6), (left, 0)):
        compiled = symshape.compile(function)
        for size in (12, 5, 30, 101):
            args = torch.randn(size, size + 3), torch.randint(0, 7, (size,)), torch.randn(7, 4)
            agree(function, compiled, *args)
        found = symshape.explain(function, *args).graphs[0].statistics["inline-into-gathers"]["inlined"]
        assert found >= count if count else found == 0


def test_cross_entropy_stores_rows_only() -> None:
    graph = symshape.explain(F.cross_entropy, torch.randn(6, 8), torch.arange(6)).graphs[0]
    assert graph.launches == 2
    rows, columns = (next(row.name for row in graph.symbols if row.hint == hint) for hint in (6, 8))
    moved = [graph.bytes_accessed(**{rows: 1000, columns: m}) for m in (1000, 2000)]
    assert moved[1] - moved[0] <= 2 * 1000 * 1000 * 4  # by the reduction and, at most, the gather


def test_what_one_kernel_reads_is_not_stored() -> None:
    """A value of rows has two readers, the sum and what follows it, which come into one kernel."""

    def function(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        kept = t != 3
        first = torch.arange(x.shape[1]) == torch.where(kept, t, 0)[:, None]
        y = torch.where(first, -1.0, 0.0) * torch.where(kept, 2.0, 1.0)[:, None]
        return y - x.exp() * y.sum(1, keepdim=True)

    inputs = torch.randn(6, 8), torch.arange(6)
    assert symshape.explain(function, *inputs).graphs[0].launches == 1
    agree(function, symshape.compile(function), *inputs)


def _chain(length: int) -> str:
    """A module whose function is one chain of operations."""
    symbol = 'name = "s0", min = 2 : i64, max = 99 : i64, divisor = 1 : i64, hint = 8 : i64, source = ""'
    lines = [
        "#all = affine_map<(d0) -> (d0)>",
        "func.func @main(%v0: tensor<?xf32>) -> tensor<?xf32> {",
        f'%s0 = "symshape.symbol"() {{{symbol}, binding = "arg0.size(0)"}} : () -> index',
        "%c0 = arith.constant 0 : index",
        "%c1 = arith.constant 1 : index",
        "%i = tensor.empty(%s0) : tensor<?xf32>",
    ]
    for step in range(length):
        maps = 'indexing_maps = [#all, #all], iterator_types = ["parallel"]'
        lines += [
            f'"symshape.bind"(%v{step}, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()',
            f"%v{step + 1} = linalg.generic {{{maps}}} ins(%v{step} : tensor<?xf32>) outs(%i : tensor<?xf32>) {{",
            "^bb0(%a: f32, %b: f32): %e = math.exp %a : f32 linalg.yield %e : f32 } -> tensor<?xf32>",
        ]
    return "\n".join([*lines, f"return %v{length} : tensor<?xf32>", "}"])


def test_a_chain_may_be_longer_than_the_stack() -> None:
    """A thousand operations in one kernel ended Python's stack, or that of a small thread."""
    context = dialects.load(ir.Context())
    with context, ir.Location.unknown():
        module = ir.Module.parse(_chain(300))
        depth, usual = len(inspect.stack(0)), sys.getrecursionlimit()
        sys.setrecursionlimit(depth + 150)
        try:
            run_pipeline(module, [parse_step("fuse-kernels")], PassContext())
        finally:
            sys.setrecursionlimit(usual)
        text = str(module)
    kernel = text.partition("func.func private")[2]
    assert kernel.count("math.exp") == 300 and text.count('"host.launch"') == 1


def _dear(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    """What two readers would rather have stored than gather again, and one more that reads it."""
    found = x[:, i].sin()
    return found * found.exp()


def test_what_reads_two_kernels_at_its_points_is_in_one_with_both() -> None:
    """An interpolation between interpolated rows; the indices are kernels of their own."""

    def between(x: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        top, bottom = _dear(x, i), _dear(x, j)
        return top + (bottom - top) * bottom

    report = symshape.explain(between, torch.randn(5, 8), torch.arange(8).flip(0), torch.arange(8))
    assert report.totals()["kernels"] == 1
    for rows, columns in ((5, 8), (1, 1), (0, 3), (33, 40)):
        agree(between, report.run, torch.randn(rows, columns), torch.arange(columns).flip(0), torch.arange(columns))

    def resized(x: torch.Tensor, scale: int) -> torch.Tensor:
        return F.interpolate(x, scale_factor=float(scale), mode="bilinear")

    compiled = symshape.compile(resized)
    for memory_format in (torch.contiguous_format, torch.channels_last):
        x = torch.randn(2, 3, 5, 7).to(memory_format=memory_format)
        agree(resized, compiled, x, 2)
        assert compiled(x, 2).stride() == resized(x, 2).stride()


@pytest.mark.parametrize("kind", ["through a call", "elsewhere", "of rows", "under a guard"])
def test_what_reads_other_points_is_apart(kind: str) -> None:
    """Or needs a library call, or a reduction, between the two."""

    def function(x: torch.Tensor, i: torch.Tensor) -> Any:
        top, bottom = _dear(x, i), _dear(x, i.flip(0))
        joined = {
            "through a call": lambda: top.sort(1).values + top,
            "elsewhere": lambda: top.flip(1),
            "of rows": lambda: top.sum(1, keepdim=True) + top,
            "under a guard": lambda: F.pad(top, (1, 0))[:, :-1] + top,
        }[kind]()
        return bottom * bottom.exp() + joined * bottom, joined

    compiled = symshape.compile(function)
    for rows, columns in ((5, 8), (1, 1), (0, 3), (33, 40)):
        agree(function, compiled, torch.randn(rows, columns), torch.arange(columns).flip(0))
