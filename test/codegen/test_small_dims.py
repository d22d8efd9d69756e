"""Forms for dims of a few elements: the dim is unrolled, and no access is a gather or a scatter."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from loop_builder import D0, D1, KINDS, SYMBOLS, Builder, build, cpu_target, layer_norm, reduction

import symshape
from symshape.codegen.cpu.emit.kernel import emit_cpu
from symshape.codegen.cpu.objects.target import Target
from symshape.codegen.cpu.schedule.forms import forms_of
from symshape.codegen.cpu.schedule.interleave import find_groups, picked, spread
from symshape.machine.targets import CPU_MOST_INTERLEAVED
from symshape.prover.numbers.condition import Condition, at_least
from symshape.prover.numbers.expr import Expr

__all__ = ["cpu_target"]
WIDE = Target(16, True, True)
COUNTS = (1, 2, 3, 4)


def transposed(dtype: str) -> Builder:
    """out[i, j] = a[j, i] with an operand b[i, j] that is contiguous."""
    n, m = SYMBOLS[:2]
    builder = Builder(f"transposed_{dtype}", [n, m])
    a, b, out = builder.arg(dtype, [m, n]), builder.arg(dtype, [n, m]), builder.arg(dtype, [n, m], output=True)
    left, right = builder.load(a, D1 * n + D0), builder.load(b, D0 * m + D1)
    better = builder.add("arith.ori", left, right, dtype=dtype) if dtype == "i1" else left
    operation = "arith.addf" if dtype.startswith("f") else "arith.addi"
    value = better if dtype in ("i1", "bf16") else builder.add(operation, left, right, dtype=dtype)
    builder.store(value, out, D0 * m + D1)
    return builder


def body(text: str, suffix: str) -> str:
    """The function of one form: a loop over full vectors, then one over what is left of a row."""
    found = re.search(rf"@\w+{suffix}_body\(.*?\n}}", text, re.DOTALL)
    assert found is not None
    return found[0]


@pytest.mark.parametrize("make", [lambda: reduction("add", "f32", 1), layer_norm, lambda: transposed("f32")])
def test_small_sizes_have_forms_without_gathers(make: Callable[[], Builder]) -> None:
    kernel = make().kernel()
    text = emit_cpu(kernel, WIDE)
    forms = {form.suffix: form for form in forms_of(kernel, WIDE)}
    for count in COUNTS:
        form = forms[f"_d1_{count}"]
        assert form.bounds == ((SYMBOLS[1], count, count),)
        assert not any(dim.reduced for dim in form.kernel.dims)
        code = body(text, form.suffix)
        slow = [found.start() for found in re.finditer(r"masked\.(gather|scatter)", code)]
        assert (code.count("vector.shuffle") > 0) == (len(form.division.groups) > 0) == (count > 1)
        assert min(slow, default=len(code)) > code.rfind("vector.shuffle")  # only in what is left of a row, if at all
        assert count > 1 or not slow


@pytest.mark.parametrize("make", [lambda: reduction("add", "f32", 1), lambda: reduction("max", "f32", 1)])
def test_rows_of_a_few_vectors_are_finished_together(make: Callable[[], Builder]) -> None:
    kernel = make().kernel()
    (form,) = (form for form in forms_of(kernel, WIDE) if form.suffix == "_rows_along_lanes")
    assert form.bounds == ((SYMBOLS[1], 0, 256), (SYMBOLS[0], WIDE.lanes, None))
    code = body(emit_cpu(kernel, WIDE), form.suffix)
    assert code.count("vector.shuffle") == 2 * (WIDE.lanes - 1)
    assert "vector.extract" not in code and not re.search(r"masked\.(gather|scatter)", code)


@pytest.mark.parametrize(
    ("length", "suffixes"), [(100, ["", "_rows_along_lanes"]), (256, [""]), (70_000, ["", "_staged", "_long"])]
)
def test_a_row_of_a_known_length_has_the_forms_for_that_length(length: int, suffixes: list[str]) -> None:
    kernel = layer_norm(m=Expr.const(length)).kernel()
    assert [form.suffix for form in forms_of(kernel, WIDE)] == suffixes
    assert set(re.findall(r"@layer_norm_f32(\w*)_body\(", emit_cpu(kernel, WIDE))) <= {*suffixes}


@pytest.mark.parametrize(
    ("rows", "known", "staged"),
    [
        (SYMBOLS[0], (), True),
        (SYMBOLS[0], (at_least(SYMBOLS[0], 8),), True),
        (SYMBOLS[0], (at_least(SYMBOLS[0], 9),), False),
        (SYMBOLS[0], (at_least(9, SYMBOLS[0]),), True),
        (8 * SYMBOLS[0], (), True),
        (9 * SYMBOLS[0], (), False),  # 0, or more than the form is for
        (9 * SYMBOLS[0] + 1, (), True),
    ],
    ids=str,
)
def test_no_form_is_for_sizes_that_are_excluded(rows: Expr, known: tuple[Condition, ...], staged: bool) -> None:
    """Rows share threads where they are at most eight."""
    builder = Builder("rows", [rows, SYMBOLS[1]], [1])
    x, out = builder.arg("f32", [rows, SYMBOLS[1]]), builder.arg("f32", [rows, SYMBOLS[1]], output=True)
    value = builder.load(x, D0 * SYMBOLS[1] + D1)
    builder.store(builder.add("arith.subf", value, builder.reduce(value, "max")), out, D0 * SYMBOLS[1] + D1)
    kernel = replace(builder.kernel(), known=known)
    assert ("_staged" in {form.suffix for form in forms_of(kernel, WIDE)}) == staged


@pytest.mark.parametrize("width", [4, 8, 16])
def test_picked_and_spread_are_inverse(width: int) -> None:
    for stride in range(2, CPU_MOST_INTERLEAVED + 1):
        parts = torch.arange(stride * width).view(stride, width)
        values = []
        for index in range(stride):
            found = parts[0]
            for part, order in zip(parts[1:], picked(stride, index, width), strict=True):
                found = torch.cat([found, part])[order]
            assert found.tolist() == list(range(index, stride * width, stride))
            values.append(found)
        for number in range(stride):
            found = values[0]
            for value, order in zip(values[1:], spread(stride, number, width), strict=True):
                found = torch.cat([found, value])[order]
            assert torch.equal(found, parts[number])


def test_only_whole_groups_are_made_together() -> None:
    builder = Builder("strided", [SYMBOLS[0]])
    x, out = builder.arg("f32", [SYMBOLS[0] * 3]), builder.arg("f32", [SYMBOLS[0]], output=True)
    first, last = builder.load(x, D0 * 3), builder.load(x, D0 * 3 + 2)
    builder.store(builder.add("arith.addf", first, last), out, D0)
    code = builder.kernel().code
    assert find_groups(code, "d0") == {}  # the element between them may not be there
    builder.load(x, D0 * 3 + 1)
    assert sorted(member.index for member in find_groups(builder.kernel().code, "d0").values()) == [0, 1, 2]


def test_transposed_accesses() -> None:
    dtypes = ("f32", "f64", "f16", "bf16", "i64", "ui8", "i1")
    functions = build(*(transposed(dtype) for dtype in dtypes))
    for dtype, function in zip(dtypes, functions, strict=True):
        for n, m in ((70, 1), (1, 70), (2, 77), (77, 2), (3, 515), (515, 3), (4, 65), (65, 4), (3, 3), (5, 9), (0, 4)):
            a, b = ((torch.randn(shape) * 3).to(KINDS[dtype]) for shape in ((m, n), (n, m)))
            expected = a.t() | b if dtype == "i1" else a.t() if dtype == "bf16" else a.t() + b
            out = torch.empty(n, m, dtype=KINDS[dtype])
            function(a, b, out, n, m)
            torch.testing.assert_close(out, expected.contiguous(), rtol=0, atol=0)


def test_negative_zero_and_nan() -> None:
    add, most = build(reduction("add", "f32", 1), reduction("max", "f32", 1))
    out = torch.empty(40)
    for count in COUNTS:
        x = torch.full((40, count), -0.0)
        add(x, out, 40, count)
        assert not torch.signbit(out).any() and torch.equal(out, x.sum(1))
        x[3, -1] = float("nan")
        most(x, out, 40, count)
        torch.testing.assert_close(out, x.amax(1), equal_nan=True)


def _pairs(x: torch.Tensor, c: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """A rotation of neighbours, as of positions in attention."""
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * c - b * s, a * s + b * c), -1).flatten(-2)


def _views(x: torch.Tensor, c: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    a, b = x.view(*x.shape[:-1], x.shape[-1] // 2, 2).unbind(-1)
    return torch.stack((a * c - b * s, a * s + b * c), -1).flatten(-2)


def _triples(x: torch.Tensor, c: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    return torch.stack((x[..., ::2] * c, s.expand_as(x[..., ::2]), x[..., 1::2] + s), -1) + torch.arange(3)


@pytest.mark.parametrize("function", [_pairs, _views, _triples])
def test_what_is_stacked_along_the_last_dim_is_read_and_written_in_whole_vectors(function: Any) -> None:
    report = symshape.explain(function, torch.randn(2, 8, 64), torch.randn(8, 32), torch.randn(8, 32))
    (kernel,) = report.graphs[0].kernels
    form = forms_of(kernel.loops, WIDE)[0]
    lane, groups = form.division.lane, form.division.groups
    assert lane is not None and groups
    accesses = [instr for instr in form.kernel.code if instr.op in ("load", "store")]
    assert all(i in groups or i.address.coefficient(lane.name) in (0, 1) for i in accesses if i.address is not None)
    for sizes in ((2, 8, 64), (1, 1, 2), (3, 5, 34), (0, 4, 6), (2, 3, 100)):
        x, rows = torch.randn(sizes), (sizes[1], sizes[2] // 2)
        inputs = x, torch.randn(rows), torch.randn(rows)
        torch.testing.assert_close(report.run(*inputs), function(*inputs))


def _columns(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Boxes with angles, poses, moments: the columns of a matrix, each computed in its own way, and its short rows."""
    columns = [x[:, i] * (i + 1) + y for i in range(x.shape[1])]
    return torch.stack(columns, -1), x.sum(-1), x.amax(-1), x[:, -1] - x[:, 0], x + y[:, None]


