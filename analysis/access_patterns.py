"""Which elements a kernel reads and writes where, how often it goes over its space, what is known of its sizes.

Read off the loop form, so that plans see what code is printed from: a gather at an ``arange`` is a load, a mask that
always holds is none, and a value that is the same along the reduced dims is read once for a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from symshape.analysis.loops import Arg, Dim, Instr, LoopKernel, element_bits
from symshape.analysis.online import Online, find_online
from symshape.dialects.plans import PROCESSORS
from symshape.prover.numbers.condition import Condition
from symshape.prover.numbers.decided import decided, learn
from symshape.prover.numbers.expr import Expr, product
from symshape.prover.numbers.facts import Facts, Row

MOST_PROCESSORS: Final = 1024  # of one device: more than any has
_LEAST_PARTIAL: Final = 4  # bytes that a partial result takes, at least


@dataclass(frozen=True)
class Access:
    """A load or store: elements from the address of tensor argument ``arg``, over dims and symbols.

    ``row``: once for each point of the parallel dims; ``guards``: the dims on whose index it depends whether there is
    an access at all.
    """

    arg: int
    address: Expr
    row: bool
    store: bool
    guards: frozenset[str] = frozenset()

    def stride(self, dim: Dim) -> Expr | None:
        """Elements from one index of the dim to the next; None where that is not always the same."""
        return self.address.coefficient(dim.name)


@dataclass(frozen=True)
class KernelAccesses:
    """One kernel. ``sweeps``: how often its full level must be gone over, when values are not kept: 1 plus how many
    reductions one after the other something at full level depends on. ``loops``: the same where two sums that depend on
    an earlier reduction are found with it (analysis/online.py). ``symbols``: what
    addresses are made of. ``known``: what its function assumes."""

    name: str
    dims: tuple[Dim, ...]
    arguments: tuple[Arg, ...]
    accesses: tuple[Access, ...]
    symbols: tuple[str, ...]
    sweeps: int
    loops: int
    partial_bytes: int  # of what its reductions hold for a row
    known: tuple[Condition, ...]

    @cached_property
    def facts(self) -> Facts:
        """What holds at every launch."""
        facts = Facts({PROCESSORS: Row(1, MOST_PROCESSORS)})
        for condition in self.known:
            learn(facts, condition)
        for dim in self.dims:
            facts.assume_nonnegative(dim.size)
        return facts

    @cached_property
    def _answers(self) -> dict[Condition, bool | None]:
        return {}

    def decided(self, condition: Condition) -> bool | None:
        """Whether a condition holds at every launch, or at none; None where neither is proven."""
        if condition not in self._answers:
            self._answers[condition] = decided(self.facts, condition)
        return self._answers[condition]

    @cached_property
    def parallel(self) -> tuple[Dim, ...]:
        """The dims that are not reduced."""
        return tuple(d for d in self.dims if not d.reduced)

    @cached_property
    def reduced(self) -> tuple[Dim, ...]:
        """The dims that are."""
        return tuple(d for d in self.dims if d.reduced)

    @cached_property
    def xnumel(self) -> Expr:
        """Points of the parallel dims."""
        return product(d.size for d in self.parallel)

    @cached_property
    def rnumel(self) -> Expr:
        """Points of the reduced dims."""
        return product(d.size for d in self.reduced)

    @cached_property
    def fast(self) -> Dim | None:
        """The dim along which most of what is read and written at full level lies next to each other in memory.

        A store counts as two loads: it cannot be had from a cache. Accesses that vary along more dims move more: those
        that vary along fewer (a number for each channel) only count where no other has neighbours.
        """
        dims = [dim for dim in self.dims if dim.size != 1]
        votes: dict[Dim, tuple[int, int]] = {}
        for access in self.accesses:
            level = sum(access.stride(dim) != 0 for dim in dims)
            for dim in dims:
                if not access.row and access.stride(dim) == 1:
                    before, count = votes.get(dim, (level, 0))
                    if before <= level:
                        votes[dim] = level, (count if before == level else 0) + 1 + access.store
        return max(votes, key=lambda dim: votes[dim]) if votes else None

    def run_of(self, first: Dim) -> tuple[list[Dim], Expr]:
        """The dims that every access sees as one with this one, it first, and their points together."""
        run, size = [first], first.size
        others = [d for d in self.dims if d.reduced == first.reduced and d is not first]
        found: Dim | None = first
        while found is not None:
            found = next((d for d in others if self._joins(d, first, size)), None)
            if found is not None:
                others.remove(found)
                run.append(found)
                size = size * found.size
        return run, size

    def _joins(self, outer: Dim, inner: Dim, size: Expr) -> bool:
        if outer.size == 1:
            return True
        for access in self.accesses:
            fast, slow = access.stride(inner), access.stride(outer)
            if fast is None or slow is None or slow != fast * size:
                return False
        return True


def read_accesses(kernel: LoopKernel) -> KernelAccesses:
    """What a loop program touches. Gathers whose index is data are left out: nothing is known of their addresses."""
    partial_bytes = 0
    for instr in kernel.code:
        if instr.op == "reduce":
            partial_bytes += sum(max(_LEAST_PARTIAL, bits // 8) for bits in _result_bits(instr))
    names = frozenset(dim.name for dim in kernel.dims)
    accesses = [_access(instr, names) for instr in kernel.code if instr.op in ("load", "store")]
    # By argument, not by use: where two dims are as good as each other, the first access decides.
    accesses.sort(key=lambda access: access.arg)
    return KernelAccesses(
        kernel.name,
        kernel.dims,
        kernel.args,
        tuple(accesses),
        tuple(name for name in kernel.symbols if name not in kernel.numbers),
        _sweeps(kernel, {}),
        _sweeps(kernel, find_online(kernel.code)),
        partial_bytes,
        kernel.known,
    )


def _access(instr: Instr, names: frozenset[str]) -> Access:
    assert instr.address is not None
    guards = names & frozenset[str]().union(*(expr.symbols for expr in instr.mask))
    return Access(instr.arg, instr.address, instr.row, instr.op == "store", guards)


def _sweeps(kernel: LoopKernel, online: Mapping[int, Online]) -> int:
    """1, and 1 more for each reduction after which the full level has to be gone over again. ``online``: sums that are
    found with the reduction that they depend on."""
    if not any(dim.reduced for dim in kernel.dims):
        return 1
    stages: dict[int, int] = {}  # of a value: reductions one after the other that it needs
    sweeps = 1
    for instr in kernel.code:
        stage = max((stages[operand] for operand in instr.operands), default=0)
        if instr.op == "reduce" and (found := online.get(instr.results[0])):
            stages.update(dict.fromkeys(instr.results, stages[found.centre]))
            continue
        if instr.op == "reduce" or (instr.op == "store" and not instr.row):
            sweeps = max(sweeps, 1 + stage)
        stages.update(dict.fromkeys(instr.results, stage + (instr.op == "reduce")))
    return sweeps


def _result_bits(reduce: Instr) -> Sequence[int]:
    """Of an arg-reduction the value's and the index's."""
    return (element_bits(reduce.dtype), *(64 for _ in reduce.results[1:]))
