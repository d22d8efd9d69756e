"""Schedules the sweeps of a looped kernel over its reduced points, and finds reductions that need no sweep of their
own.

A reduction's result is known after its sweep. What depends on it runs in the next sweep, where full-level values are
recomputed. Online sums (`analysis/online.py`) are computed in the sweep of the reduction they depend on. A sum of
exponentials is kept relative to the running maximum, as in the online normaliser of Milakov and Gimelshein
(arXiv:1805.02867). A sum of squares is kept relative to the running mean by the update of Youngs and Cramer
(Technometrics 13(3), 1971), which avoids cancellation, of values minus the first one. Both are shifted to ``centre`` at
the end of the row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from symshape.analysis.loops import Instr, LoopKernel
from symshape.analysis.online import Online, find_online

_ROOTS: Final = frozenset({"reduce", "store", "check_index"})


@dataclass(frozen=True)
class Sweep:
    """One sweep. ``rows``: row-level instructions before it, and online sums that become known; ``body``: its
    full-level instructions."""

    rows: tuple[Instr, ...]
    body: tuple[Instr, ...]

    @property
    def reductions(self) -> list[Instr]:
        return [i for i in self.body if i.op == "reduce"]


@dataclass(frozen=True)
class Schedule:
    """``sweeps`` in order, the last possibly with an empty body; ``online``: the online sums, by value."""

    sweeps: tuple[Sweep, ...]
    online: dict[int, Online]

    def after(self, first: int) -> Online | None:
        """The online sum computed together with the reduction of value ``first``, or None."""
        return next((o for o in self.online.values() if o.first == first), None)


def schedule(kernel: LoopKernel) -> Schedule:
    """The schedule of a kernel with reduced dims."""
    code = kernel.code
    online = find_online(code)
    stage = _stages(code, online)
    sweeps = []
    for now in range(max(stage, default=0) + 1):
        here = [i for i, s in zip(code, stage, strict=True) if s == now]
        rows = [i for i in here if i.row or i.op == "constant" or i.op == "reduce" and i.results[0] in online]
        roots = [i for i in here if not i.row and i.op in _ROOTS and not set(i.results) & online.keys()]
        sweeps.append(Sweep(tuple(rows), tuple(closure(code, roots, full=True))))
    return Schedule(tuple(sweeps), online)


def _stages(code: Sequence[Instr], online: dict[int, Online]) -> list[int]:
    """For each instruction, the number of sweeps that must precede it."""
    known: dict[int, int] = {}
    result = []
    for instr in code:
        found = online.get(instr.results[0]) if instr.op == "reduce" else None
        if found is not None:
            stage, ready = known[found.centre], known[found.centre]
        else:
            stage = max((known[number] for number in instr.operands), default=0)
            ready = stage + (instr.op == "reduce")
        result.append(stage)
        known.update((number, ready) for number in instr.results)
    return result


def closure(
    code: Sequence[Instr], roots: Iterable[Instr], values: Iterable[int] = (), *, full: bool = False
) -> list[Instr]:
    """The roots, and the instructions that they and ``values`` depend on, in order. Reductions end the search.

    ``full``: only full-level instructions.
    """
    wanted = {id(i) for i in roots}
    needed = {number for i in code if id(i) in wanted for number in i.operands} | set(values)
    for instr in reversed(code):
        skip = instr.op in ("reduce", "store") or full and (instr.row or instr.op == "constant")
        if not skip and not needed.isdisjoint(instr.results):
            wanted.add(id(instr))
            needed.update(instr.operands)
    return [i for i in code if id(i) in wanted]
