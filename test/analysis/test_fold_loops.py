"""Folding of index arithmetic in loop programs."""

from __future__ import annotations

from dataclasses import replace

from loop_builder import D0, D1, SYMBOLS, Builder

from symshape.analysis.fold_loops import fold
from symshape.analysis.loops import LoopKernel


def masked_read(offset: int, wrapped: bool = True) -> LoopKernel:
    """out[d0, d1] = x[d0, d1 + offset], with the wrap of negative indices and the check that indexing has."""
    n, m = SYMBOLS[:2]
    b = Builder("masked_read", [n, m])
    x, out = b.arg("f32", [n, m]), b.arg("f32", [n, m], output=True)
    column = b.add("arith.index_cast", b.add("index", dtype="index", address=D1), dtype="i64")
    column = b.add("arith.muli", column, b.constant(1, "i64"), dtype="i64")
    column = b.add("arith.addi", column, b.constant(offset, "i64"), dtype="i64")
    if wrapped:
        negative = b.add("arith.cmpi", column, b.constant(0, "i64"), dtype="i1", predicate="slt")
        size = b.add("arith.index_cast", b.add("index", dtype="index", address=m), dtype="i64")
        column = b.add("arith.select", negative, b.add("arith.addi", column, size, dtype="i64"), column, dtype="i64")
    index = b.add("check_index", b.add("arith.index_cast", column, dtype="index"), dtype="index", address=m)
    b.store(b.add("extract", b.add("index", dtype="index", address=D0), index, arg=x), out, D0 * m + D1)
    return b.kernel()


def test_known_index_becomes_a_load() -> None:
    folded = fold(masked_read(0))
    assert [instr.op for instr in folded.code] == ["load", "store"]
    assert folded.code[0].address == D0 * SYMBOLS[1] + D1
    assert not folded.checks_index


def test_index_that_may_be_outside_keeps_its_check() -> None:
    for offset in (1, -1):
        assert fold(masked_read(offset)).checks_index
        assert fold(masked_read(offset, wrapped=False)).checks_index


def test_comparisons_and_logic() -> None:
    n = SYMBOLS[0]
    b = Builder("logic", [n], symbols=1)
    x, out = b.arg("i1", [n]), b.arg("i1", [n], output=True)
    position = b.add("index", dtype="index", address=D0)
    below = b.add("arith.cmpi", position, b.add("index", dtype="index", address=n), dtype="i1", predicate="slt")
    unknown = b.add("arith.cmpi", position, b.constant(3, "index"), dtype="i1", predicate="eq")
    value = b.add("arith.andi", below, b.load(x, D0), dtype="i1")
    b.store(b.add("arith.ori", value, unknown, dtype="i1"), out, D0)
    ops = [instr.op for instr in fold(b.kernel()).code]
    assert ops == ["index", "constant", "arith.cmpi", "load", "arith.ori", "store"]


def test_large_factors_are_left_alone() -> None:
    """They might wrap around, which comparisons of polynomials know nothing of."""
    n = SYMBOLS[0]
    b = Builder("large", [n], symbols=1)
    out = b.arg("i1", [n], output=True)
    wide = b.add("arith.index_cast", b.add("index", dtype="index", address=D0), dtype="i64")
    wide = b.add("arith.muli", wide, b.constant(1 << 62, "i64"), dtype="i64")
    negative = b.add("arith.cmpi", wide, b.constant(0, "i64"), dtype="i1", predicate="slt")
    b.store(negative, out, D0)
    assert "arith.cmpi" in [instr.op for instr in fold(b.kernel()).code]


def padded_read(otherwise: float, first: int, by_value: bool = False) -> LoopKernel:
    """out[d0] = x[d0 - 1] from 1 on, else a number, chosen from ``first`` on."""
    n = SYMBOLS[0]
    b = Builder("padded_read", [n + 1], symbols=1)
    x, out = b.arg("f32", [n]), b.arg("f32", [n + 1], output=True)
    column = b.add("arith.index_cast", b.add("index", dtype="index", address=D0), dtype="i64")
    inside = b.add("arith.cmpi", column, b.constant(first, "i64"), dtype="i1", predicate="sge")
    read = b.add("load", dtype="f32", arg=x, address=D0 - 1, mask=(D0 - 1,))
    b.store(b.add("arith.select", inside, read, b.constant(otherwise, "f32"), dtype="f32"), out, D0)
    kernel = b.kernel()
    args = tuple(replace(arg, by_value=by_value and not arg.output) for arg in kernel.args)
    return replace(kernel, args=args)


def test_zeros_around_a_tensor_are_its_mask() -> None:
    assert [instr.op for instr in fold(padded_read(0.0, 1)).code] == ["load", "store"]
    for other in (padded_read(-0.0, 1), padded_read(2.0, 1), padded_read(0.0, 2), padded_read(0.0, 1, by_value=True)):
        assert "arith.select" in [instr.op for instr in fold(other).code]
