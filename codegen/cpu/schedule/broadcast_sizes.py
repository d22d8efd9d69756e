"""Forms for sizes that may be 1 and broadcast, which is known only when the kernel is called.

Along a dim that may be broadcast, an operand is read at ``d * min(1, s - 1)``, which is a gather if it is the lane dim.
With ``s == 1`` it is one element for the whole row; with ``s > 1`` it is a contiguous vector.
"""

from __future__ import annotations

from dataclasses import replace

from symshape.analysis.fold_loops import fold
from symshape.analysis.loops import LoopKernel
from symshape.analysis.normalise_loops import normalise
from symshape.codegen.cpu.schedule.small_dims import with_value
from symshape.prover.numbers.expr import Atom, Expr, Function, minimum


def perhaps_repeated(kernel: LoopKernel) -> list[str]:
    """The symbols of sizes that are 1 or the size that they broadcast to, along which something is read."""
    exprs = [instr.address for instr in kernel.code if instr.op in ("load", "index") and instr.address is not None]
    atoms = {atom for expr in exprs for atom in expr.atoms}
    return [name for name in kernel.symbols if _step(name) in atoms]


def with_ones(kernel: LoopKernel, names: list[str]) -> LoopKernel:
    """The kernel specialised for each of the sizes being 1."""
    for name in names:
        kernel = with_value(kernel, name, Expr.const(1))
    return normalise(fold(kernel))


def with_more(kernel: LoopKernel, names: list[str]) -> LoopKernel:
    """The kernel specialised for none of the sizes being 1: nothing is broadcast. (A size of 0 has no points.)"""
    steps = {_step(name) for name in names}

    def known(atom: Atom) -> Expr | None:
        return Expr.const(1) if atom in steps else None

    code = (
        instr if instr.address is None else replace(instr, address=instr.address.map_atoms(known))
        for instr in kernel.code
    )
    return normalise(fold(replace(kernel, code=tuple(code))))


def _step(name: str) -> Atom:
    """The step ``min(1, s - 1)`` of the index along a dim of size s."""
    (atom,) = minimum(1, Expr.symbol(name) - 1).atoms
    assert isinstance(atom, Function)
    return atom
