"""Merging groups that read the same tensor over the same space: it is then read once."""

from __future__ import annotations

from collections.abc import Hashable

from torch_mlir import ir

from symshape.passes.fusion.group import Group, Grouping
from symshape.prover.expr import Expr, product

_Key = tuple[tuple[Expr, ...], tuple[bool, ...]]


def merge_siblings(grouping: Grouping) -> None:
    """Each group joins the first before it that has its space and reads one of its large tensors, where neither needs
    the other.

    Spaces are compared in simplest form, and groups that may merge are found by space and tensor: the time grows with
    the number of reads, not with that of pairs.
    """
    found: dict[Hashable, list[Group]] = {}
    for group in grouping.groups:
        keys = _keys(grouping, group)
        candidates = {other.index: other for key in keys for other in found.get(key, ())}
        into = next((c for _, c in sorted(candidates.items()) if _mergeable(grouping, c, group)), None)
        if into is not None:
            _merge(grouping, into, group)
        for key in keys:
            known = found.setdefault(key, [])
            if (into or group) not in known:
                known.append(into or group)
    grouping.groups = [g for g in grouping.groups if g.placements]


def _keys(grouping: Grouping, group: Group) -> list[tuple[_Key, ir.Value]]:
    """The group's space with each tensor that it reads and that is as large as the space."""
    facts, graph = grouping.facts, grouping.graph
    space = tuple(facts.simplify(size) for size in group.space)
    volume = facts.simplify(product(space))
    keys = {}
    for node in group.placements:
        for access in grouping.reads[node]:
            base = access.base
            sizes = graph.tensor_sizes.get(base) or getattr(graph.sizes.layouts.get(base), "sizes", None)
            if sizes is not None and facts.simplify(product(sizes)) == volume:
                keys[((space, tuple(group.reduced)), base)] = None
    return list(keys)


def _mergeable(grouping: Grouping, first: Group, second: Group) -> bool:
    if len(first.placements) + len(second.placements) > grouping.max_members:
        return False
    return grouping.order.are_free(first, second)


def _merge(grouping: Grouping, into: Group, group: Group) -> None:
    grouping.order.merge(into, group)
    into.placements |= group.placements
    for node in group.placements:
        grouping.group_of[node] = into
    group.placements = {}
