"""``associative_scan``: one graph over all lengths, a kernel where its function is pointwise, results and gradients as
in eager mode's generic mode."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan

import symshape
from symshape import compiler, errors
from symshape.tools.measure import Graphs, tensors_of

from .loops import PLAIN, TRACED, Inputs, Loops
from .test_loops import compiled, run

Tensor = torch.Tensor
LENGTHS = (1, 2, 3, 17, 1000)


def over(combine: Callable[..., Any], xs: Any, dim: int = 0, *, reverse: bool = False) -> Any:
    return associative_scan(combine, xs, dim, reverse=reverse, combine_mode="generic")


@dataclass(frozen=True)
class Program:
    """``inputs(n)``: for a scan of n steps. ``kernels``: scans that are no loop; ``lengths``: of scans."""

    function: Callable[..., Any]
    inputs: Callable[[int], Inputs]
    gradients: bool = False
    kernels: int = 1
    lengths: tuple[int, ...] = LENGTHS


def _column(n: int) -> Inputs:
    return (torch.randn(n),)


def _rows(n: int) -> Inputs:
    return (torch.randn(n, 5), torch.rand(5) + 0.5)


def _decays(n: int) -> Inputs:
    return (torch.rand(n, 7), torch.randn(n, 7))


def _batch(n: int) -> Inputs:
    return (torch.rand(3, n, 6), torch.randn(3, n, 6))


def _matrices(n: int) -> Inputs:
    return (torch.randn(n, 4, 4) * 0.4, torch.randn(4))


def _integers(n: int) -> Inputs:
    return (torch.randint(1, 9, (n, 3)), torch.randint(0, 255, (n, 3), dtype=torch.uint8))


def _recurrence(left: Any, right: Any) -> Any:
    """h = a * h + b, as in state space models."""
    return left[0] * right[0], right[0] * left[1] + right[1]


def _segments(left: Any, right: Any) -> Any:
    """A sum that begins anew where a flag is set."""
    return {
        "sum": torch.where(right["flag"], right["sum"], left["sum"] + right["sum"]),
        "flag": left["flag"] | right["flag"],
    }


def _complex(left: Any, right: Any) -> Any:
    (a, b), (c, d) = left, right
    return a * c - b * d, a * d + b * c


def reversed_over_the_middle(loops: Loops, a: Tensor, b: Tensor) -> Any:
    return over(_recurrence, (a, b), 1, reverse=True)


def over_the_last(loops: Loops, a: Tensor, b: Tensor) -> Any:
    return over(_recurrence, (a.mT, b.mT), -1)[1].contiguous() * 2


def over_complex(loops: Loops, a: Tensor, b: Tensor) -> Any:
    return over(_complex, (a.cos(), a.sin()), 0)


def over_segments(loops: Loops, x: Tensor) -> Any:
    return over(_segments, {"sum": x.exp(), "flag": x > 1})["sum"]


def over_integers(loops: Loops, x: Tensor, y: Tensor) -> Any:
    """Products wrap around; eight bits are eight bits."""
    return over(torch.mul, x), over(torch.bitwise_xor, y, reverse=True), over(torch.logical_or, y > 250)


def over_halves(loops: Loops, x: Tensor, w: Tensor) -> Any:
    return over(torch.maximum, x.bfloat16()), over(torch.minimum, x.half(), reverse=True)


def closes_over(loops: Loops, x: Tensor, w: Tensor) -> Any:
    """A tensor, a number without dims, and a size."""
    scale = w.sum()
    return over(lambda a, b: torch.logaddexp(a, b) * (w / w) + scale * 0 + x.shape[1] - 5, x) * w


def between_others(loops: Loops, x: Tensor, w: Tensor) -> Any:
    y = over(torch.add, (x * w).tanh())
    return y.sigmoid() + x, y.sum(0)


def two_in_a_row(loops: Loops, x: Tensor, w: Tensor) -> Any:
    y = over(torch.maximum, x * w)
    return over(torch.add, y.tanh() * 0.1, reverse=True), over(torch.minimum, x)


def over_matrices(loops: Loops, x: Tensor, v: Tensor) -> Any:
    return over(lambda a, b: a @ b, x) @ v


def moves_elements(loops: Loops, a: Tensor, b: Tensor) -> Any:
    """Slices are 2 x 2 matrices as rows of four, which are multiplied element by element."""

    def product(p: Tensor, q: Tensor) -> Tensor:
        a, b, c, d = p.unbind(-1)
        e, f, g, h = q.unbind(-1)
        return torch.stack([a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h], -1)

    return over(product, a[:, :4] * 0.9)


def broadcasts(loops: Loops, a: Tensor, b: Tensor) -> Any:
    """One decay for each row of states."""
    return over(lambda p, q: (p[0] * q[0], q[0][..., None] * p[1] + q[1]), (a[:, :2], torch.stack([b, -b], 1)))


def in_while(loops: Loops, x: Tensor, w: Tensor) -> Any:
    return loops.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, over(torch.maximum, a).tanh() * w), (0, x))


def in_map(loops: Loops, a: Tensor, b: Tensor) -> Any:
    return loops.map(lambda pair: over(_recurrence, (pair[0], pair[1]))[1], (a, b))


def in_cond(loops: Loops, x: Tensor, w: Tensor) -> Any:
    return loops.cond(x.sum() > 0, lambda x: over(torch.maximum, x), lambda x: over(torch.minimum, x) * 2, (x,))


PROGRAMS: dict[str, Program] = {
    "sum": Program(lambda loops, x: over(torch.add, x), _column),
    "recurrence": Program(lambda loops, a, b: over(_recurrence, (a, b)), _decays),
    "maximum": Program(lambda loops, x: over(torch.maximum, x, -1), _column),
    "complex pairs": Program(over_complex, _decays),
    "segments": Program(over_segments, _column),
    "reversed, dim 1": Program(reversed_over_the_middle, _batch),
    "dim -1": Program(over_the_last, _decays),
    "integers": Program(over_integers, _integers, kernels=3),
    "half types": Program(over_halves, _rows, kernels=2),
    "closure": Program(closes_over, _rows),
    "between others": Program(between_others, _rows),
    "two in a row": Program(two_in_a_row, _rows, kernels=3),
    "matrix product": Program(over_matrices, _matrices, kernels=0),
    "moves elements": Program(moves_elements, _decays, kernels=0, lengths=(1, 2, 3, 17, 100)),
    "broadcasts": Program(broadcasts, _decays),
    "in while": Program(in_while, _rows),
    "in map": Program(in_map, _batch),
    "in cond": Program(in_cond, _rows, kernels=2),
    "sum, gradients": Program(lambda loops, x: over(torch.add, x), _column, gradients=True, lengths=(1, 2, 3, 17, 64)),
    "recurrence, gradients": Program(reversed_over_the_middle, _batch, gradients=True),
    "segments, gradients": Program(over_segments, _column, gradients=True, lengths=(1, 2, 3, 17, 64)),
    "closure, gradients": Program(closes_over, _rows, gradients=True, lengths=(1, 2, 3, 17, 64)),
    "matrix product, gradients": Program(over_matrices, _matrices, gradients=True, kernels=0),
    "between others, gradients": Program(between_others, _rows, gradients=True, lengths=(1, 2, 3, 17, 64)),
}
QUICK = ("matrix product", "recurrence, gradients")


def check(program: Program) -> None:
    with Graphs() as graphs:
        function, reports = compiled(functools.partial(program.function, TRACED), strict=True)
        for n in program.lengths:
            torch.manual_seed(n)
            inputs = program.inputs(n)
            if program.gradients:
                inputs = tuple(x.double() for x in inputs)
            expected = run(functools.partial(program.function, PLAIN), inputs, program.gradients)
            found = run(function, inputs, program.gradients)
            for one, other in zip(tensors_of(found), tensors_of(expected), strict=True):
                torch.testing.assert_close(one, other)
                assert n < 2 or one.stride() == other.stride()
        assert graphs.read().graphs == 1
    assert [report.kind for report in reports] == (["forward", "backward"] if program.gradients else ["inference"])
    assert not any("higher_order" in call for report in reports for call in report.library_calls)
    assert reports[0].statistics["inline-scans"]["inlined"] == program.kernels


@pytest.mark.parametrize("name", QUICK)
def test_equals_eager_in_one_graph(name: str) -> None:
    check(PROGRAMS[name])


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in QUICK])
def test_more_programs(name: str) -> None:
    check(PROGRAMS[name])


@pytest.mark.long
def test_lengths_that_are_errors() -> None:
    """No element, and operands of different lengths: eager mode's errors, also after others."""
    program, _ = compiled(functools.partial(PROGRAMS["recurrence"].function, TRACED))
    program(torch.rand(3, 2), torch.rand(3, 2))
    with pytest.raises(Exception, match="scan dimension > 0"):
        program(torch.rand(0, 2), torch.rand(0, 2))
    with pytest.raises(Exception, match="(?s)same size|inconsistent"):
        program(torch.rand(5, 2), torch.rand(4, 2))


