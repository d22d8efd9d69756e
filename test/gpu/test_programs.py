"""Compiled programs against eager mode on the same device: each kind of kernel, element types, layouts, all sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from gpu_machine import Machine, cases_of

SIZES = ((5, 7), (1, 1), (0, 3), (2, 65))
LARGE = ((3, 0), (1009, 513), (4096, 1024), (3, 1_000_003), (100_003, 9))  # on a GPU
Make = Callable[[int, int], Sequence[Any]]


@dataclass(frozen=True)
class Program:
    """``make``: inputs of the sizes (n, m). ``least``: of each size; ``launches``: None where there is no library
    call; ``graphs``: more than one where PyTorch's own decomposition branches on a size."""

    run: Callable[..., Any]
    make: Make
    least: int = 0
    launches: int | None = None
    graphs: int = 1
    tolerance: dict[str, float] = field(default_factory=dict)


def floats(dtype: torch.dtype = torch.float32, count: int = 1) -> Make:
    return lambda n, m: [torch.randn(n, m).to(dtype) for _ in range(count)]


def integers(dtype: torch.dtype, low: int = -9, count: int = 1) -> Make:
    return lambda n, m: [torch.randint(low, 10, (n, m)).to(dtype) for _ in range(count)]


def of_few_rows(n: int, m: int) -> Sequence[Any]:
    """What is made of all pairs of their rows still has a place in memory."""
    return [torch.randn(n, m), torch.randn((n + m) % 13, m)]


def positive(n: int, m: int) -> Sequence[Any]:
    """Sums of these do not cancel: eager mode and others differ by little."""
    return [torch.rand(n, m) + 0.5]


def strided(n: int, m: int) -> Sequence[Any]:
    """Every third column, from the second on: no address of a row divides by 16."""
    return [torch.randn(n, 3 * m + 3)[:, 1 : 3 * m + 1 : 3], torch.randn(n * m + 1)[1:].view(n, m)]


def transposed(n: int, m: int) -> Sequence[Any]:
    return [torch.randn(m, n).t(), torch.randn(n, m)]


def indices(n: int, m: int) -> Sequence[Any]:
    """A table that is no smaller than it must be, and where to look: int64."""
    return [torch.randn(n + 2, m), torch.randint(0, n + 2, (n,))]


def columns(n: int, m: int) -> Sequence[Any]:
    return [torch.randn(n, m + 1), torch.randint(0, m + 1, (n, m))]


def classes(n: int, m: int) -> Sequence[Any]:
    return [torch.randn(n, m + 1), torch.randint(0, m + 1, (n,))]


def special(n: int, m: int) -> Sequence[Any]:
    """NaN, infinities, both zeros."""
    x = torch.randn(n, m)
    extra = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0, -0.0])
    return [torch.where(torch.rand(n, m) > 0.5, extra[torch.randint(0, 5, (n, m))], x), torch.randn(n, m)]


def images(n: int, m: int) -> Sequence[Any]:
    return [torch.randn(2, 3, n + 1, m + 1).to(memory_format=torch.channels_last)]


HALF = {"rtol": 2e-2, "atol": 2e-2}  # an ulp or two where sums are added in another order
F16 = {"rtol": 2e-3, "atol": 2e-3}
SUM = {"rtol": 1e-5, "atol": 1e-5}
bf16, f16, f64 = torch.bfloat16, torch.float16, torch.float64

