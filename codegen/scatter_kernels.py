"""Properties of kernels that write at data-dependent indices, for the emitters of both targets."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from symshape.analysis.loops import Dim, Instr, LoopKernel
from symshape.analysis.normalise_loops import normalise
from symshape.prover.numbers.expr import Expr

_OPERATIONS: Final = {
    "add": ("arith.addf", "arith.addi"),
    "mul": ("arith.mulf", "arith.muli"),
    "max": ("arith.maximumf", "arith.maxsi"),
    "min": ("arith.minimumf", "arith.minsi"),
}
_UNSIGNED: Final = {"arith.maxsi": "arith.maxui", "arith.minsi": "arith.minui"}


def memories(kernel: LoopKernel) -> tuple[int, int]:
    """(source, destination), by the number of the argument."""
    assert kernel.scatter is not None and isinstance(kernel.scatter.value, int)
    return kernel.scatter.value, kernel.scatter.arg


def copy_of(kernel: LoopKernel) -> LoopKernel:
    """The kernel that copies the source to the destination. It has the arguments of the scatter."""
    source, dest = memories(kernel)
    sizes = kernel.args[dest].sizes
    dims = tuple(Dim(f"d{i}", size, False, f"d{i}") for i, size in enumerate(sizes))

    def at(arg: int) -> Expr:
        return sum((Expr.symbol(d.name) * s for d, s in zip(dims, kernel.args[arg].strides)), Expr.const(0))

    dtype = kernel.args[dest].dtype
    code = (
        Instr("load", (0,), (), dtype, False, arg=source, address=at(source)),
        Instr("store", (), (0,), dtype, False, arg=dest, address=at(dest)),
    )
    return normalise(replace(kernel, name=f"{kernel.name}_copy", dims=dims, code=code))


def operation(combiner: str, dtype: str) -> Instr:
    """The instruction that combines an element with a value; its numbers mean nothing."""
    op = _OPERATIONS[combiner][not dtype.startswith(("f", "bf"))]
    op = _UNSIGNED.get(op, op) if dtype.startswith("ui") else op
    return Instr(op, (-1,), (-1, -1), dtype, False, source_dtype=dtype)
