"""Higher-order operators: results are eager's, and branches of ``torch.cond`` are made of our kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops.map import map as map_over
from torch_mlir import ir

from symshape.backend import symshape_backend
from symshape.dialects import load
from symshape.dialects.conditions import condition_of
from symshape.dialects.sizes import Sizes
from symshape.frame_compiler import compile_with
from symshape.tools.report import GraphReport

Tensor = torch.Tensor


def compiled(function: Any, **options: Any) -> tuple[Callable[..., Any], list[GraphReport]]:
    reports: list[GraphReport] = []

    def backend(graph: Any, inputs: Any) -> Any:
        return symshape_backend(graph, inputs, options=options, reports=reports)

    return compile_with(function, backend, fullgraph=True), reports


def check(function: Any, program: Callable[..., Any], *inputs: Tensor) -> None:
    """Results and gradients are eager's."""
    ours, theirs = ([x.clone().requires_grad_(x.requires_grad) for x in inputs] for _ in range(2))
    found, expected = program(*ours), function(*theirs, cond=plain)
    torch.testing.assert_close(found, expected)
    if any(x.requires_grad for x in inputs):
        for values in (found, expected):
            sum(v.square().sum() for v in values).backward()  # type: ignore[union-attr]
        torch.testing.assert_close([x.grad for x in ours], [x.grad for x in theirs])


def _same(y: Tensor) -> Tensor:
    return y + 0


def rows_of(count: int) -> Tensor:
    return torch.linspace(-1, 2, 3 * count).view(count, 3)


def plain(predicate: Any, true: Any, false: Any, operands: Any) -> Any:
    """What ``torch.cond`` means: in eager mode it is compiled as well, which takes its time."""
    return true(*operands) if predicate else false(*operands)


def branches(x: Tensor, y: Tensor, table: Tensor, cond: Any = torch.cond) -> tuple[Tensor, ...]:
    """Reductions, sizes, a matrix product, constants and another cond in branches."""
    wide = x.exp()
    a, b = cond(
        x.sum() > 0,
        lambda x, y: ((x * x.shape[0] + y).softmax(-1), x @ table),
        lambda x, y: (x.cos() - y, (x * 2) @ table + torch.arange(table.shape[1])),
        (x, y),
    )
    c = cond(
        y.max() > 1,
        lambda a, x: cond(a.mean() > 0, lambda a, x: a + x, lambda a, x: a.sigmoid() * x, (a, x)),
        lambda a, x: a - x * x,
        (a, wide),
    )
    return a, b, c * 2


def inputs(rows: int, columns: int, sign: int, big: bool) -> tuple[Tensor, Tensor, Tensor]:
    x = torch.rand(rows, columns) * sign
    y = torch.rand(columns) + big
    return x, y, torch.rand(columns, 3)


CASES = [(5, 7, 1, True), (5, 7, -1, True), (6, 4, 1, False), (33, 9, -1, False), (2, 64, 1, True)]


def test_both_branches_of_cond() -> None:
    program, reports = compiled(branches)
    for case in CASES:
        check(branches, program, *inputs(*case))
    (report,) = reports
    assert report.library_calls == ["aten.mm.default", "aten.mm.default"]
    assert report.program_source.count("def ") == 1 + 2 * 3  # of three conds


def test_gradients_of_cond() -> None:
    program, reports = compiled(branches)
    for case in CASES:
        x, y, table = inputs(*case)
        check(branches, program, x.requires_grad_(), y.requires_grad_(), table.requires_grad_())
    assert [report.kind for report in reports] == ["forward", "backward"]
    assert not any("higher_order" in call for report in reports for call in report.library_calls)


def nested(x: Tensor, cond: Any = torch.cond) -> Tensor:
    """Conds in both branches, three levels deep; one function as both branches."""

    def low(x: Tensor) -> Tensor:
        return cond(x.sum() < -9, lambda x: x - 1, lambda x: cond(x.mean() < -0.1, torch.tanh, torch.cos, (x,)), (x,))

    return cond(x.sum() > 0, lambda x: cond(x.mean() > 0.5, torch.exp, torch.exp, (x,)), low, (x,))


def test_nested_conds() -> None:
    program, reports = compiled(nested)
    for shift in (-1.0, -0.2, -0.1, 0.1, 0.6):
        check(nested, program, torch.rand(5, 7) * 0.2 + shift)
        check(nested, program, (torch.rand(4, 6) * 0.2 + shift).requires_grad_())
    assert sorted(report.kind for report in reports) == ["backward", "forward", "inference"]
    assert not any(report.library_calls for report in reports)


def selected(x: Tensor, cond: Any = torch.cond) -> tuple[Tensor, ...]:
    """Operands and predicates with data-dependent sizes, and such sizes made inside a branch."""
    y = x[x > 0]

    a = cond(y.shape[0] > 2, lambda y: y * 3, lambda y: y.exp(), (y,))
    b = cond(x.sum() > 0, lambda x: x[x > 1].exp().sum(), lambda x: (x * 2)[x < 0].sum(), (x,))
    return a, b, cond(x.sum() > 0, lambda y: torch.outer(y, y).cos(), lambda y: torch.outer(y, y), (y,))