PROGRAMS = {
    # Pointwise.
    "chain of float32": Program(lambda x, y: torch.relu(x * y + x) * 0.5 - y, floats(count=2)),
    "chain of float64": Program(lambda x, y: torch.sigmoid(x - y) * y, floats(f64, 2)),
    "chain of bfloat16": Program(lambda x, y: x * y + x, floats(bf16, 2), tolerance=HALF),
    "chain of float16": Program(lambda x, y: torch.where(x > y, x, y * 2), floats(f16, 2)),
    "types meet": Program(
        lambda x, y: x + y.to(bf16) + (x > 0), lambda n, m: [torch.randn(n, m), torch.randn(m).half()]
    ),
    "gelu": Program(lambda x: F.gelu(x), floats(), tolerance={"rtol": 1e-5, "atol": 1e-6}),
    "functions of float32": Program(
        lambda x, y: torch.atan2(x, y) + torch.tanh(x) + torch.expm1(y) + torch.log1p(x * x) + torch.asinh(y),
        floats(count=2), tolerance=SUM,
    ),
    "functions of float64": Program(
        lambda x, y: torch.erf(x) * torch.sin(y) + torch.cosh(x) + torch.rsqrt(y * y + 1), floats(f64, 2),
        tolerance={"rtol": 1e-12, "atol": 1e-12},
    ),
    "powers": Program(lambda x, y: (x.abs() + 0.1) ** y + x**3, floats(count=2), tolerance=SUM),
    "NaN and infinities": Program(
        lambda x, y: (torch.maximum(x, y), x.clamp(-1, 1), x.sign(), torch.fmax(x, y), x == y, x.isfinite()), special
    ),
    "int64": Program(lambda x, y: (x * y + 3, x // (y.abs() + 1), x % (y.abs() + 1)), integers(torch.int64, count=2)),
    "int32": Program(lambda x, y: ((x << 3) ^ (y >> 1) & 5, ~x, torch.maximum(x, y)), integers(torch.int32, count=2)),
    "uint8": Program(lambda x, y: (x + y, x - y, x > y), integers(torch.uint8, 0, 2)),
    "int8 and bool": Program(lambda x, y: (x > y, (x > 0) & (y > 0), x * (y > 1)), integers(torch.int8, count=2)),
    "broadcast": Program(lambda x, y: x[:, None, :] * y[None], of_few_rows),
    # Layouts.
    "strided": Program(lambda x, y: x * 2 + y, strided),
    "strided and unaligned rows": Program(lambda x, y: (x * y).exp().sum(1), strided, tolerance=SUM),
    "transposed": Program(lambda x, y: (x + y, (x * y).t().contiguous()), transposed),
    "permuted and written": Program(lambda x: x[:, None].permute(2, 1, 0).contiguous() + 1, floats()),
    "channels last": Program(lambda x: F.relu(x + 1).mean((2, 3)), images, tolerance=SUM),
    "written to": Program(lambda x, y: (x.add_(y), y.mul_(2).abs().sum(1))[1], floats(count=2), tolerance=SUM),
    "a view is returned": Program(lambda x: (x * 2).t()[1:], floats(), least=1),
    # Reductions.
    "sum of rows": Program(lambda x: x.sum(1), positive, tolerance=SUM),
    "sum of columns": Program(lambda x: x.sum(0), positive, tolerance=SUM),
    "sum of all": Program(lambda x: x.sum(), positive, tolerance=SUM),
    "sum of bfloat16": Program(lambda x: x.to(bf16).sum(1), positive, tolerance=HALF),
    "sum of int32": Program(lambda x: (x.sum(1), x.sum()), integers(torch.int32)),
    "mean and variance": Program(lambda x: (x.mean(1), x.var(1)), floats(), tolerance={"rtol": 1e-4, "atol": 1e-5}),
    "extrema": Program(lambda x: (x.amax(1), x.amin(0), x.max()), floats(), least=1),
    "extrema of NaN": Program(lambda x, y: (x.amax(1), (x + y).amin(1)), special, least=1),
    "argmax": Program(lambda x: (x.argmax(1), x.argmin(0)), floats(), least=1),
    "any and all": Program(lambda x: ((x > 1).any(1), (x > -2).all(0), (x > 0).sum(1)), floats()),
    "norm": Program(lambda x: (x.norm(dim=1), x.abs().sum(0)), floats(), graphs=2, tolerance=SUM),
    "logsumexp": Program(lambda x: torch.logsumexp(x, 1), floats(), tolerance=SUM),
    "softmax": Program(lambda x: torch.softmax(x * 5, -1), floats()),
    "softmax of columns": Program(lambda x: torch.softmax(x * 5, 0), floats()),
    "softmax of bfloat16": Program(lambda x: torch.softmax(x, -1), floats(bf16), tolerance=HALF),
    "log softmax of float16": Program(lambda x: torch.log_softmax(x, -1), floats(f16), tolerance=F16),
    "layer norm": Program(
        lambda x, w, b: F.layer_norm(x, (x.shape[-1],), w, b),
        lambda n, m: [torch.randn(n, m) + 5, torch.randn(m), torch.randn(m)], tolerance={"rtol": 1e-4, "atol": 1e-4},
    ),
    "rms norm of bfloat16": Program(
        lambda x, w: F.rms_norm(x, (x.shape[-1],), w, 1e-6),
        lambda n, m: [torch.randn(n, m).to(bf16), torch.randn(m).to(bf16)], tolerance=HALF,
    ),
    "group norm": Program(
        lambda x: F.group_norm(x, 2), lambda n, m: [torch.randn(n, 4, m + 2)], least=1, tolerance={"atol": 1e-4},
    ),
    "cross entropy": Program(lambda x, t: F.cross_entropy(x, t), classes, least=1, tolerance=SUM),
    # Indices.
    "rows of a table": Program(lambda x, i: x[i] * 2, indices),
    "embedding of int32": Program(lambda x, i: F.embedding(i.int(), x).relu(), indices),
    "gather": Program(lambda x, i: x.gather(1, i) + 1, columns),
    "index_add": Program(lambda x, i: torch.zeros_like(x).index_add(0, i, x[2:]), indices, tolerance=SUM),
    "scatter_add": Program(lambda x, i: torch.ones_like(x).scatter_add(1, i, x[:, 1:] * 2), columns, tolerance=SUM),
    "scatter_reduce": Program(lambda x, i: x.scatter_reduce(1, i, x[:, 1:], "amax"), columns),
    "add of int64 at indices": Program(
        lambda x, i: torch.zeros(x.shape[0], dtype=torch.int64, device=x.device).index_put((i,), i, accumulate=True),
        indices,
    ),
    "concatenation": Program(lambda x, y: torch.cat([x * 2, y.exp()], 1), floats(count=2)),
    "pad and flip": Program(lambda x: F.pad(x, (2, 1, 0, 3), value=7.0).flip(0) * 2, floats()),
    "roll": Program(lambda x: torch.roll(x, 1, 0) + x, floats()),
    "triangle": Program(lambda x: torch.tril(x, 1) + torch.arange(x.shape[1], device=x.device), floats()),
    # With library calls between kernels.
    "product": Program(
        lambda x, y: F.relu(x @ y.t() + 1).sum(1), of_few_rows, launches=1, tolerance={"rtol": 1e-4, "atol": 1e-4}
    ),
    "running sum": Program(
        lambda x: (x * 2).cumsum(1) + 1, floats(), launches=2, tolerance={"rtol": 1e-4, "atol": 1e-3}
    ),
    "sorted": Program(lambda x: (x + 1).sort(1).values * 2, floats(), launches=2),
}  # fmt: skip


LONG = """functions of float64|powers|chain of float16|int32|int8 and bool|permuted and written|channels last
sum of bfloat16|extrema of NaN|any and all|norm|softmax of columns|log softmax of float16|group norm|embedding of int32
scatter_reduce|index_add|roll|triangle|sorted""".replace("\n", "|").split("|")


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", cases_of(PROGRAMS, LONG))
def test_equals_eager(machine: Machine, name: str) -> None:
    program = PROGRAMS[name]
    sizes = [size for size in machine.pick(SIZES, SIZES + LARGE) if min(size) >= program.least]
    cases = [program.make(n, m) for n, m in sizes]
    machine.check(program.run, cases, launches=program.launches, graphs=program.graphs, **program.tolerance)


def test_addresses_of_more_than_32_bits(machine: Machine) -> None:
    """Elements beyond 2**31, of a tensor and of a row."""
    machine.only_on_a_gpu("2 GiB of elements, which the interpreter would need hours for")
    beyond = 2**31 + 4099

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x + 1, (x[-7:] != 0).sum()

    compiled = machine.compile(fn)
    for n in (100, beyond, 33):
        x = torch.zeros(n, dtype=torch.int8, device=machine.device)
        x[-3:] = 5
        more, count = compiled(x)
        assert count.item() == 3 and more[-3:].tolist() == [6, 6, 6] and int(more[:-3].amax()) == 1


def test_numbers_of_64_bits_beside_addresses_of_32(machine: Machine) -> None:
    """What a kernel computes with, and no address is made of: reals as their bits, and integers."""

    def program(x: torch.Tensor) -> Any:
        rows, columns = x.shape
        return x * (14 / (rows // 3 + 1)), x.sum(-1) * (rows**4 / (columns + 1)), x.long() + rows**5 * columns

    machine.check(program, [(torch.ones(60, 7),), (torch.ones(9, 12),), (torch.ones(1025, 64),)], rtol=1e-6)


def test_a_row_of_more_than_32_bits(machine: Machine) -> None:
    machine.only_on_a_gpu("2 GiB of elements, which the interpreter would need hours for")
    compiled = machine.compile(lambda x: ((x != 0).sum(), x.max()))
    for n in (100, 2**31 + 4099):
        x = torch.zeros(n, dtype=torch.int8, device=machine.device)
        x[:: n // 5] = 9
        count, largest = compiled(x)
        assert (count.item(), largest.item()) == (len(range(0, n, n // 5)), 9)


def test_an_index_out_of_range_is_an_error(machine: Machine) -> None:
    """On a GPU at a later call, since none waits for the kernel."""
    compiled = machine.compile(lambda x, i: x[i] * 2)
    x, i = machine.put((torch.randn(5, 3), torch.tensor([0, 4, 1])))
    assert torch.equal(compiled(x, i), x[i] * 2)
    with pytest.raises(IndexError, match="index out of range"):
        compiled(x, i + 1)
        if machine.is_gpu:
            torch.cuda.synchronize()
        compiled(x, i)
    assert torch.equal(compiled(x, i), x[i] * 2)


def test_draws_are_those_of_the_generator(machine: Machine) -> None:
    """The same seed, the same numbers, at any size; dropout scales what it keeps."""

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.rand_like(x) + x, F.dropout(torch.ones_like(x), 0.25)

    compiled = machine.compile(fn)
    for n in (5, 1, 0, machine.pick(301, 100_003)):
        x = torch.zeros(n, device=machine.device)
        found = []
        for _ in range(2):
            torch.manual_seed(3)
            found.append(compiled(x))
        assert torch.equal(found[0][0], found[1][0]) and torch.equal(found[0][1], found[1][1])
        drawn, kept = found[0]
        assert bool(((drawn >= 0) & (drawn < 1)).all())
        torch.testing.assert_close(kept, torch.where(kept != 0, 1 / 0.75, 0.0))
        if n > 300:
            assert 0.4 < drawn.mean().item() < 0.6 and 0.6 < (kept != 0).float().mean().item() < 0.9
