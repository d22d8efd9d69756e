"""Online sums: sums that depend on an earlier reduction, but can be computed in the same sweep with corrections.

max(v), then sum(exp(v - c))       c: any row value that depends on the maximum alone
sum(v), then sum((v - c) ** 2)     c: any row value that depends on the sum alone
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from symshape.analysis.loops import Instr

_TYPES: Final = frozenset({"f32", "f64"})


@dataclass(frozen=True)
class Online:
    """A sum in the sweep of reduction ``first``: of ``kind`` ("exp" or "square") of its operand minus ``centre``."""

    kind: str
    first: int  # value of the earlier reduction
    result: int  # the value of the sum
    centre: int  # a row-level value


def find_online(code: Sequence[Instr]) -> dict[int, Online]:
    """The online sums in ``code``, by value; at most one for each earlier reduction."""
    made = {number: instr for instr in code for number in instr.results}
    found: dict[int, Online] = {}
    for instr in code:
        if instr.op == "reduce" and instr.combiner == "add" and instr.dtype in _TYPES:
            one = _exponentials(instr, made) or _squares(instr, made)
            # A second sum of the same reduction would need a running value of its own.
            if one and one.first not in found and all(o.first != one.first for o in found.values()):
                found[one.result] = one
    return found


def _exponentials(total: Instr, made: dict[int, Instr]) -> Online | None:
    exp = made[total.operands[0]]
    if exp.op != "math.exp":
        return None
    return _centred(total, made[exp.operands[0]], "exp", "max", made)


def _squares(total: Instr, made: dict[int, Instr]) -> Online | None:
    product = made[total.operands[0]]
    if product.op != "arith.mulf" or product.operands[0] != product.operands[1]:
        return None
    return _centred(total, made[product.operands[0]], "square", "add", made)


def _centred(total: Instr, difference: Instr, kind: str, combiner: str, made: dict[int, Instr]) -> Online | None:
    """The online sum ``total`` if ``difference`` is v - c, and c depends only on the reduction of v by ``combiner``."""
    if difference.op != "arith.subf" or difference.row:
        return None
    value, centre = difference.operands
    if not _is_row(made[centre]) or _is_row(made[value]):
        return None
    before = _reductions_before(centre, made)
    if len(before) != 1 or before[0].combiner != combiner or before[0].operands != (value,):
        return None
    return Online(kind, before[0].results[0], total.results[0], centre)


def _is_row(instr: Instr) -> bool:
    return instr.row or instr.op == "reduce"


def _reductions_before(value: int, made: dict[int, Instr]) -> list[Instr]:
    """The nearest reductions that a row-level value is computed from; not those that these depend on."""
    pending, seen, found = [value], {value}, []
    while pending:
        instr = made[pending.pop()]
        if instr.op == "reduce":
            found.append(instr)
            continue
        pending += [number for number in instr.operands if number not in seen]
        seen.update(instr.operands)
    return found
