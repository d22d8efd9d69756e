"""Sample points that satisfy all facts: a condition that is false at one of them is not implied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from symshape.prover.numbers.bounds import Range
from symshape.prover.numbers.expr import Expr

Model = dict[str, int]

_WANTED: Final = 3  # models; what is false is nearly always false at one of them
_TRIES: Final = 12
_SEARCHES: Final = 4  # of one store of facts, which may have models that are hard to find, or none
# Added to the minimum of a symbol in the first tries, by its position: different values, some large.
_STEPS: Final = (
    (2, 3, 5, 7, 11, 13, 17, 19, 23),
    (97, 1009, 53, 389, 211, 701, 31, 503, 149),
    (1, 1, 0, 1, 2, 1, 0, 1, 3),
)


@dataclass(frozen=True)
class Conditions:
    """The facts of a store in its normal form: ``names`` of symbols, ordered so that a range depends only on earlier
    names; their ranges; expressions that are >= 0 and == 0; and (base, divisor) of known multiples."""

    names: Sequence[str]
    range_of: Callable[[str], Range]
    parts: Mapping[str, tuple[str, int]]
    nonnegatives: Sequence[Expr]
    zeros: Sequence[Expr]
    multiples: Sequence[tuple[Expr, Expr]]


@dataclass
class Counterexamples:
    """Models (satisfying assignments) of facts, found on first use and kept while facts are added. ``seen``: values
    that the symbols had together, at which facts that are guards hold, however hard these are to satisfy."""

    seen: Model = field(default_factory=dict)
    found: list[Model] = field(default_factory=list)
    searches: int = 0
    _current: bool = False
    _busy: bool = False

    def copy(self) -> Counterexamples:
        """A copy for a set of facts that extends this one."""
        return Counterexamples(self.seen, [dict(model) for model in self.found], self.searches)

    def facts_changed(self) -> None:
        """Facts were added: models are tested again before their next use."""
        self._current = False

    def refute(self, known: Expr, conditions: Callable[[], Conditions]) -> bool:
        """Whether ``known >= 0`` is false at one of the models."""
        if self._busy:  # a range is being simplified for a model
            return False
        if not self._current:
            self._busy = True
            try:
                self._update(conditions())
            finally:
                self._busy = False
            self._current = True
        return any((value := _value(known, model)) is not None and value < 0 for model in self.found)

    def _update(self, conditions: Conditions) -> None:
        self.found = [model for model in self.found if _complete(model, conditions) and _holds(model, conditions)]
        if not self.found and self.searches < _SEARCHES:
            self.searches += 1
            self._try({}, conditions, _TRIES)
        if not self.found and self.seen:
            for factor in range(1, _WANTED + 1):  # twice the sizes often fit as well, and are another model
                self._try({name: factor * value for name, value in self.seen.items()}, conditions, 1)

    def _try(self, start: Model, conditions: Conditions, tries: int) -> None:
        """Takes what can be made of values of some symbols by choosing the others in so many ways."""
        for number in range(tries):
            model = dict(start)
            if _complete(model, conditions, number) and _holds(model, conditions) and model not in self.found:
                self.found.append(model)
                if len(self.found) == _WANTED:
                    return


def _complete(model: Model, conditions: Conditions, number: int = 0) -> bool:
    """Assigns each symbol that has no value yet; False if the range of one is empty. ``number``: of the attempt."""
    random = Random(number)
    for position, name in enumerate(conditions.names):
        if name in model:
            continue
        whole, divisor = conditions.parts.get(name, ("", 1))
        if whole in model:
            model[name] = model[whole] // divisor
            continue
        low, high = conditions.range_of(name)
        least, greatest = (None if end is None else _value(end, model) for end in (low, high))
        step = _STEPS[number][position % 9] if number < len(_STEPS) else random.choice((0, 1, 2, 4, 8, 30, 64, 1000))
        if least is None:
            least = 0 if greatest is None else min(0, greatest - step)
        if greatest is not None and greatest < least:
            return False
        model[name] = least + (step if greatest is None else step % (greatest - least + 1))
    return True


def _holds(model: Model, conditions: Conditions) -> bool:
    """Whether all facts hold; False if one cannot be evaluated."""
    for name in conditions.names:
        ends = conditions.range_of(name)
        low, high = (None if end is None else _value(end, model) for end in ends)
        if (ends[0] is not None and (low is None or low > model[name])) or (
            ends[1] is not None and (high is None or high < model[name])
        ):
            return False
    return (
        all((value := _value(expr, model)) is not None and value >= 0 for expr in conditions.nonnegatives)
        and all(_value(expr, model) == 0 for expr in conditions.zeros)
        and all(_divides(base, divisor, model) for base, divisor in conditions.multiples)
    )


def _divides(base: Expr, divisor: Expr, model: Model) -> bool:
    value, number = _value(base, model), _value(divisor, model)
    return value is not None and bool(number) and value % (number or 1) == 0


def _value(expr: Expr, model: Model) -> int | None:
    """The value of an expression; None if a symbol has no value, or a divisor is 0."""
    try:
        return expr.evaluate(model)
    except (KeyError, ZeroDivisionError):
        return None


def names_of(exprs: Iterable[Expr]) -> list[str]:
    """The symbols of expressions, without repetitions, in order of occurrence."""
    return list(dict.fromkeys(name for expr in exprs for name in sorted(expr.symbols)))
