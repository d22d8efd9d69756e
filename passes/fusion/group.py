"""Groups anchors into kernels: the vertical fusion of producers with consumers.

Anchors are the values that must exist: reductions, scans, values that a library call or a result needs in memory, and
values that are too expensive to recompute in each reader. All other values float: each kernel that reads one computes
it where it needs it. A group is a set of anchors over one iteration space. An anchor joins a group if its own space is
that space (proven), if it reads members only at the current point, and if the graph of groups stays acyclic.
``siblings`` and ``merge_readers`` merge groups afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from torch_mlir import ir

from symshape.passes.fusion import trampoline
from symshape.passes.fusion.align import invert
from symshape.passes.fusion.compute_graph import Access, Compute, Graph, dim_symbols, outer_sizes, tensors_behind_body
from symshape.passes.fusion.order import Order
from symshape.prover.numbers.expr import Expr
from symshape.prover.numbers.facts import Facts

Map = tuple[Expr, ...]  # an index for each dim, or conditions of it


@dataclass(eq=False)
class Group:
    """A kernel under construction: its space (k0, k1, ...), which dims are reduced, and the placement of each member in
    it."""

    index: int
    space: tuple[Expr, ...]
    reduced: list[bool]
    placements: dict[Compute, tuple[Expr, ...]] = field(default_factory=dict)  # member -> its dims over k0...
    facts: Facts | None = None  # those of the graph, and the ranges of k0...; made on first use

    @property
    def has_reduction(self) -> bool:
        return any(self.reduced)

    @property
    def has_scan(self) -> bool:
        return any(node.is_scan for node in self.placements)

    @property
    def has_associative_scan(self) -> bool:
        return any(node.is_associative for node in self.placements)

    def reduced_names(self) -> set[str]:
        return {f"k{i}" for i, r in enumerate(self.reduced) if r}


@dataclass
class Grouping:
    """The result: groups, the group of each anchor, and every anchor's reads through floating values."""

    graph: Graph
    facts: Facts
    max_members: int
    anchors: set[Compute] = field(default_factory=set)
    groups: list[Group] = field(default_factory=list)
    group_of: dict[Compute, Group] = field(default_factory=dict)
    reads: dict[Compute, list[Access]] = field(default_factory=dict)
    sources: dict[Compute, list[ir.Value]] = field(
        default_factory=dict
    )  # tensors that its sizes and numbers are read from
    order: Order = field(init=False)

    def __post_init__(self) -> None:
        self.order = Order(self.graph, self.group_of)

    def outside(self, node: Compute, group: Group) -> list[ir.Value]:
        """Values that must be materialized before the group's kernel is launched, if the node joins the group."""
        producer = self.graph.producer
        read = [a.base for a in self.reads[node] if producer.get(a.base) not in group.placements]
        return read + self.sources.get(node, [])

    def merge(self, into: Group, group: Group) -> None:
        """Moves all members of the second group into the first one, over the same space."""
        self.order.merge(into, group)
        into.placements |= group.placements
        for node in group.placements:
            self.group_of[node] = into
        group.placements = {}


def closure(grouping: Grouping, node: Compute) -> list[Access]:
    """Every read of a buffer or an anchor that computing ``node`` needs, over the node's dims."""
    found: dict[tuple[ir.Value, Map], Access] = {}
    visited: set[tuple[Compute, Map]] = set()

    def visit(current: Compute, map_: Map, conditions: Map) -> trampoline.Recursive[None]:
        if (current, map_) in visited:
            return
        visited.add((current, map_))
        replacement = {f"d{i}": e for i, e in enumerate(map_)}
        for access in current.inputs:
            inner = tuple(e.substitute(replacement) for e in access.map)
            guards = conditions + tuple(c.substitute(replacement) for c in access.conditions)
            producer = grouping.graph.producer.get(access.base)
            if producer is None or producer in grouping.anchors:
                found.setdefault((access.base, inner), Access(access.base, inner, guards))
            else:
                yield visit(producer, inner, guards)
        for value in current.captured:
            found.setdefault((value, ()), Access(value, ()))

    trampoline.run(visit(node, tuple(dim_symbols("d", len(node.sizes))), ()))
    if grouping.graph.reads_numbers:
        grouping.sources[node] = _symbol_tensors(grouping.graph, {current for current, _ in visited})
    return list(found.values())


def _symbol_tensors(graph: Graph, nodes: Iterable[Compute]) -> list[ir.Value]:
    """The tensors that sizes and numbers in these nodes are read from: they are needed before a kernel with such a
    number starts."""
    names: set[str] = set()
    found: dict[ir.Value, None] = {}
    for node in nodes:
        exprs = [*node.sizes, *(e for a in node.inputs for e in (*a.map, *a.conditions))]
        names.update(name for e in (*exprs, *outer_sizes(node.op, graph)) for name in e.symbols)
        found |= dict.fromkeys(tensors_behind_body(node.op))
    for name, values in graph.symbol_tensors.items():
        found |= dict.fromkeys(values) if name in names else {}
    return list(found)


# --- joining ---------------------------------------------------------------------------------------------------------


def place(grouping: Grouping, node: Compute, *, vertical: bool) -> tuple[Group, bool]:
    """Puts an anchor into the latest group that it can join, else into a new one. The group, and whether it is new."""
    grouping.reads[node] = closure(grouping, node)
    candidates: dict[int, Group] = {}
    for access in grouping.reads[node]:
        producer = grouping.graph.producer.get(access.base)
        if producer in grouping.group_of:
            group = grouping.group_of[producer]
            candidates[group.index] = group
    if vertical:
        for index in sorted(candidates, reverse=True):
            if _join(grouping, node, candidates[index]):
                return candidates[index], False
    return _start(grouping, node), True


