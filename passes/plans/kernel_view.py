"""What the plan passes ask of a kernel: its space, what it reads and writes where, what is known of its sizes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from torch_mlir import ir

from symshape.dialects.accessors import (
    combiner_of,
    function_name,
    index_map,
    iterators,
    kernel_functions,
    kernel_kind,
    num_inputs,
)
from symshape.dialects.affine_maps import read_exprs, read_set
from symshape.dialects.conditions import read_condition
from symshape.dialects.plans import PROCESSORS, PlanSizes
from symshape.passes.plans.gathers import gathers
from symshape.prover.numbers.condition import Condition
from symshape.prover.numbers.decided import decided, learn
from symshape.prover.numbers.expr import Expr, product
from symshape.prover.numbers.facts import Facts, Row

MOST_PROCESSORS: Final = 1024  # of one device: more than any has


@dataclass(frozen=True)
class Dim:
    """A dim of the space: its name in addresses ("d0"), its size, and whether it is reduced."""

    name: str
    size: Expr
    reduced: bool


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
class Argument:
    """A tensor argument: its name in a table ("in0", "out0"), bits of an element, layout."""

    name: str
    bits: int
    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...]


@dataclass(frozen=True)
class PlanKernel:
    """One kernel. ``passes``: how often its full level must be gone over, when values are not kept: 1 plus how many
    reductions one after the other something at full level depends on. ``known``: what its function assumes."""

    name: str
    dims: tuple[Dim, ...]
    arguments: tuple[Argument, ...]
    accesses: tuple[Access, ...]
    symbols: tuple[str, ...]
    passes: int
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


def kernels(module: ir.Module) -> list[Any]:
    """The kernel functions of a module whose variants are planned: scatters have those that code generation knows."""
    return [function for function in kernel_functions(module) if kernel_kind(function) != "scatter"]


def read_plan_kernel(function: Any, operations: Sequence[Any], sizes: PlanSizes) -> PlanKernel:
    """Reads a kernel function, given the operations of its block; ``sizes`` knows the values of all of them."""
    return _Reader(function, operations, sizes).read(function_name(function))


class _Reader:
    """Reads the operations of a kernel's block; of those inside of generics only reads of memory matter here."""

    def __init__(self, function: Any, operations: Sequence[Any], sizes: PlanSizes) -> None:
        self.inputs = num_inputs(function)
        self.sizes = sizes
        self.operations = operations
        self.position = {value: i for i, value in enumerate(sizes.tensors)}
        self.dims: tuple[Dim, ...] = ()
        self.accesses: list[Access] = []
        self.stage: dict[ir.Value, int] = {}  # of a computed tensor: reductions one after the other that it needs
        self.passes = 1
        self.partial_bytes = 0
        self.known: list[Condition] = []

    def read(self, name: str) -> PlanKernel:
        handlers = {
            "symshape.space": self._space,
            "symshape.view": self._view,
            "linalg.generic": self._generic,
            "symshape.store": self._store,
            "symshape.assume": self._assume,
        }
        for op in self.operations:
            handler = handlers.get(op.name)
            if handler is not None:
                handler(op)
        arguments = [self._argument(value, i) for i, value in enumerate(self.sizes.tensors)]
        symbols = tuple(f"s{i}" for i in range(len(self.sizes.block.arguments) - len(arguments)))
        return PlanKernel(
            name,
            self.dims,
            tuple(arguments),
            tuple(self.accesses),
            symbols,
            self.passes,
            self.partial_bytes,
            tuple(self.known),
        )

    def _argument(self, value: ir.Value, position: int) -> Argument:
        layout = self.sizes.layouts[value]
        is_input = position < self.inputs
        name = f"in{position}" if is_input else f"out{position - self.inputs}"
        return Argument(name, _bits(value), layout.sizes, layout.strides)

    def _assume(self, op: Any) -> None:
        condition = read_condition(self.sizes, op.operands[0])
        self.known += [] if condition is None else [condition]

    def _space(self, op: Any) -> None:
        kinds = iterators(op)
        sizes = [self.sizes.expr(value) for value in op.operands]
        self.dims = tuple(Dim(f"d{i}", s, k == "reduction") for i, (s, k) in enumerate(zip(sizes, kinds)))

    def _names(self, rank: int) -> list[Expr]:
        dims = self.dims if rank == len(self.dims) else [d for d in self.dims if not d.reduced]
        return [Expr.symbol(d.name) for d in dims]

    def _access(self, op: Any, tensor: ir.Value, symbols: Sequence[ir.Value], rank: int, *, store: bool) -> None:
        map_ = index_map(op)
        exprs = read_exprs(map_.results, self._names(rank), [self.sizes.expr(v) for v in symbols])
        strides = self.sizes.layouts[tensor].strides
        address = sum((e * s for e, s in zip(exprs, strides, strict=True)), Expr.const(0))
        guards: frozenset[str] = frozenset()
        if "domain" in op.attributes:
            holds = read_set(op.attributes["domain"], self._names(rank), [self.sizes.expr(v) for v in symbols])
            guards = frozenset(d.name for d in self.dims if any(d.name in e.symbols for e in holds))
        self.accesses.append(Access(self.position[tensor], address, rank < len(self.dims), store, guards))

    def _view(self, op: Any) -> None:
        source, *indices = op.operands
        rank = ir.RankedTensorType(op.results[0].type).rank
        self._access(op, source, indices[rank:], rank, store=False)

    def _store(self, op: Any) -> None:
        value, dest, *symbols = op.operands
        rank = ir.RankedTensorType(value.type).rank
        self._access(op, dest, symbols, rank, store=True)
        if rank == len(self.dims) and self._has_reduced:
            self.passes = max(self.passes, 1 + self._stage_of(value))

    def _generic(self, op: Any) -> None:
        combines = bool(combiner_of(op))
        outs = len(op.results)
        operands = list(op.operands)
        for value in operands[: len(operands) - outs]:
            if value in self.position:  # a whole argument, point by point
                strides = self.sizes.layouts[value].strides
                address = sum((d * s for d, s in zip(self._names(len(strides)), strides)), Expr.const(0))
                self.accesses.append(Access(self.position[value], address, False, False))
        for tensor, address, rank in gathers(op, self._names, self.sizes):
            self.accesses.append(Access(self.position[tensor], address, rank < len(self.dims), False))
        stage = max((self._stage_of(v) for v in operands[: len(operands) - outs]), default=0)
        if combines:
            self.passes = max(self.passes, 1 + stage)
            self.partial_bytes += sum(max(4, _bits(value) // 8) for value in op.results)
        for value in op.results:
            self.stage[value] = stage + combines

    def _stage_of(self, value: ir.Value) -> int:
        return self.stage.get(value, 0)

    @property
    def _has_reduced(self) -> bool:
        return any(d.reduced for d in self.dims)


def _bits(value: ir.Value) -> int:
    """Bits of an element in memory: a bool has a byte."""
    type_ = str(ir.RankedTensorType(value.type).element_type)
    number = re.search(r"\d+", type_)
    bits = int(number[0]) if number else 64  # index
    return max(8, 2 * bits if type_.startswith("complex") else bits)
