"""Forms for one value of a size: a dim of a few elements is unrolled.

A reduction over one element is that element; over three, ``combine`` takes three values of the same point. Accesses
that were strided by the size are then strided by a small constant, see `interleave`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from symshape.analysis.fold_loops import fold
from symshape.analysis.loops import Instr, LoopKernel
from symshape.analysis.normalise_loops import normalise
from symshape.prover.numbers.expr import Expr


def unrolled(kernel: LoopKernel, position: int, count: int) -> LoopKernel | None:
    """The kernel without dim number ``position``, for ``count`` elements of it; None if the dim's size is neither that
    constant nor one symbol. A reduced dim must be the only one; with reductions, a parallel dim can only be dropped
    (``count`` 1)."""
    dim = kernel.dims[position]
    if dim.size != count:
        name = _symbol(dim.size)
        if name is None:
            return None
        try:
            kernel = with_value(kernel, name, Expr.const(count))
        except ZeroDivisionError:  # some size is divided by 0 then: the kernel is never run with this value
            return None
    dims = (*kernel.dims[:position], *kernel.dims[position + 1 :])
    if any(other.reduced for other in dims):
        return normalise(kernel) if count == 1 and not dim.reduced else None
    smaller = replace(kernel, dims=dims, code=_Unroller(kernel, dim.name, count).run())
    return normalise(_chosen(smaller) if chooses(kernel, dim.name) else smaller)


def chooses(kernel: LoopKernel, dim: str) -> bool:
    """Whether a comparison of the index along the dim selects something: a tensor of a stack."""
    return any(dim in expr.symbols for instr in kernel.code for expr in instr.mask) or any(
        instr.op == "index" and instr.address is not None and dim in instr.address.symbols for instr in kernel.code
    )


def _chosen(kernel: LoopKernel) -> LoopKernel:
    """The kernel, simplified with the known indices: masks that hold are dropped, and so is what is not selected."""

    return fold(replace(kernel, code=tuple(_read_once(tuple(map(_settled, kernel.code))))))


def _settled(instr: Instr) -> Instr:
    """Without conditions that hold; a condition with a known answer that is a value (``holds``) is that answer."""
    if instr.op == "holds" and (number := instr.mask[0].as_int()) is not None:
        return Instr("constant", instr.results, (), "i1", instr.row, value=number >= 0)
    return replace(instr, mask=tuple(expr for expr in instr.mask if (number := expr.as_int()) is None or number < 0))


def _read_once(code: tuple[Instr, ...]) -> Iterator[Instr]:
    """Merges loads of the same address under different masks, so that the load can be in a group."""
    first: dict[Instr, int] = {}
    names: dict[int, int] = {}
    for instr in code:
        result = instr.results[0] if instr.op == "load" else -1
        if result >= 0 and (known := first.setdefault(replace(instr, results=()), result)) != result:
            names[result] = known
        else:
            yield replace(instr, operands=tuple(names.get(operand, operand) for operand in instr.operands))


def _symbol(size: Expr) -> str | None:
    names = size.symbols
    return next(iter(names)) if len(names) == 1 and size == Expr.symbol(next(iter(names))) else None


def with_value(kernel: LoopKernel, name: str, value: Expr) -> LoopKernel:
    """The kernel with a symbol replaced by its value everywhere but in its parameters."""

    def known(expr: Expr) -> Expr:
        return expr.substitute({name: value})

    args = [
        replace(arg, sizes=tuple(map(known, arg.sizes)), strides=tuple(map(known, arg.strides))) for arg in kernel.args
    ]
    code = [
        replace(
            instr, address=None if instr.address is None else known(instr.address), mask=tuple(map(known, instr.mask))
        )
        for instr in kernel.code
    ]
    dims = [replace(dim, size=known(dim.size)) for dim in kernel.dims]
    return replace(kernel, dims=tuple(dims), args=tuple(args), code=tuple(code))


class _Unroller:
    """``copies``: the results of each value's copies, one per index of the dim; all the same if it does not vary along
    the dim."""

    def __init__(self, kernel: LoopKernel, dim: str, count: int) -> None:
        self.kernel, self.dim, self.count = kernel, dim, count
        self.copies: dict[int, list[int]] = {}
        self.next = 1 + max((result for instr in kernel.code for result in instr.results), default=-1)
        self.code: list[Instr] = []

    def run(self) -> tuple[Instr, ...]:
        for instr in self.kernel.code:
            if instr.op == "reduce":
                operands = tuple(self.copies[instr.operands[0]])
                self._once(replace(instr, op="combine", operands=operands, row=False))
            elif self._varies(instr):
                self._each(instr)
            else:
                operands = tuple(self.copies[operand][0] for operand in instr.operands)
                self._once(replace(instr, operands=operands, row=False))
        return tuple(self.code)

    def _varies(self, instr: Instr) -> bool:
        exprs = [*instr.mask, *([] if instr.address is None else [instr.address])]
        if any(self.dim in expr.symbols for expr in exprs):
            return True
        return any(len(set(self.copies[operand])) > 1 for operand in instr.operands)

    def _once(self, instr: Instr) -> None:
        self.code.append(instr)
        self.copies.update((result, [result] * self.count) for result in instr.results)

    def _each(self, instr: Instr) -> None:
        self.copies.update((result, []) for result in instr.results)
        for index in range(self.count):
            here = {self.dim: Expr.const(index)}
            results = tuple(range(self.next, self.next + len(instr.results)))
            self.next += len(results)
            for old, new in zip(instr.results, results, strict=True):
                self.copies[old].append(new)
            self.code.append(
                replace(
                    instr,
                    results=results,
                    row=False,
                    operands=tuple(self.copies[operand][index] for operand in instr.operands),
                    address=None if instr.address is None else instr.address.substitute(here),
                    mask=tuple(expr.substitute(here) for expr in instr.mask),
                )
            )
