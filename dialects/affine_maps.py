"""Converts index expressions to MLIR affine maps and back.

Dims are the symbols "d0", "d1", ...; other values are operands.

Semi-affine forms are used: a dim times, floordiv or mod a symbol.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch_mlir import ir

from symshape.errors import CompileError
from symshape.prover.numbers.expr import Expr, Symbol, expr_of_atom

_LIBRARY_CALL = "an affine map cannot say that: leave the operation to a library call (Unsupported in its rule)"
_BUILD = {"floordiv": ir.AffineExpr.get_floor_div, "mod": ir.AffineExpr.get_mod}


def is_dim(name: str) -> bool:
    return name[0] == "d" and name[1:].isdigit()


def affine_map(num_dims: int, exprs: Sequence[Expr]) -> tuple[ir.AffineMap, list[Expr]]:
    """The map of ``exprs`` over d0..d(num_dims-1), and the dim-free expressions that its symbols stand for."""
    writer = _Writer()
    results = [writer.expr(e) for e in exprs]
    return ir.AffineMap.get(num_dims, len(writer.symbols), results), writer.symbols


def integer_set(num_dims: int, num_symbols: int, nonnegative: Sequence[ir.AffineExpr]) -> ir.Attribute:
    """The set of points at which every expression is >= 0."""
    return ir.IntegerSetAttr.get(
        ir.IntegerSet.get(num_dims, num_symbols, list(nonnegative), [False] * len(nonnegative))
    )


class _Writer:
    def __init__(self) -> None:
        self.symbols: list[Expr] = []

    def symbol(self, expr: Expr) -> ir.AffineExpr:
        if expr not in self.symbols:
            self.symbols.append(expr)
        return ir.AffineExpr.get_symbol(self.symbols.index(expr))

    def expr(self, expr: Expr) -> ir.AffineExpr:
        name = expr.as_symbol()
        if name is not None:
            return ir.AffineExpr.get_dim(int(name[1:])) if is_dim(name) else self.symbol(expr)
        constant = expr.as_int()
        if constant is not None:
            return ir.AffineExpr.get_constant(constant)
        if not any(is_dim(name) for name in expr.symbols):
            return self.symbol(expr)
        free = Expr.const(0)
        total: ir.AffineExpr | None = None
        for coefficient, atoms in expr.terms:
            dims = [a for a in atoms if any(is_dim(n) for n in a.symbols)]
            rest = Expr.const(coefficient)
            for a in atoms:
                if a not in dims:
                    rest = rest * expr_of_atom(a)
            if not dims:
                free = free + rest
                continue
            if len(dims) != 1:
                raise CompileError(f"index expression {expr} multiplies two dims", next_step=_LIBRARY_CALL)
            term = self.atom(dims[0])
            if rest.as_int() != 1:
                term = ir.AffineExpr.get_mul(term, self.expr(rest))
            total = term if total is None else ir.AffineExpr.get_add(total, term)
        assert total is not None
        return total if free.as_int() == 0 else ir.AffineExpr.get_add(total, self.expr(free))

    def atom(self, atom: Any) -> ir.AffineExpr:
        if isinstance(atom, Symbol):
            return ir.AffineExpr.get_dim(int(atom.name[1:]))
        if atom.kind not in _BUILD:
            what = f"index expression with {atom.kind} over an iteration dim"
            raise CompileError(what, next_step=_LIBRARY_CALL)
        return _BUILD[atom.kind](self.expr(atom.args[0]), self.expr(atom.args[1]))


def read_exprs(results: Sequence[ir.AffineExpr], dims: Sequence[Expr], symbols: Sequence[Expr]) -> list[Expr]:
    """The results of a map, with dims and symbols replaced by expressions."""
    return [_read(e, dims, symbols) for e in results]


def _read(e: ir.AffineExpr, dims: Sequence[Expr], symbols: Sequence[Expr]) -> Expr:
    if isinstance(e, ir.AffineConstantExpr):
        return Expr.const(ir.AffineConstantExpr(e).value)
    if isinstance(e, ir.AffineDimExpr):
        return dims[ir.AffineDimExpr(e).position]
    if isinstance(e, ir.AffineSymbolExpr):
        return symbols[ir.AffineSymbolExpr(e).position]
    pair = ir.AffineBinaryExpr(e)
    left, right = _read(pair.lhs, dims, symbols), _read(pair.rhs, dims, symbols)
    if isinstance(e, ir.AffineAddExpr):
        return left + right
    if isinstance(e, ir.AffineMulExpr):
        return left * right
    if isinstance(e, ir.AffineModExpr):
        return left % right
    if isinstance(e, ir.AffineFloorDivExpr):
        return left // right
    raise CompileError(f"affine expression {e} is not supported", next_step="use +, *, mod and floordiv in maps")


def read_set(attribute: ir.Attribute, dims: Sequence[Expr], symbols: Sequence[Expr]) -> list[Expr]:
    """The expressions that an integer set holds >= 0. The bindings give no access to the set but its text."""
    text = str(attribute)
    header, constraints = text.removeprefix("affine_set<").removesuffix(">").split(" : ")
    body = constraints.strip().removeprefix("(").removesuffix(")").replace(" >= 0", "")
    parsed = ir.AffineMapAttr(ir.Attribute.parse(f"affine_map<{header} -> ({body})>", attribute.context)).value
    return read_exprs(parsed.results, dims, symbols)