def test_cond_of_data_dependent_sizes() -> None:
    program, reports = compiled(selected)
    for values in ([1.5, -2, 3, 4, 0.5], [-1, -2, -3, -0.5], [-1, 2, -3], [2, 1, -9, -3]):
        check(selected, program, torch.tensor(values, dtype=torch.float32))
    for values in ([1.5, -2, 3, 4], [-1, 2, -3]):
        check(selected, program, torch.tensor(values).float().requires_grad_())
    assert not any("cond" in call for report in reports for call in report.library_calls)


def test_cond_on_sizes_and_of_other_sizes() -> None:
    def function(x: Tensor, cond: Any = torch.cond) -> tuple[Tensor, ...]:
        a = cond(x.shape[0] > 5, lambda x: x[2:].exp(), lambda x: x.exp(), (x,))
        b = cond(x.sum() > 0, lambda x: x[:2] * 3, lambda x: x + 1, (x,))
        return a.sum(0), b, b * 2, b.sum(0) + x

    program, reports = compiled(function)
    for rows, shift in ((7, 0.5), (7, -2), (5, 0.5), (4, -2), (9, 0)):
        check(function, program, torch.rand(rows, 6) + shift)
    (report,) = reports
    assert report.library_calls == []
    facts = [one.text for one in report.constraints if one.status == "assumed"]
    assert "u0 == s77 - 2 or s77 == u0" in facts or "s77 == u0 + 2 or s77 == u0" in facts
    for name, fact in (("true_graph_0", "s77 >= 6"), ("false_graph_0", "s77 <= 5")):
        assert fact in assumed_in(report.stage("shaped"), name)


def assumed_in(module: str, function: str) -> list[str]:
    with load(ir.Context()):
        parsed = ir.Module.parse(module)
        (found,) = (f for f in parsed.body.operations if ir.StringAttr(f.attributes["sym_name"]).value == function)
        sizes = Sizes(found.regions[0].blocks[0])
        operations = [op.operation for op in sizes.block.operations]
        sizes.learn(operations)
        return [str(condition_of(sizes, op.operands[0])) for op in operations if op.name == "symshape.assume"]


def test_floats_of_the_frame_in_bodies() -> None:
    """The operators take none: a body makes them again, of the argument, of a size or of both."""

    def run(x: Tensor, factor: float, cond: Any = torch.cond) -> tuple[Tensor, ...]:
        share, more = x.shape[0] / 3, factor + 1
        y = x * share * factor
        a = cond(
            x.sum() > 0,
            lambda y: y * share - more,
            lambda y: cond(y.sum() > 9, _same, lambda y: y - factor, (y,)),
            (y,),
        )
        if cond is plain:
            return a, y * factor**3, torch.stack([y[0] * more**i for i in range(len(y))])
        b = while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * factor), (torch.zeros((), dtype=torch.int64), y))[1]
        return a, b, scan(lambda row, _: (row * more, row * 1), y[0], y)[1]

    program, reports = compiled(run)
    for rows, factor in ((4, 0.5), (4, -0.75), (7, 1.5)):
        check(
            lambda x, cond, factor=factor: run(x, factor, cond),
            lambda x, factor=factor: program(x, factor),
            rows_of(rows),
        )
    assert len(reports) == 1


def test_cond_for_a_gpu() -> None:
    def function(x: Tensor, cond: Any = torch.cond) -> Tensor:
        return cond(x.sum() > 0, lambda x: x.softmax(-1), lambda x: x.sin(), (x,)) + 1

    program, reports = compiled(function, target="triton")
    check(function, program, torch.rand(3, 5))
    check(function, program, -torch.rand(4, 6))
    assert len(reports) == 1 and {kernel.target for kernel in reports[0].kernels} == {"triton"}


def test_all_operators_in_one_graph() -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        _, a = while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x.sin() + i), (torch.tensor(0), x))
        carry, b = scan(lambda c, x: (c + x, (c * x).sin()), torch.zeros(x.shape[1:]), x + 1)
        c = associative_scan(lambda a, b: a * b, x, dim=0, combine_mode="generic")
        return a, carry, b, c, map_over(lambda row, y: (row * y).sin(), x, y)

    def expected(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        a, carry, b = x, torch.zeros(x.shape[1:]), []
        for i in range(5):
            a = a.sin() + i
        for row in x:
            b.append((carry * (row + 1)).sin())
            carry = carry + row + 1
        return a, carry, torch.stack(b), x.cumprod(0), (x * y).sin()

    program, reports = compiled(function)
    for rows, columns in ((6, 5), (9, 8)):
        x, y = torch.rand(rows, columns), torch.rand(columns)
        torch.testing.assert_close(program(x, y), expected(x, y))
    (report,) = reports
    assert not any(call.startswith("higher_order.") for call in report.library_calls)
