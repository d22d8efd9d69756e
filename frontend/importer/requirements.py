"""Adds requirements of the compiler on inputs as guards to the ShapeEnv, so that Dynamo checks them for the entry."""

from __future__ import annotations

from typing import Any

import sympy

from symshape.errors import CompileError
from symshape.frontend.bridge.guards import add_guard, are_guards_closed
from symshape.frontend.bridge.shape_env import size_functions, symbol_hint, symbols_of
from symshape.prover.numbers.condition import Condition
from symshape.prover.numbers.expr import Expr, Symbol

_JOIN = {"and": sympy.And, "or": sympy.Or}
_COMPARE = {"eq": sympy.Eq, "ne": sympy.Ne, "ge": sympy.Ge}


class LateGuard(CompileError):
    """A guard that a pass requires after Dynamo has written the guards of the entry down."""


class Requirements:
    """The callable ``require`` of a compile: ``requirements(condition, reason)`` adds a guard. It is never dropped:
    CompileError if it cannot become a guard.

    Forward and backward have one ShapeEnv, and Dynamo checks its guards before it runs either: requirements of backward
    are known before forward runs. Inputs that violate one are compiled for anew. ``made``: all requirements so far,
    which a cache hit adds again.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self.made: list[tuple[Condition, str]] = []
        self.symbols = symbols_of(env)

    def __call__(self, condition: Condition, reason: str) -> None:
        if condition.as_bool() is True:
            return
        what = f"a pass requires `{condition}` of an input: {reason}"
        values = {name: self._value(name, what) for name in condition.symbols}
        if not condition.evaluate(values):
            shown = ", ".join(f"{name} = {value}" for name, value in sorted(values.items()))
            raise CompileError(f"{what}; this input has {shown or 'no sizes that vary'}", next_step=_DECIDE)
        self.guard(condition, f"symshape: {reason}", what)
        self.made.append((condition, reason))

    def could_be(self, condition: Condition) -> bool:
        """Whether a condition can still be required, that is, holds at the hints."""
        hints = {name: symbol_hint(self.env, self.symbols[name]) for name in condition.symbols & set(self.symbols)}
        values = {name: hint for name, hint in hints.items() if hint is not None}
        known = len(values) == len(condition.symbols)
        return known and condition.evaluate(values) and not are_guards_closed(self.env)

    def guard(self, condition: Condition, origin: str, what: str = "") -> None:
        """Adds a guard that holds at the hints; ``what`` describes it in the error if that is not possible."""
        what = what or f"`{condition}` cannot be checked"
        if condition.as_bool() is True:
            return
        if are_guards_closed(self.env):
            raise LateGuard(f"{what}: the guards of the entry are complete", next_step=_EARLY)
        if not add_guard(self.env, self.relation(condition), origin):
            raise CompileError(f"{what}: PyTorch accepts no guards here", next_step=_DECIDE)

    def relation(self, condition: Condition) -> Any:
        """The condition in PyTorch's own sympy functions."""
        if condition.kind in _JOIN:
            return _JOIN[condition.kind](*map(self.relation, condition.operands))
        if condition.as_bool() is not None:
            return sympy.true if condition.as_bool() else sympy.false
        return _COMPARE[condition.kind](self._sympy(condition.expr), 0)

    def _sympy(self, expr: Expr) -> Any:
        functions = size_functions()
        return sympy.Add(
            *(
                sympy.Mul(
                    coefficient,
                    *(
                        self.symbols[atom.name]
                        if isinstance(atom, Symbol)
                        else functions[atom.kind](*map(self._sympy, atom.args))
                        for atom in atoms
                    ),
                )
                for coefficient, atoms in expr.terms
            )
        )

    def _value(self, name: str, what: str) -> int:
        """The size first seen; CompileError for a symbol that is not the size of an input."""
        value = symbol_hint(self.env, self.symbols[name]) if name in self.symbols else None
        if value is None:
            raise CompileError(f"{what}, but {name} is no size of an input", next_step=_CHECK)
        return value


_DECIDE = "let the pass decide at run time, or disable it"
_EARLY = "a backward graph must be compiled with its forward graph"
_CHECK = "write symshape.expect_true into the IR: it is checked when the value is known"