@pytest.mark.sample(5)
@pytest.mark.parametrize("count", [5, 8, 16])
def test_rows_of_a_known_number_of_elements(count: int) -> None:
    example = torch.randn(6, count), torch.randn(6)
    for dtype in (torch.float32, torch.bfloat16, torch.float64, torch.int8):
        report = symshape.explain(_columns, *(one.to(dtype) for one in example))
        for n in (6, 1, 2, 37, 1003):
            x, y = (torch.randint(-8, 9, shape).to(dtype) for shape in ((n, count), (n,)))
            for actual, expected in zip(report.run(x, y), _columns(x, y), strict=True):
                assert torch.equal(actual, expected)
    forms = [forms_of(kernel.loops, WIDE)[0] for kernel in report.graphs[0].kernels]
    assert any(member.stride == count for form in forms for member in form.division.groups.values())


def _rotations(q: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """Matrices (n, 4, 4) of unit quaternions (n, 4) and translations (n, 3)."""
    w, x, y, z = (q / q.norm(dim=-1, keepdim=True)).unbind(-1)
    rows = [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)]
    rows += [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)]
    rows += [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)]
    upper = torch.cat([torch.stack(rows, -1).unflatten(-1, (3, 3)), t[:, :, None]], 2)
    return torch.cat([upper, t.new_tensor([0.0, 0.0, 0.0, 1.0]).expand(len(t), 1, 4)], 1)


