"""z3 as a solver, through its Python interface: linear and nonlinear integer arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, Final

from symshape.errors import OptionError
from symshape.tools.corpus.condition_text import Operators, Relation, divisors, read, read_expression
from symshape.tools.corpus.solvers.solver import Answer, answer_of

# In z3's resource units, which measure work rather than time; about a third of a second. The first check of a question
# is limited, so that time remains for the second.
_FIRST_CHECK: Final = 1_500_000
_NO_LIMIT: Final = 0


def z3_module() -> Any:
    """The module z3. OptionError if it is not installed."""
    try:
        import z3
    except ImportError as error:
        raise OptionError("z3 is not installed", next_step="pip install symshape[corpus]") from error
    return z3


class Z3Algebra(Operators):
    """The `Algebra` that builds z3 expressions. z3's / and % are Euclidean, as in SMT-LIB (``smtlib.py``)."""

    def __init__(self, z3: Any) -> None:
        self._z3 = z3

    def number(self, value: int) -> Any:
        return self._z3.IntVal(value)

    def symbol(self, name: str) -> Any:
        return self._z3.Int(name)

    def floordiv(self, left: Any, right: Any) -> Any:
        return self._by_sign(right, left / right, (-left) / (-right))

    def mod(self, left: Any, right: Any) -> Any:
        return self._by_sign(right, left % right, -((-left) % (-right)))

    def _by_sign(self, divisor: Any, positive: Any, negative: Any) -> Any:
        if self._z3.is_int_value(divisor):
            return positive if divisor.as_long() > 0 else negative
        return self._z3.If(divisor > 0, positive, negative)

    def maximum(self, values: Sequence[Any]) -> Any:
        return reduce(lambda a, b: self._z3.If(a >= b, a, b), values)

    def minimum(self, values: Sequence[Any]) -> Any:
        return reduce(lambda a, b: self._z3.If(a <= b, a, b), values)

    def compare(self, relation: Relation, left: Any, right: Any) -> Any:
        match relation:
            case "==":
                return left == right
            case "!=":
                return left != right
            case ">=":
                return left >= right
            case "<=":
                return left <= right
            case ">":
                return left > right
            case "<":
                return left < right

    def truth(self, value: bool) -> Any:
        return self._z3.BoolVal(value)

    def all_of(self, parts: Sequence[Any]) -> Any:
        return self._z3.And(*parts)

    def any_of(self, parts: Sequence[Any]) -> Any:
        return self._z3.Or(*parts)


class Z3:
    """z3 as a `Solver`: facts are asserted once, and each question takes two checks."""

    def __init__(self) -> None:
        self._z3 = z3_module()
        self._algebra = Z3Algebra(self._z3)

    def prepare_facts(self, facts: Sequence[str]) -> list[Any]:
        return [*self._nonzero(facts), *(read(text, self._algebra) for text in facts)]

    def tell(self, facts: Sequence[Any]) -> None:
        self._solver = self._z3.Solver()
        self._solver.add(*facts)

    def prepare(self, condition: str) -> tuple[list[Any], Any]:
        return self._nonzero([condition]), read(condition, self._algebra)

    def ask(self, condition: tuple[list[Any], Any]) -> Answer:
        nonzero, goal = condition
        can_be_false = self._check(nonzero, self._z3.Not(goal), _FIRST_CHECK)
        return answer_of(can_be_false, self._check(nonzero, goal, _NO_LIMIT))

    def _check(self, nonzero: Sequence[Any], goal: Any, resources: int) -> bool | None:
        self._solver.set("rlimit", resources)
        self._solver.push()
        self._solver.add(*nonzero, goal)
        found = self._solver.check()
        self._solver.pop()
        return None if found == self._z3.unknown else found == self._z3.sat

    def _nonzero(self, texts: Sequence[str]) -> list[Any]:
        return [read_expression(divisor, self._algebra) != 0 for text in texts for divisor in divisors(text)]