def _start(grouping: Grouping, node: Compute) -> Group:
    group = Group(len(grouping.groups), node.sizes, list(node.reduced))
    group.placements[node] = tuple(dim_symbols("k", len(node.sizes)))
    grouping.groups.append(group)
    grouping.group_of[node] = group
    grouping.order.start(group, grouping.outside(node, group))
    return group


def _join(grouping: Grouping, node: Compute, group: Group) -> bool:
    if len(group.placements) >= grouping.max_members:
        return False
    placement = _placement(grouping, node, group)
    if placement is None:
        return False
    reduced = _reduced_after(node, group, placement)
    outside = grouping.outside(node, group)
    if reduced is None or grouping.order.depends(outside, group):
        return False
    grouping.order.grow(group, outside)
    group.reduced = reduced
    group.placements[node] = placement
    grouping.group_of[node] = group
    return True


def space_facts(grouping: Grouping, group: Group) -> Facts:
    if group.facts is None:
        group.facts = grouping.facts.with_dims({f"k{i}": s for i, s in enumerate(group.space)})
    return group.facts


def result_placement(group: Group, node: Compute) -> tuple[Expr, ...]:
    """A member's result dims over the kernel's dims."""
    placed = group.placements[node]
    return tuple(placed[i] for i in node.result_dims)


def _placement(grouping: Grouping, node: Compute, group: Group) -> tuple[Expr, ...] | None:
    """The node's dims over the group's space, if it reads every member at its own point; else None."""
    facts = space_facts(grouping, group)
    members = [(a, p) for a in grouping.reads[node] if (p := grouping.graph.producer.get(a.base)) in group.placements]
    if any(not access.map and member.result_dims for access, member in members):
        return None
    # Members over the full space determine most: they come first.
    members.sort(key=lambda pair: -len(pair[1].result_dims))
    placement: tuple[Expr, ...] | None = None
    for access, member in members:
        solved = invert(access.map, node.sizes, result_placement(group, member), member.result_sizes, facts)
        if solved is not None:
            placement = _complete(node, group, solved, facts)
            if placement is not None:
                break
    if placement is None:
        return None
    replacement = {f"d{i}": e for i, e in enumerate(placement)}
    for access, member in members:
        for expr, target in zip(access.map, result_placement(group, member)):
            actual = expr.substitute(replacement)
            if actual != target and facts.simplify(actual) != facts.simplify(target):
                return None
    return placement


def _complete(node: Compute, group: Group, solved: list[Expr | None], facts: Facts) -> tuple[Expr, ...] | None:
    """Open dims of a reader of row values run over the reduced dims, in order, where the sizes are proven equal.

    Not over those that another dim of the reader runs over: there would be points of the reader that no point of the
    kernel computes.
    """
    open_dims = [i for i, e in enumerate(solved) if e is None]
    if not open_dims:
        return tuple(e for e in solved if e is not None)
    used: set[str] = set().union(*(e.symbols for e in solved if e is not None))
    reduced = [i for i, r in enumerate(group.reduced) if r and group.space[i].as_int() != 1 and f"k{i}" not in used]
    if len(open_dims) != len(reduced):
        return None
    for dim, k in zip(open_dims, reduced):
        if not facts.equal(node.sizes[dim], group.space[k]):
            return None
        solved[dim] = Expr.symbol(f"k{k}")
    return tuple(e for e in solved if e is not None)


def _reduced_after(node: Compute, group: Group, placement: tuple[Expr, ...]) -> list[bool] | None:
    """Which dims of the space are reduced once the node is in it; None if that contradicts the present members."""
    if not node.accumulates:
        return group.reduced
    if node.is_scan and not _in_order(node, placement) or group.has_reduction and node.is_scan != group.has_scan:
        return None  # a scan goes over the points once, in order; a reduction is there after all of them
    if group.has_scan and (node.is_associative or group.has_associative_scan):
        return None  # it is computed by blocks, for which each operand has to be there
    over: set[str] = set().union(*(placement[i].symbols for i, r in enumerate(node.reduced) if r))
    kept: set[str] = set().union(*(placement[i].symbols for i, r in enumerate(node.reduced) if not r), set())
    names = {f"k{i}" for i in range(len(group.space))}
    over, kept = over & names, kept & names
    if over & kept:
        return None
    if group.has_reduction:
        wanted = {f"k{i}" for i, r in enumerate(group.reduced) if r and group.space[i].as_int() != 1}
        return group.reduced if over == wanted and _covers(node, group, placement) else None
    if not _covers(node, group, placement) or not over:
        return None
    return [f"k{i}" in over for i in range(len(group.space))]


def _in_order(node: Compute, placement: tuple[Expr, ...]) -> bool:
    """Whether the kernel iterates in the scan's order along its dim."""
    along = [placement[i] for i, r in enumerate(node.reduced) if r]
    return all(e == Expr.symbol(name) for e in along for name in e.symbols)


def _covers(node: Compute, group: Group, placement: tuple[Expr, ...]) -> bool:
    """Whether a reduction's placement uses all dims of the space that are not 1, as it needs every point."""
    used: set[str] = set().union(*(e.symbols for e in placement))
    return all(f"k{i}" in used for i, s in enumerate(group.space) if s.as_int() != 1)
