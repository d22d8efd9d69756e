"""Reductions of rows with lengths of their own: the loop ends where the row does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from loop_builder import D0, D1, D2, SYMBOLS, Builder, build, cpu_target, threads

from symshape.analysis.ragged_rows import RaggedRow, ragged_row
from symshape.prover.numbers.expr import Expr

__all__ = ["cpu_target"]
FAR = 2**63 - 1
N, M, W = SYMBOLS[:3]
NEUTRAL = {"add": 0.0, "mul": 1.0, "max": -7.5, "min": 7.5}


def ragged(combiner: str, wide: bool, started: bool, outside: float | None = None) -> Builder:
    """out[r] (or out[r, w]) = combiner over i of ``x[start[r] + i]`` (or ``x[.., w]``) before stop[r], else
    of a constant."""
    sizes, index = ([N, W, M], D2) if wide else ([N, M], D1)
    b = Builder(f"ragged_{combiner}_{wide}_{started}", sizes, [len(sizes) - 1], symbols=3)
    length = SYMBOLS[3]  # of x, whatever it is: the kernel does not know
    b.symbols = ("s0", "s1", "s2", "s3")
    x = b.arg("f32", [length, W] if wide else [length])
    start, stop = b.arg("i64", [N]), b.arg("i64", [N])
    out = b.arg("f32", [N, W] if wide else [N], output=True)
    first, last = b.load(start, D0, row=True), b.load(stop, D0, row=True)
    at = b.add("arith.index_cast", b.add("index", dtype="index", address=index), dtype="i64")
    if started:
        at = b.add("arith.addi", first, at, dtype="i64")
    inside = b.add("arith.cmpi", at, last, dtype="i1", predicate="slt")
    kept = b.add("arith.select", inside, at, b.constant(0, "i64"), dtype="i64")
    place = [b.add("arith.index_cast", kept, dtype="index")]
    if wide:
        place.append(b.add("index", dtype="index", row=True, address=D1))
    value = b.add("extract", *place, arg=x)
    constant = b.constant(NEUTRAL[combiner] if outside is None else outside)
    total = b.reduce(b.add("arith.select", inside, value, constant), combiner)
    b.store(total, out, D0 * W + D1 if wide else D0, row=True)
    return b


def found(b: Builder) -> RaggedRow | None:
    kernel = b.kernel()
    (dim,) = (d for d in kernel.dims if d.reduced)
    full, rows = ([i for i in kernel.code if i.row is row] for row in (False, True))
    return ragged_row(full, rows, dim.name, frozenset({dim.name}))


def expected(x: torch.Tensor, rows: list[tuple[int, int]], longest: int, combiner: str) -> list[Any]:
    results = []
    for start, stop in rows:
        part = x[start : start + max(min(stop - start, longest), 0)].double()
        padding = torch.full((1, *x.shape[1:]), NEUTRAL[combiner], dtype=torch.float64)
        part = torch.cat([part, padding]) if part.shape[0] < longest else part
        reduce = {"add": torch.sum, "mul": torch.prod, "max": torch.amax, "min": torch.amin}[combiner]
        results.append(reduce(part, 0))
    return results


@pytest.mark.parametrize("combiner", ["add", "mul", "max", "min"])
def test_values(combiner: str) -> None:
    """Also of rows that are empty, that end before they begin, that are longer than the dim, and in any number of
    threads."""
    flat, wide = build(ragged(combiner, False, True), ragged(combiner, True, True))
    x = torch.rand(900, 5) + 0.5
    rows = [(0, 3), (3, 3), (3, 40), (40, 41), (41, 30), (41, 900), (50, 50 + 17), (880, 900), (0, 900)]
    start, stop = (torch.tensor(one) for one in zip(*rows))
    for longest in (0, 1, 17, 300, 1000):
        for count in (1, 2):
            with threads(count):
                out = torch.empty(len(rows))
                flat(x[:, 0].contiguous(), start, stop, out, len(rows), longest, 1, 900)
                results = torch.stack(expected(x[:, 0], rows, longest, combiner)) if longest else None
                if results is not None:
                    torch.testing.assert_close(out, results.float(), rtol=1e-5, atol=1e-5)
                out = torch.empty(len(rows), 5)
                wide(x, start, stop, out, len(rows), longest, 5, 900)
                if longest:
                    results = torch.stack(expected(x, rows, longest, combiner))
                    torch.testing.assert_close(out, results.float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("wide", [False, True])
def test_points_after_the_end_take_no_time(wide: bool) -> None:
    """With a loop over all of them this would not end."""
    total, largest = build(ragged("add", wide, True), ragged("max", wide, True))
    x, rows = torch.rand(64, 6), [(0, 5), (5, 5), (5, 64)]
    x = x if wide else x[:, 0].contiguous()
    start, stop = (torch.tensor(one) for one in zip(*rows))
    for kernel, combiner in ((total, "add"), (largest, "max")):
        out = torch.empty(3, 6) if wide else torch.empty(3)
        kernel(x, start, stop, out, 3, 2**50, 6 if wide else 1, 64)
        torch.testing.assert_close(out, torch.stack(expected(x, rows, 2**50, combiner)).float())


def test_ends_that_are_no_places() -> None:
    """Far outside of the numbers in which an index can be added: what wraps around does so as it is written."""
    (total,) = build(ragged("add", False, False))
    x, stops = torch.ones(9), [FAR, -FAR, -1, 0, 4, 9, 2**62]
    out = torch.empty(len(stops))
    total(x, torch.zeros(len(stops), dtype=torch.int64), torch.tensor(stops), out, len(stops), 9, 1, 9)
    assert out.tolist() == [9, 0, 0, 0, 4, 9, 9]
    (total,) = build(ragged("add", False, True))
    pairs = [(-3, -FAR), (0, FAR), (FAR, -5), (FAR - 1, 0), (-FAR, 2 - FAR)]
    for start, stop in pairs:
        wrapped = [(start + i + 2**63) % 2**64 - 2**63 for i in range(9)]
        if any(at < stop and not 0 <= at < 9 for at in wrapped):
            continue  # it would read there, as eager mode would not
        total(x, torch.tensor([start]), torch.tensor([stop]), out, 1, 9, 1, 9)
        assert out[0] == sum(at < stop for at in wrapped), (start, stop)


def test_what_is_a_ragged_row() -> None:
    for combiner in NEUTRAL:
        row = found(ragged(combiner, True, True))
        assert row is not None and row.start is not None and row.padded == (combiner in ("max", "min"))
        assert found(ragged(combiner, False, False)) is not None
    assert found(ragged("add", False, True, outside=1.0)) is None
    assert found(ragged("mul", False, True, outside=0.0)) is None


def test_what_is_none() -> None:
    """A store at every point, an end that differs along the dim, another comparison, two conditions."""

    def kernel(predicate: str = "slt", stored: bool = False, address: Expr = D0, twice: bool = False) -> Builder:
        b = Builder("other", [N, M], [1])
        x, stop = b.arg("f32", [N, M]), b.arg("i64", [N, M])
        out = b.arg("f32", [N], output=True)
        at = b.add("arith.index_cast", b.add("index", dtype="index", address=D1), dtype="i64")
        inside = b.add("arith.cmpi", at, b.load(stop, address), dtype="i1", predicate=predicate)
        value = b.add("arith.select", inside, b.load(x, D0 * M + D1), b.constant(0.0))
        if stored:
            b.store(value, b.arg("f32", [N, M], output=True), D0 * M + D1)
        total = b.reduce(value, "add")
        if twice:
            below = b.add("arith.cmpi", at, b.constant(3, "i64"), dtype="i1", predicate="slt")
            other = b.reduce(b.add("arith.select", below, b.load(x, D0 * M + D1), b.constant(0.0)), "add")
            total = b.add("arith.addf", total, other, row=True)
        b.store(total, out, D0, row=True)
        return b

    assert found(kernel()) is not None
    assert found(kernel("sle")) is None and found(kernel("ult")) is None
    assert found(kernel(stored=True)) is None
    assert found(kernel(address=D0 * M + D1)) is None
    assert found(kernel(twice=True)) is None
