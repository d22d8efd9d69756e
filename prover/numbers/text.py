"""Prints expressions as Python source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from symshape.prover.numbers.expr import Atom, Expr, Term

_OPERATORS = {"floordiv": "//", "mod": "%"}


def terms_text(terms: Sequence[Term]) -> str:
    """Python source of the sum, a positive term first if there is one."""
    if not terms:
        return "0"
    terms = list(terms)
    first = next((i for i, (coefficient, _) in enumerate(terms) if coefficient > 0), 0)
    terms.insert(0, terms.pop(first))
    pieces = [_term_text(terms[0])]
    for coefficient, atoms in terms[1:]:
        pieces.append(" - " if coefficient < 0 else " + ")
        pieces.append(_term_text((abs(coefficient), atoms)))
    return "".join(pieces)


def _term_text(term: Term) -> str:
    coefficient, atoms = term
    if not atoms:
        return str(coefficient)
    if len(atoms) == 1 and coefficient == 1:
        return _atom_text(atoms[0])
    sign = "-" if coefficient < 0 else ""
    factors = [str(abs(coefficient))] if abs(coefficient) != 1 else []
    return sign + "*".join([*factors, *map(_factor_text, atoms)])


def _factor_text(atom: Atom) -> str:
    text = _atom_text(atom)
    return f"({text})" if getattr(atom, "kind", None) in _OPERATORS else text


def _atom_text(atom: Atom) -> str:
    from symshape.prover.numbers.expr import Symbol

    if isinstance(atom, Symbol):
        return atom.name
    if atom.kind not in _OPERATORS:
        return f"{atom.kind}({', '.join(arg.python() for arg in atom.args)})"
    left, right = atom.args
    return f"{_operand(left, single_term=True)} {_OPERATORS[atom.kind]} {_operand(right, single_term=False)}"


def _operand(expr: Expr, *, single_term: bool) -> str:
    """The text, in parentheses unless it binds tighter than the operator; as left operand a product does too."""
    text = expr.python()
    terms = expr.terms
    if len(terms) <= 1:
        coefficient, atoms = terms[0] if terms else (0, ())
        plain_atom = len(atoms) == 1 and coefficient == 1 and getattr(atoms[0], "kind", None) not in _OPERATORS
        if plain_atom or (not atoms and coefficient >= 0):
            return text
        if single_term and not any(getattr(atom, "kind", None) in _OPERATORS for atom in atoms):
            return text
    return f"({text})"