def test_matrices_of_known_sizes_are_unrolled_whole() -> None:
    def inputs(n: int) -> list[torch.Tensor]:
        return [torch.randn(n, size, requires_grad=True) for size in (4, 3)]

    report = symshape.explain(_rotations, *inputs(6))
    for n in (6, 1, 37, 1003):
        given, weights = inputs(n), torch.randn(n, 4, 4)
        found, expected = report.run(*given), _rotations(*given)
        torch.testing.assert_close(found, expected)
        gradients = [torch.autograd.grad((one * weights).sum(), given) for one in (found, expected)]
        torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-4)
    kernels = [kernel for graph in report.graphs for kernel in graph.kernels]
    assert not any(graph.library_calls for graph in report.graphs)
    for kernel in kernels:
        form = forms_of(kernel.loops, WIDE)[0]
        assert form.division.lane is not None and not any(dim.size.as_int() for dim in form.kernel.dims)


def test_what_follows_a_stack_is_unrolled_with_it() -> None:
    """However much it is: each of the elements is computed once either way."""

    def heavy(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(torch.stack([x * i + i for i in range(12)], -1)).tanh()

    report = symshape.explain(heavy, torch.randn(6))
    (kernel,) = report.graphs[0].kernels
    assert [dim.name for dim in forms_of(kernel.loops, WIDE)[0].kernel.dims] == ["d0"]
    for n in (6, 1, 0, 101):
        x = torch.randn(n)
        torch.testing.assert_close(report.run(x), heavy(x))


def _joined(cache: torch.Tensor, x: torch.Tensor, c: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """Rotated keys behind those of earlier positions."""
    return torch.cat([cache, _pairs(x, c, s)], 1)


@pytest.mark.sample(3)
@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_join_of_what_is_stacked(dynamic: bool, gradient: bool) -> None:
    """Which part of the join an index is in is a condition on it, and so is which of the stacked values: with the
    dim of a few elements unrolled the second one has an answer."""
    torch._dynamo.reset()
    compiled = symshape.compile(_joined, dynamic=dynamic, options={"strict": True})
    for length in (1, 4, 0, 7):
        cache, c, s = torch.randn(2, length + 2, 8), torch.randn(length, 4), torch.randn(length, 4)
        x = torch.randn(2, length, 8, requires_grad=gradient)
        torch.testing.assert_close(compiled(cache, x, c, s), _joined(cache, x, c, s))


def test_a_view_of_known_sizes_of_a_tensor_of_unknown_ones_divides_nothing() -> None:
    def split(x: torch.Tensor) -> torch.Tensor:
        return x.view(2, 4, 3, 2).unbind(-1)[0] + 1

    report = symshape.explain(split, torch.randn(6, 8))
    (kernel,) = report.graphs[0].kernels
    assert "//" not in " ".join(str(i.address) for i in kernel.loops.code)
    for sizes in ((6, 8), (1, 48), (12, 4), (48, 1)):
        x = torch.randn(sizes)
        torch.testing.assert_close(report.run(x), split(x))