@pytest.mark.long
def test_without_dynamo() -> None:
    @symshape.jit
    def function(a: Tensor, b: Tensor) -> Any:
        return over(_recurrence, (a, b), 1, reverse=True)

    for n in (1, 2, 17):
        a, b = _batch(n)
        torch.testing.assert_close(function(a, b), over(_recurrence, (a, b), 1, reverse=True))
    assert len(function.entries) == 1


@pytest.mark.long
def test_threads_change_no_bit() -> None:
    fn = symshape.compile(lambda x: (over(torch.add, x), over(torch.add, x, 1), over(torch.logaddexp, x.mT)))
    x = torch.randn(700, 600)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = fn(x)
        torch.set_num_threads(2)
        assert all(torch.equal(a, b) for a, b in zip(alone, fn(x), strict=True))
    finally:
        torch.set_num_threads(before)


@pytest.mark.long
def test_errors_grow_as_slowly_as_those_of_eager_mode() -> None:
    """Against float64: of a row, of rows side by side, and of rows that are gathered."""
    fn = symshape.compile(lambda x, dim: over(torch.add, x, dim))
    for size, dim in (((100_000,), 0), ((20_000, 9), 0), ((9, 20_000), 1)):
        x = torch.randn(size)
        exact = x.double().cumsum(dim)
        error, usual = (float((y - exact).abs().max()) for y in (fn(x, dim), over(torch.add, x, dim)))
        assert error < 4 * usual


