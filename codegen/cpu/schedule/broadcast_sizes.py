"""Forms for sizes that may be 1 and broadcast, which is known only when the kernel is called.

A dim that may be repeated is read at ``d * min(1, s - 1)``. Along the lanes that is a gather; with 1 for ``s`` it is
one element for the whole row, and with a larger ``s`` a vector.
"""

from __future__ import annotations

from dataclasses import replace

from symshape.analysis.fold_loops import fold
from symshape.analysis.loops import LoopKernel
from symshape.analysis.normalise_loops import normalise
from symshape.codegen.cpu.schedule.small_dims import with_value
from symshape.prover.numbers.expr import Atom, Expr, Function, minimum


def perhaps_repeated(kernel: LoopKernel) -> list[str]:
    """The symbols of sizes that are 1 or what they broadcast to, of dims along which something is read."""
    exprs = [instr.address for instr in kernel.code if instr.op in ("load", "index") and instr.address is not None]
    atoms = {atom for expr in exprs for atom in expr.atoms}
    return [name for name in kernel.symbols if _step(name) in atoms]


def with_ones(kernel: LoopKernel, names: list[str]) -> LoopKernel:
    """The kernel where each of the sizes is 1."""
    for name in names:
        kernel = with_value(kernel, name, Expr.const(1))
    return normalise(fold(kernel))


def with_more(kernel: LoopKernel, names: list[str]) -> LoopKernel:
    """The kernel where none of the sizes is 1: nothing is repeated. (Of a size of 0 there is no point.)"""
    steps = {_step(name) for name in names}

    def known(atom: Atom) -> Expr | None:
        return Expr.const(1) if atom in steps else None

    code = (
        instr if instr.address is None else replace(instr, address=instr.address.map_atoms(known))
        for instr in kernel.code
    )
    return normalise(fold(replace(kernel, code=tuple(code))))


def _step(name: str) -> Atom:
    """Of the index along a dim whose size has that name."""
    (atom,) = minimum(1, Expr.symbol(name) - 1).atoms
    assert isinstance(atom, Function)
    return atom
