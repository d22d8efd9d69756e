"""Integer points of linear constraints, by isl: exact, with a limit on the work.

isl is the integer set library (S. Verdoolaege, ICMS 2010). Its contexts are not safe to share between threads: each
`Presburger` has one of its own, made on first use, which is also when islpy is imported.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from symshape.prover.solver.encode import Row

# Operations (pivots, 1 us to 1 ms each) of the attempts at one set: most need the fewest.
_ATTEMPTS: Final = (128, 512, 2048, 12288)
# Bits of the longest number for which an operation counts once: with longer ones it takes longer. Work is counted, not
# timed: the answer, and with it the guards of a graph, must not depend on how fast the processor is at the moment.
_BITS: Final = 64
_LARGEST_LONG: Final = 1 << 62
# Python writes and reads numbers of up to 4300 digits as text; the sets whose points are so far off say nothing here.
_MAX_DIGITS: Final = 4000
_LARGEST: Final = 10**_MAX_DIGITS
_QUOTA: Final = "maximal number of operations"


class OutOfBudget(Exception):
    """The allowed work is used up, without an answer."""


class Budget:
    """The remaining work: isl operations, and sets examined."""

    def __init__(self, operations: int, sets: int) -> None:
        self.operations, self.sets = operations, sets
        self.all_operations, self.all_sets = operations, sets

    @property
    def is_spent(self) -> bool:
        """Whether the budget is used up."""
        return self.sets <= 0 or self.operations < _ATTEMPTS[0]

    def charge(self, operations: int) -> None:
        """Subtracts isl operations; OutOfBudget if too few are left."""
        if operations > self.operations:
            raise OutOfBudget
        self.operations -= operations

    def charge_set(self) -> None:
        """Subtracts one set; OutOfBudget if none is left."""
        if self.sets <= 0:
            raise OutOfBudget
        self.sets -= 1


@dataclass(frozen=True, slots=True)
class Limits:
    """The allowed work for one query and for its reasons: isl operations (of about 0.1 ms) and sets examined."""

    operations: int = 16384
    sets: int = 64
    reason_operations: int = 65536
    reason_sets: int = 128

    def question(self) -> Budget:
        """A new budget for one query."""
        return Budget(self.operations, self.sets)

    def reasons(self) -> Budget:
        """A new budget for finding a small set of reasons."""
        return Budget(self.reason_operations, self.reason_sets)


class Presburger:
    """Integer points of sets of rows, computed in an isl context of its own."""

    @cached_property
    def _isl(self) -> Any:
        import islpy

        return islpy

    @cached_property
    def _context(self) -> Any:
        return self._isl.Context()

    def point(self, rows: Iterable[Row], size: int, budget: Budget) -> list[int] | None:
        """An integer point of variables 0..size-1 that satisfies all rows; None if there is none.

        OutOfBudget if the budget does not suffice.
        """
        budget.charge_set()
        constraints = list(rows)
        wanted, weight = self._set(constraints, size), _weight(constraints)
        for operations in _ATTEMPTS:
            budget.charge(operations * weight)
            self._context.set_max_operations(operations)
            self._context.reset_operations()
            try:
                found = wanted.sample_point()
            except self._isl.Error as error:
                if _QUOTA not in str(error):
                    raise
                continue
            finally:
                self._context.set_max_operations(0)  # no limit: reading the answer counts as well
            if found.is_void():
                return None
            dim = self._isl.dim_type.set
            return [_number(found.get_coordinate_val(dim, variable).to_str()) for variable in range(size)]
        raise OutOfBudget

    def _set(self, rows: list[Row], size: int) -> Any:
        isl = self._isl
        dim = isl.dim_type.set
        space = isl.Space.set_alloc(self._context, 0, size)
        local = isl.LocalSpace.from_space(space)
        parts = []
        for row in rows:
            constraint = (isl.Constraint.alloc_equality if row.equal else isl.Constraint.alloc_inequality)(local)
            for variable, coefficient in row.terms:
                constraint = constraint.set_coefficient_val(dim, variable, self._value(coefficient))
            parts.append(isl.BasicSet.from_constraint(constraint.set_constant_val(self._value(row.constant))))
        if not parts:
            return isl.BasicSet.universe(space)
        while len(parts) > 1:  # in pairs: isl copies the whole set for each constraint that is added to it
            parts = [first.intersect(second) for first, second in zip(parts[::2], parts[1::2])] + parts[
                len(parts) & ~1 :
            ]
        return parts[0]

    def _value(self, number: int) -> Any:
        if -_LARGEST_LONG < number < _LARGEST_LONG:
            return self._isl.Val.int_from_si(self._context, number)
        if not -_LARGEST < number < _LARGEST:
            raise OutOfBudget
        return self._isl.Val.read_from_str(self._context, str(number))


def _weight(rows: Iterable[Row]) -> int:
    """What an operation on the rows counts: 1 for numbers of up to `_BITS` bits, in proportion for longer ones."""
    bits = max((abs(number).bit_length() for row in rows for _, number in [(0, row.constant), *row.terms]), default=0)
    return max(1, -(-bits // _BITS))


def _number(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise OutOfBudget
    return int(text)