def test_lengths_around_blocks() -> None:
    """Exact, in integers: no block is left out or counted twice."""
    fn = symshape.compile(lambda x: [over(torch.add, x, dim) for dim in range(2)])
    for size in ((1, 1), (3, 33), (31, 1), (2, 1056), (1025, 2), (1, 5000), (5000, 1)):
        x = torch.randint(-9, 9, size)
        for dim, found in enumerate(fn(x)):
            assert torch.equal(found, x.cumsum(dim))


@pytest.mark.long
def test_loops_for_a_gpu() -> None:
    program, reports = compiled(functools.partial(PROGRAMS["recurrence"].function, TRACED), target="triton")
    for n in (2, 5):
        a, b = _decays(n)
        torch.testing.assert_close(program(a, b), over(_recurrence, (a, b)))
    assert len(reports) == 1 and reports[0].statistics["inline-scans"] == {"inlined": 0, "kept": 1}


@pytest.mark.long
def test_library_calls_combine_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's implementation of the operator would call a function of slices with stacks of them."""

    def function(x: Tensor, v: Tensor) -> Any:
        y = over(lambda a, b: a @ b, x)
        return y @ v, over(lambda a, b: torch.maximum(a, b.flip(0).flip(0)), x.cumsum(1))

    monkeypatch.setenv("SYMSHAPE_STRICT", "0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compiler, "emit_program", _fails)
    program = symshape.compile(function)
    with pytest.warns(errors.FallbackWarning, match="run as library calls"):
        for n in (2, 7):
            inputs = _matrices(n)
            torch.testing.assert_close(program(*inputs), function(*inputs))


def _fails(*_args: Any, **_kwargs: Any) -> Any:
    raise KeyError("planted")
