"""Alignment of a reader with a kernel's iteration space: which kernel point computes which point of the reader."""

from __future__ import annotations

from collections.abc import Sequence

from symshape.dialects.affine_maps import is_dim
from symshape.prover.numbers.expr import Expr, Function, product
from symshape.prover.numbers.facts import Facts

ZERO = Expr.const(0)


def invert(
    access: Sequence[Expr], sizes: Sequence[Expr], placed: Sequence[Expr], placed_sizes: Sequence[Expr], facts: Facts
) -> list[Expr | None] | None:
    """Solves access(d) == placed(k) for the reader's dims d, as expressions of the kernel's dims k.

    ``access``        the index map of the reader's access to a member, over d0... (the reader's dims, of ``sizes``)
    ``placed``        the member's own dims (of ``placed_sizes``) as expressions of the kernel's dims
    Returns one expression per dim, None for dims that the access does not use (and whose size is not 1). Returns
    None if the reader does not visit every element of the member exactly once for each value of those open dims.
    """
    direct = _plain(access, sizes, placed, placed_sizes)
    if direct is not None:
        return direct
    if product(sizes) == ZERO:  # no points, and a radix of 0 has no digits
        return None
    solution: list[Expr | None] = [ZERO if s.as_int() == 1 else None for s in sizes]
    for expr, target, size in zip(access, placed, placed_sizes):
        if size.as_int() == 1:
            continue
        if not _solve(expr, target, sizes, solution):
            return None
    determined = [i for i, s in enumerate(solution) if s is not None]
    replacement = {f"d{i}": e for i, e in enumerate(solution) if e is not None}
    for expr, target, size in zip(access, placed, placed_sizes):
        if size.as_int() != 1 and facts.simplify(expr.substitute(replacement)) != facts.simplify(target):
            return None
    if not facts.equal(product([sizes[i] for i in determined]), product(placed_sizes)):
        return None
    # As many points on both sides, and what computes an element reads it: none is left out unless it is outside of the
    # reader, as every second one is where the first n of n elements repeated twice are read.
    digits = {found[0] for expr in access if (found := _digit(expr)) is not None}
    if not all(_is_inside(solution[i], sizes[i], facts) for i in digits):
        return None
    return [None if e is None else facts.simplify(e) for e in solution]


def _is_inside(index: Expr | None, size: Expr, facts: Facts) -> bool:
    return index is not None and facts.nonnegative(index) and facts.nonnegative(size - 1 - index)


def _plain(
    access: Sequence[Expr], sizes: Sequence[Expr], placed: Sequence[Expr], placed_sizes: Sequence[Expr]
) -> list[Expr | None] | None:
    """The common case: each of the member's dims is one whole dim of the reader."""
    solution: list[Expr | None] = [ZERO if s.as_int() == 1 else None for s in sizes]
    for expr, target, size in zip(access, placed, placed_sizes):
        if size.as_int() == 1:
            continue
        dim = _single_dim(expr)
        if dim is None or solution[dim] is not None or sizes[dim] != size:
            return None
        solution[dim] = target
    return solution


def _solve(expr: Expr, target: Expr, sizes: Sequence[Expr], solution: list[Expr | None]) -> bool:
    """Solves one equation: for a single dim, a mixed radix of dims, or a digit of one dim."""
    digit = _digit(expr)
    if digit is not None:
        dim, scale = digit
        known = solution[dim]
        solution[dim] = target * scale if known is None else known + target * scale
        return True
    terms = _mixed_radix(expr, sizes)
    if terms is None:
        return False
    for dim, scale in terms:
        if solution[dim] is not None:
            return False
        solution[dim] = (target // scale) % sizes[dim]
    return True


def _digit(expr: Expr) -> tuple[int, Expr] | None:
    """(dim, scale) of ``(d // scale) % m``, ``d // scale`` or ``d % m``."""
    if len(expr.terms) != 1 or expr.terms[0][0] != 1 or len(expr.terms[0][1]) != 1:
        return None
    atom = expr.terms[0][1][0]
    if not isinstance(atom, Function) or atom.kind not in ("mod", "floordiv"):
        return None
    inner = atom.args[0]
    if atom.kind == "mod" and _single_dim(inner) is None:
        return _digit(inner)
    dim = _single_dim(inner)
    if dim is None:
        return None
    return dim, (atom.args[1] if atom.kind == "floordiv" else Expr.const(1))


def _single_dim(expr: Expr) -> int | None:
    name = expr.as_symbol()
    return int(name[1:]) if name is not None and is_dim(name) else None


def _mixed_radix(expr: Expr, sizes: Sequence[Expr]) -> list[tuple[int, Expr]] | None:
    """Every (dim, coefficient) of a sum of dims; None when there is anything else in it."""
    dims = [i for i in range(len(sizes)) if f"d{i}" in expr.symbols]
    terms: list[tuple[int, Expr]] = []
    rest = expr
    for i in dims:
        coefficient = expr.coefficient(f"d{i}")
        if coefficient is None or any(f"d{j}" in coefficient.symbols for j in dims):
            return None
        terms.append((i, coefficient))
        rest = rest - coefficient * Expr.symbol(f"d{i}")
    return terms if terms and rest == ZERO else None
