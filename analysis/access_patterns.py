"""The memory accesses of a kernel: addresses over its dims, number of sweeps, facts about its sizes. Read by plans.

Computed from the loop form that code is printed from, so that plans see the final accesses: a gather at an ``arange``
is a load, a mask that always holds is removed, and a value that does not vary along reduced dims is read once per row.
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

MOST_PROCESSORS: Final = 1024  # upper bound of a device's multiprocessors
_LEAST_PARTIAL: Final = 4  # minimum bytes of a partial result


@dataclass(frozen=True)
class Access:
    """A load or store of tensor argument ``arg``. ``address``: in elements, over dims and symbols.

    ``row``: happens once per point of the parallel dims. ``guards``: dims whose index decides whether the access
    happens (they are in its mask).
    """

    arg: int
    address: Expr
    row: bool
    store: bool
    guards: frozenset[str] = frozenset()

    def stride(self, dim: Dim) -> Expr | None:
        """Elements between neighbouring indices of a dim; None if that varies."""
        return self.address.coefficient(dim.name)


@dataclass(frozen=True)
class KernelAccesses:
    """The accesses of one kernel.

    ``sweeps`` is the number of sweeps over the full level if values are not kept: 1 plus the length of the longest
    chain of reductions that full-level work depends on. ``loops`` is the same if online sums (analysis/online.py) are
    computed in the sweep of the reduction they depend on. ``symbols`` are those in addresses; ``known`` are the
    conditions that the kernel's function assumes."""

    name: str
    dims: tuple[Dim, ...]
    arguments: tuple[Arg, ...]
    accesses: tuple[Access, ...]
    symbols: tuple[str, ...]
    sweeps: int
    loops: int
    partial_bytes: int  # bytes of partial results per row, over all reductions
    known: tuple[Condition, ...]

    @cached_property
    def facts(self) -> Facts:
        """Facts that hold at every launch."""
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
        """True if a condition is proven to hold at every launch, False if at none, None if neither is proven."""
        if condition not in self._answers:
            self._answers[condition] = decided(self.facts, condition)
        return self._answers[condition]

    @cached_property
    def parallel(self) -> tuple[Dim, ...]:
        """The parallel dims."""
        return tuple(d for d in self.dims if not d.reduced)

    @cached_property
    def reduced(self) -> tuple[Dim, ...]:
        """The reduced dims."""
        return tuple(d for d in self.dims if d.reduced)

    @cached_property
    def xnumel(self) -> Expr:
        """Number of points of the parallel dims."""
        return product(d.size for d in self.parallel)

    @cached_property
    def rnumel(self) -> Expr:
        """Number of points of the reduced dims."""
        return product(d.size for d in self.reduced)

    @cached_property
    def fast(self) -> Dim | None:
        """The dim along which most full-level accesses are contiguous; None if there is none.

        A store counts as two loads, since no cache saves it. Accesses that vary along more dims move more data, so
        those that vary along fewer (for example one number per channel) count only if no other access is contiguous.
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
        """The dims, starting with ``first``, that merge into one in every access, and their points."""
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
    """The accesses of a loop program, without gathers at data-dependent indices, whose addresses are not known."""
    partial_bytes = 0
    for instr in kernel.code:
        if instr.op == "reduce":
            partial_bytes += sum(max(_LEAST_PARTIAL, bits // 8) for bits in _result_bits(instr))
    names = frozenset(dim.name for dim in kernel.dims)
    accesses = [_access(instr, names) for instr in kernel.code if instr.op in ("load", "store")]
    # By argument, not by use: between dims with equally many accesses the first access decides.
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
    """1 plus the number of reductions in a chain that each require a new sweep. ``online``: sums that are computed in
    the sweep of the reduction they depend on."""
    if not any(dim.reduced for dim in kernel.dims):
        return 1
    stages: dict[int, int] = {}  # by value: length of the chain of reductions it depends on
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
    """Bits of each result: of the value, and, for an arg-reduction, of the index."""
    return (element_bits(reduce.dtype), *(64 for _ in reduce.results[1:]))
