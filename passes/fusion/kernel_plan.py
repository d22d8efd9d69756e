"""The plan of one kernel: its loads, computations and stores over the kernel's dims d0..., as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch_mlir import ir

from symshape.dialects.locations import source_line
from symshape.errors import CompileError
from symshape.passes.fusion import trampoline
from symshape.passes.fusion.compute_graph import Compute
from symshape.passes.fusion.group import Group, Grouping, result_placement
from symshape.prover.numbers.expr import Expr, has_functions
from symshape.prover.numbers.facts import Facts

Ref = tuple[int, int]  # position in the plan's items, and which of its results


@dataclass(frozen=True)
class Load:
    """A read of an argument at ``map`` (over d0...), defined where ``conditions`` are all >= 0."""

    base: ir.Value
    map: tuple[Expr, ...]
    conditions: tuple[Expr, ...]
    row: bool


@dataclass(frozen=True)
class Step:
    """A generic evaluated with its own dims at ``map``; ``inputs`` are indices of earlier items of the plan."""

    node: Compute
    map: tuple[Expr, ...]
    inputs: tuple[Ref, ...]
    row: bool  # the level of its results; a reduction's inputs are at full level


@dataclass(frozen=True)
class Store:
    """Stores a result of a step: ``map`` gives the value's own index over the kernel's dims."""

    item: Ref
    value: ir.Value
    map: tuple[Expr, ...]
    row: bool


@dataclass
class KernelPlan:
    """``items`` are loads and steps in dependence order; ``inputs`` are the buffers that they read."""

    group: Group
    space: tuple[Expr, ...]
    reduced: tuple[bool, ...]
    items: list[Load | Step] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    inputs: list[ir.Value] = field(default_factory=list)


def plan_kernel(grouping: Grouping, group: Group, stored: list[ir.Value]) -> KernelPlan:
    """Evaluates the group's stored values over its space. ``stored``: values that others need in memory."""
    rename = {f"k{i}": Expr.symbol(f"d{i}") for i in range(len(group.space))}
    plan = KernelPlan(group, group.space, tuple(group.reduced))
    planner = _Planner(grouping, group, plan, rename)
    for value in stored:
        planner.store(value)
    return plan


class _Planner:
    def __init__(self, grouping: Grouping, group: Group, plan: KernelPlan, rename: dict[str, Expr]) -> None:
        self.grouping, self.group, self.plan, self.rename = grouping, group, plan, rename
        self._facts: Facts | None = None
        self.reduced_names = {f"d{i}" for i, r in enumerate(group.reduced) if r}
        self.loads: dict[tuple[ir.Value, tuple[Expr, ...], tuple[Expr, ...]], int] = {}
        self.steps: dict[tuple[Compute, tuple[Expr, ...], tuple[Expr, ...]], int] = {}

    @property
    def facts(self) -> Facts:
        """The facts of the graph, and the ranges of the kernel's dims; made on first use."""
        if self._facts is None:
            self._facts = self.grouping.facts.with_dims({f"d{i}": s for i, s in enumerate(self.group.space)})
        return self._facts

    def simplify(self, expr: Expr) -> Expr:
        return self.facts.simplify(expr) if has_functions(expr) else expr

    def store(self, value: ir.Value) -> None:
        node = self.grouping.graph.producer[value]
        map_ = self._placed(node)
        item = trampoline.run(self.step(node, map_, ()))
        result = tuple(map_[i] for i in node.result_dims)
        self.plan.stores.append(Store(self.position(item, node, value), value, result, self._is_row(result, node)))

    def position(self, item: int, node: Compute, value: ir.Value) -> Ref:
        return item, node.results.index(value)

    def _placed(self, node: Compute) -> tuple[Expr, ...]:
        return tuple(e.substitute(self.rename) for e in self.group.placements[node])

    def _is_row(self, map_: tuple[Expr, ...], node: Compute | None) -> bool:
        """Row level: in a kernel with a reduction, a value that depends on no reduced dim."""
        if not self.reduced_names:
            return False
        return all(self.reduced_names.isdisjoint(e.symbols) for e in map_)

    def value(self, value: ir.Value, map_: tuple[Expr, ...], conditions: tuple[Expr, ...]) -> trampoline.Recursive[Ref]:
        """The position of a value read at ``map_``: computed here if it is a member or floats, else loaded."""
        grouping = self.grouping
        node = grouping.graph.producer.get(value)
        simple = tuple(self.simplify(e) for e in map_)
        if node is not None and node in self.group.placements:
            # It is available at every point of the kernel, also where a predicated read is undefined.
            placed = tuple(self.simplify(e.substitute(self.rename)) for e in result_placement(self.group, node))
            if not self._same(placed, simple):
                raise CompileError(
                    "a kernel reads a value of its own at another point",
                    where=source_line(node.op.location),
                    next_step="this is a bug of the grouping (passes/fusion/group.py): the two are no group",
                )
            return self.position((yield self.step(node, self._placed(node), ())), node, value)
        if node is not None and node not in grouping.anchors:
            return self.position((yield self.step(node, simple, conditions)), node, value)
        return self._load(value, simple, conditions), 0

    def _same(self, left: tuple[Expr, ...], right: tuple[Expr, ...]) -> bool:
        return left == right or all(self.facts.simplify(a) == self.facts.simplify(b) for a, b in zip(left, right))

    def _load(self, value: ir.Value, map_: tuple[Expr, ...], conditions: tuple[Expr, ...]) -> int:
        guards = tuple(dict.fromkeys(g for c in conditions if not self.facts.nonnegative(g := self.facts.simplify(c))))
        key = (value, map_, guards)
        if key not in self.loads:
            if value not in self.plan.inputs:
                self.plan.inputs.append(value)
            row = self._is_row((*map_, *guards), None)
            self.plan.items.append(Load(value, map_, guards, row))
            self.loads[key] = len(self.plan.items) - 1
        return self.loads[key]

    def step(self, node: Compute, map_: tuple[Expr, ...], conditions: tuple[Expr, ...]) -> trampoline.Recursive[int]:
        simple = tuple(self.simplify(e) for e in map_)
        key = (node, simple, conditions)
        if key in self.steps:
            return self.steps[key]
        replacement = {f"d{i}": e for i, e in enumerate(simple)}
        inputs = []
        for access in node.inputs:
            inner = tuple(e.substitute(replacement) for e in access.map)
            guards = conditions + tuple(c.substitute(replacement) for c in access.conditions)
            inputs.append((yield self.value(access.base, inner, guards)))
        for captured in node.captured:
            if captured not in self.plan.inputs:
                self.plan.inputs.append(captured)
        # Of the same value for the whole row, but guarded by the place in it: a load of it is at full level.
        row = node.is_reduction or self._is_row(simple, node) and all(self.plan.items[i].row for i, _ in inputs)
        self.plan.items.append(Step(node, simple, tuple(inputs), row))
        self.steps[key] = len(self.plan.items) - 1
        return self.steps[key]
