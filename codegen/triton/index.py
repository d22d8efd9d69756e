"""Prints index expressions as Triton code."""

from __future__ import annotations

from functools import reduce
from typing import Any

from symshape.analysis.kernel_facts import space_facts
from symshape.analysis.loops import LoopKernel
from symshape.prover.numbers.expr import Expr, product

_C_DIVISION = {"floordiv": "//", "mod": "%"}
_FLOOR_DIVISION = {"floordiv": "tm.floor_div", "mod": "tm.floor_mod"}
_EXTREMUM = {"max": "tl.maximum", "min": "tl.minimum"}


class IndexText:
    """Prints expressions. Triton's // and % round towards zero; if an operand may be negative, a helper function is
    called."""

    def __init__(self, kernel: LoopKernel, flat: bool = True) -> None:
        """``flat``: the variables "x" and "r" number the parallel and the reduced points in row-major order."""
        self._axes = [(axis, [d for d in kernel.dims if d.reduced == (axis == "r")]) for axis in "xr" if flat]
        self._facts = space_facts(kernel.args, kernel.dims)
        self._dims = frozenset(d.name for d in kernel.dims)
        self.renamed: dict[str, str] = {}  # current variable names of symbols
        self._rename: dict[str, str] = {}

    def expr(self, expr: Expr, rename: dict[str, str] | None = None) -> str:
        """The text of an expression; ``rename`` overrides variable names of symbols."""
        self._rename = self.renamed | (rename or {})
        return self._sum(expr)

    def holds(self, mask: Expr) -> str:
        """The text of ``mask >= 0``. Written as d < bound or d >= bound if possible: only in that form does Triton see
        that neighbouring lanes agree, and vectorise accesses under the mask."""
        factors = {name: mask.coefficient(name) for name in sorted(mask.symbols & self._dims)}
        numbers = [None if factor is None else factor.as_int() for factor in factors.values()]
        dims = sum((Expr.symbol(name) * f for name, f in factors.items() if f is not None), Expr.const(0))
        rest = mask - dims
        if numbers and all(number is not None and number > 0 for number in numbers):
            return f"{self.expr(dims)} >= {self.expr(-rest)}"
        if numbers and all(number is not None and number < 0 for number in numbers):
            return f"{self.expr(-dims)} < {self.expr(rest + 1)}"
        return f"{self.expr(mask)} >= 0"

    def flat(self, address: Expr) -> Expr:
        """The address over "x" and "r" if it enumerates points row-major, so that Triton sees it is contiguous."""
        for axis, dims in self._axes:
            if not dims:
                continue
            sizes = [product(d.size for d in dims[i + 1 :]) for i in range(len(dims))]
            before = (Expr.symbol(d.name) * size for d, size in zip(dims[:-1], sizes))
            last = sum(before, -Expr.symbol(axis)) * -1
            numbered = address.substitute({dims[-1].name: last})
            if len(dims) > 1 and axis in numbered.symbols and numbered.symbols.isdisjoint(d.name for d in dims):
                address = numbered
        return address

    def _sum(self, expr: Expr) -> str:
        pieces: list[str] = []
        for coefficient, atoms in sorted(expr.terms, key=lambda term: term[0] < 0):
            factors = [*map(self._atom, atoms)]
            if abs(coefficient) != 1 or not factors:
                factors.append(str(abs(coefficient)))
            sign = ("-" if not pieces else " - ") if coefficient < 0 else ("" if not pieces else " + ")
            pieces.append(sign + " * ".join(factors))
        return "".join(pieces) or "0"

    def _atom(self, atom: Any) -> str:
        if not hasattr(atom, "kind"):
            return self._rename.get(atom.name, atom.name)
        args = [self._sum(arg) for arg in atom.args]
        if atom.kind in _EXTREMUM:
            return reduce(lambda left, right: f"{_EXTREMUM[atom.kind]}({left}, {right})", args)
        if self._nonnegative(atom.args):
            return f"(({args[0]}) {_C_DIVISION[atom.kind]} ({args[1]}))"
        return f"{_FLOOR_DIVISION[atom.kind]}({args[0]}, {args[1]})"

    def _nonnegative(self, args: tuple[Expr, ...]) -> bool:
        free = all(self._dims.isdisjoint(arg.symbols) for arg in args)
        facts = self._facts.symbols if free else self._facts.full
        return all(facts.nonnegative(arg) for arg in args)
