"""Masks row-level reads of tensors that may be empty.

Before: load address 0, at row level, of a tensor of s0 <= 1 elements
After:  the same with the mask s0 - 1 >= 0

A dim of at most one element does not occur in addresses, and a value that does not depend on a reduced dim is read once
per row. If the reduced dims are empty, such a row exists although the tensor may have no element and no memory, or be
an empty part of another one (``x[n:]``) whose address is out of bounds. A read is masked where a reduced dim has at
most one element, since only then it is missing in the address.
"""

from __future__ import annotations

from dataclasses import replace

from symshape.analysis.kernel_facts import space_facts
from symshape.analysis.loops import Arg, Instr, LoopKernel
from symshape.prover.numbers.expr import Expr, product
from symshape.prover.numbers.facts import Facts


def guard_empty_tensors(kernel: LoopKernel) -> LoopKernel:
    """The kernel with masks, so that no row reads from an empty tensor, or behind one."""
    if not any(dim.reduced for dim in kernel.dims):
        return kernel  # each load is at a point of the full level, where its element exists
    reduced = frozenset(dim.name for dim in kernel.dims if dim.reduced)
    touched = sorted({instr.arg for instr in kernel.code if _is_for_row(instr, reduced)})
    if not touched:
        return kernel
    space = space_facts(kernel.args, kernel.dims)
    masks = {arg: mask for arg in touched if (mask := _not_empty(space.row, kernel.args[arg].sizes))}
    is_missing = any(dim.reduced and _may_be_missing(space.symbols, dim.size) for dim in kernel.dims)
    code = []
    for instr in kernel.code:
        if _is_for_row(instr, reduced):
            bounds = _in_memory(space.row, instr, kernel.args[instr.arg]) if is_missing else ()
            instr = _guarded(instr, (*masks.get(instr.arg, ()), *bounds))
        code.append(instr)
    return kernel if code == list(kernel.code) else replace(kernel, code=tuple(code))


def _is_for_row(instr: Instr, reduced: frozenset[str]) -> bool:
    """Whether an instruction may read for a row whose reduced dims are empty."""
    if instr.op != "load" or instr.address is None:
        return instr.op == "extract"
    return all(reduced.isdisjoint(expr.symbols) for expr in (instr.address, *instr.mask))


def _not_empty(rows: Facts, sizes: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Expressions that are non-negative if the tensor has an element; none if that is proven for each row."""
    left = product(size for size in sizes if not rows.nonnegative(size - 1)) - 1
    return () if rows.nonnegative(left) else (left,)


def _may_be_missing(symbols: Facts, size: Expr) -> bool:
    """Whether a dim has at most one element, and may have none."""
    return symbols.nonnegative(1 - size) and not symbols.nonnegative(size - 1)


def _in_memory(rows: Facts, instr: Instr, arg: Arg) -> tuple[Expr, ...]:
    """Expressions that are non-negative if a load reads within the tensor's memory; none that is proven."""
    if instr.address is None:
        return ()
    last = sum(((size - 1) * stride for size, stride in zip(arg.sizes, arg.strides)), Expr.const(0))
    return tuple(one for one in (instr.address, last - instr.address) if not rows.nonnegative(one))


def _guarded(instr: Instr, mask: tuple[Expr, ...]) -> Instr:
    if not mask:
        return instr
    return replace(instr, mask=(*instr.mask, *mask) if instr.op == "load" else mask)
