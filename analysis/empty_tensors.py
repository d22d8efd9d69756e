"""Guards what a kernel reads beside its reductions against tensors without elements.

Before: load address 0, at row level, of a tensor of s0 elements: each of its s0 <= 1 elements was read once
After:  the same with the mask s0 - 1 >= 0

A dim of at most one element leaves no trace in an address, and what does not depend on a reduced dim is read once per
row. Where the reduced dims are empty a row reads nothing, and there may be nothing to read: no memory at all.
"""

from __future__ import annotations

from dataclasses import replace

from symshape.analysis.kernel_facts import space_facts
from symshape.analysis.loops import Instr, LoopKernel
from symshape.prover.numbers.expr import Expr, product
from symshape.prover.numbers.facts import Facts


def guard_empty_tensors(kernel: LoopKernel) -> LoopKernel:
    """The same kernel, which touches no tensor that is empty at a row that exists."""
    if not any(dim.reduced for dim in kernel.dims):
        return kernel  # each load is at a point, and so its element is there
    reduced = frozenset(dim.name for dim in kernel.dims if dim.reduced)
    touched = sorted({instr.arg for instr in kernel.code if _is_for_row(instr, reduced)})
    if not touched:
        return kernel
    rows = space_facts(kernel.args, kernel.dims).row
    masks = {arg: mask for arg in touched if (mask := _not_empty(rows, kernel.args[arg].sizes))}
    code = [_guarded(i, masks[i.arg]) if _is_for_row(i, reduced) and i.arg in masks else i for i in kernel.code]
    return replace(kernel, code=tuple(code)) if masks else kernel


def _is_for_row(instr: Instr, reduced: frozenset[str]) -> bool:
    """Whether it reads what it may for a row that reduces nothing."""
    if instr.op != "load" or instr.address is None:
        return instr.op == "extract"
    return all(reduced.isdisjoint(expr.symbols) for expr in (instr.address, *instr.mask))


def _not_empty(rows: Facts, sizes: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """What must not be negative for the tensor to have an element; nothing where each row says that it has."""
    left = product(size for size in sizes if not rows.nonnegative(size - 1)) - 1
    return () if rows.nonnegative(left) else (left,)


def _guarded(instr: Instr, mask: tuple[Expr, ...]) -> Instr:
    return replace(instr, mask=(*instr.mask, *mask) if instr.op == "load" else mask)
