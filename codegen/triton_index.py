"""Index expressions as Triton text."""

from __future__ import annotations

from functools import reduce
from typing import Any

from symshape.codegen.kernel_facts import space_facts
from symshape.codegen.loops import LoopKernel
from symshape.prover.expr import Expr

_C_DIVISION = {"floordiv": "//", "mod": "%"}
_FLOOR_DIVISION = {"floordiv": "tm.floor_div", "mod": "tm.floor_mod"}
_EXTREMUM = {"max": "tl.maximum", "min": "tl.minimum"}


class IndexText:
    """Prints expressions. Triton's // and % are towards zero: where an operand may be negative, a helper is called."""

    def __init__(self, kernel: LoopKernel) -> None:
        self._facts = space_facts(kernel.args, kernel.dims)
        self._dims = frozenset(d.name for d in kernel.dims)
        self._rename: dict[str, str] = {}

    def expr(self, expr: Expr, rename: dict[str, str] | None = None) -> str:
        """The text; ``rename`` gives other names to symbols."""
        self._rename = rename or {}
        return self._sum(expr)

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
