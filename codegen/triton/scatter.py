"""Prints kernels that write at data-dependent indices.

If the destination is not in the source's memory, a first launch copies the source. The second launch writes.
``points``: one lane per point, which sets an element or adds to it atomically (in any order, as eager mode on a GPU).
``lines``: one lane per point of the parallel dims, which loops over the reduced dims in order; for combiners without an
atomic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from symshape.analysis.loops import Arg, LoopKernel
from symshape.artifact.triton_kernels import TritonKernel, TritonStage, TritonVariant
from symshape.codegen.scatter_kernels import copy_of, memories, operation
from symshape.codegen.triton.body import TritonBody, check_types
from symshape.codegen.triton.function import FunctionText
from symshape.codegen.triton.launcher import by_value, first_lines, given_tensors
from symshape.codegen.triton.ops import op_text
from symshape.prover.numbers.expr import ceildiv, product

_BLOCK: Final = 256
_WARPS: Final = 4
_ATOMIC: Final = ("f32", "f64", "i32", "i64")
_SOURCE: Final = '''"""{name}: {points} points, each of which writes one element."""

import triton
import triton.language as tl

from symshape.runtime.triton.lib import math as tm
from symshape.runtime.triton.lib import rows as tr

# True: an index out of range stops the kernel where it is found, besides being reported.
DEBUG = tl.constexpr(False)
'''


def emit_scatter(kernel: LoopKernel, name: str) -> TritonKernel:
    """The Triton kernel of a scatter. KernelError if an operation or type has no Triton code."""
    check_types(kernel)
    write = kernel.scatter
    assert write is not None
    atomic = write.combiner == "set" or write.combiner == "add" and write.dtype in _ATOMIC
    copy = copy_of(kernel)
    slot = ("error_slot",) if kernel.checks_index else ()
    head = _points(copy, f"{name}_copy")
    head.own = slot  # a common argument of all functions
    function = _points(kernel, name) if atomic else _lines(kernel, name)
    dims = kernel.dims if atomic else tuple(d for d in kernel.dims if not d.reduced)
    sizes = [product(d.size for d in own) for own in (copy.dims, dims)]
    stages = [
        TritonStage(f.name, (("XBLOCK", _BLOCK),), _WARPS, ceildiv(size, _BLOCK).python())
        for f, size in zip((head, function), sizes)
    ]
    source, dest = memories(kernel)
    tensors = tuple((a.name, a.dtype) for a in kernel.args)
    same = f"address{source} == address{dest}"
    variants = (
        TritonVariant("in_place", "scatter", (stages[1],), 64, (), same),
        TritonVariant("copied", "scatter", tuple(stages), 64, (), "True"),
    )
    points = sizes[1].python()
    source_text = _SOURCE.format(name=name, points=product(d.size for d in kernel.dims).python())
    return TritonKernel(
        name=name,
        source="\n\n".join([source_text, head.text(), function.text()]),
        tensors=tensors,
        symbols=kernel.symbols,
        checks_index=kernel.checks_index,
        xnumel=points,
        rnumel="1",
        variants=variants,
        functions={head.name: (), function.name: ()},
        launcher=_launcher(kernel.args, [*kernel.symbols, *slot], (source, dest), stages),
        by_value=by_value(kernel.args),
        data=tuple(s for s in kernel.symbols if s in kernel.numbers),
    )


def _launcher(args: Sequence[Arg], values: list[str], memory: tuple[int, int], stages: list[TritonStage]) -> str:
    """The source of the launcher. Each of the two launches is skipped if it has no points."""
    given = ", ".join([*given_tensors(args), *values])
    copy, write = (stage.programs for stage in stages)
    lines = [
        *first_lines(args),
        f"copies, writes = {copy}, {write}",
        f"if address{memory[0]} == address{memory[1]}:",
        f"    if writes > 0: in_place(device, writes, {given})",
        "    return",
        f"if copies > 0: copied_0(device, copies, {given})",
        f"if writes > 0: copied_1(device, writes, {given})",
    ]
    names = ", ".join([*(arg.name for arg in args), *values])
    return "\n".join([f"def launch({names}):", *(f"    {line}" for line in lines), ""])


def _points(kernel: LoopKernel, name: str) -> FunctionText:
    """The function with one lane per point."""
    flat = replace(
        kernel,
        dims=tuple(replace(d, reduced=False) for d in kernel.dims),
        code=tuple(replace(i, row=False) for i in kernel.code),
    )
    f = FunctionText(flat, name, ["XBLOCK"])
    f.bound("xnumel", f.parallel)
    f.programs()
    _emit(f.body, flat)
    return f


def _lines(kernel: LoopKernel, name: str) -> FunctionText:
    """The function with one lane per point of the parallel dims, which alone writes to its elements, in order."""
    f = FunctionText(kernel, name, ["XBLOCK"], axis_of={d.name: "" if d.reduced else "x" for d in kernel.dims})
    f.bound("xnumel", f.parallel)
    f.line("x = tl.program_id(0).to(INDEX) * XBLOCK + tl.arange(0, XBLOCK)", "xmask = x < xnumel")
    f.body.recover("x", f.parallel)
    f.bound("rnumel", f.reduced)
    f.line("for r in range(0, rnumel):")
    f.body.indent += "    "
    f.body.recover("r", f.reduced)
    _emit(f.body, kernel)
    f.line("tl.debug_barrier()")
    return f


def _emit(body: TritonBody, kernel: LoopKernel) -> None:
    for instr in kernel.code:
        if instr.op != "scatter":
            body.emit(instr)
            continue
        value, *indices = instr.operands
        address, mask = body.address_of(indices, kernel.args[instr.arg].strides)
        pointer = f"{kernel.args[instr.arg].name} + ({address} + 0 * x)"
        text = body.operand(value)
        if instr.combiner == "set":
            body.line(f"tl.store({pointer}, {text}, mask={mask})")
        elif instr.combiner == "add" and instr.dtype in _ATOMIC and not any(d.reduced for d in kernel.dims):
            body.line(f"tl.atomic_add({pointer}, {text}, mask={mask})")
        else:
            body.line(f"old = tl.load({pointer}, mask={mask}, other=0)")
            new = op_text(operation(instr.combiner, instr.dtype), ["old", text], kernel.name)
            body.line(f"tl.store({pointer}, {new}, mask={mask})")
