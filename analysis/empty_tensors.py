"""Masks row-level reads of tensors that may be empty.

Before: load address 0, at row level, of a tensor of s0 <= 1 elements
After:  the same with the mask s0 - 1 >= 0

A dim of at most one element does not appear in addresses, and what does not depend on a reduced dim is read once per
row. If the reduced dims are empty, such a row exists although the tensor may have no element and no memory.
"""

from __future__ import annotations

from dataclasses import replace

from symshape.analysis.kernel_facts import space_facts
from symshape.analysis.loops import Instr, LoopKernel
from symshape.prover.numbers.expr import Expr, product
from symshape.prover.numbers.facts import Facts


def guard_empty_tensors(kernel: LoopKernel) -> LoopKernel:
    """The kernel with masks, so that no row reads from an empty tensor."""
    if not any(dim.reduced for dim in kernel.dims):
        return kernel  # each load is at a point of the full level, where its element exists
    reduced = frozenset(dim.name for dim in kernel.dims if dim.reduced)
    touched = sorted({instr.arg for instr in kernel.code if _is_for_row(instr, reduced)})
    if not touched:
        return kernel
    rows = space_facts(kernel.args, kernel.dims).row
    masks = {arg: mask for arg in touched if (mask := _not_empty(rows, kernel.args[arg].sizes))}
    code = [_guarded(i, masks[i.arg]) if _is_for_row(i, reduced) and i.arg in masks else i for i in kernel.code]
    return replace(kernel, code=tuple(code)) if masks else kernel


def _is_for_row(instr: Instr, reduced: frozenset[str]) -> bool:
    """Whether an instruction may read for a row whose reduced dims are empty."""
    if instr.op != "load" or instr.address is None:
        return instr.op == "extract"
    return all(reduced.isdisjoint(expr.symbols) for expr in (instr.address, *instr.mask))


def _not_empty(rows: Facts, sizes: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Expressions that are non-negative if the tensor has an element; none if that is proven for each row."""
    left = product(size for size in sizes if not rows.nonnegative(size - 1)) - 1
    return () if rows.nonnegative(left) else (left,)


def _guarded(instr: Instr, mask: tuple[Expr, ...]) -> Instr:
    return replace(instr, mask=(*instr.mask, *mask) if instr.op == "load" else mask)
