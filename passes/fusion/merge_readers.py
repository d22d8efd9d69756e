"""Merges a group with a producer whose results it reads at the same points, so that they stay in registers.

When groups are formed, a reader joins one group. If it reads members of two, as an interpolation between two
interpolated rows does, the other group is merged with it here.
"""

from __future__ import annotations

from symshape.passes.fusion.group import Group, Grouping, result_placement, space_facts


def merge_with_readers(grouping: Grouping) -> list[Group]:
    """Merges each group without reductions with a later one that reads it at the same points. What is merged into."""
    merged: dict[int, Group] = {}
    for reader in reversed(grouping.groups):
        while (group := _read_point_by_point(grouping, reader)) is not None:
            grouping.merge(group, reader)  # the results of the first are there before the second's
            merged.pop(reader.index, None)
            merged[group.index] = reader = group
    return list(merged.values())


def _read_point_by_point(grouping: Grouping, reader: Group) -> Group | None:
    producers = (
        grouping.graph.producer.get(access.base) for node in reader.placements for access in grouping.reads[node]
    )
    groups = {grouping.group_of[node] for node in producers if node in grouping.group_of} - {reader}
    for group in sorted(groups, key=lambda one: -one.index):
        if _is_over_one_space(grouping, group, reader) and _is_read_at_its_points(grouping, group, reader):
            between = [
                value
                for node in reader.placements
                for value in grouping.outside(node, reader)
                if grouping.graph.producer.get(value) not in group.placements
            ]
            if not grouping.order.depends(between, group):
                return group
    return None


def _is_over_one_space(grouping: Grouping, group: Group, reader: Group) -> bool:
    if any(one.has_reduction for one in (group, reader)) or len(group.space) != len(reader.space):
        return False
    if len(group.placements) + len(reader.placements) > grouping.max_members:
        return False
    simplify = grouping.facts.simplify
    return all(a == b or simplify(a) == simplify(b) for a, b in zip(group.space, reader.space))


def _is_read_at_its_points(grouping: Grouping, group: Group, reader: Group) -> bool:
    facts = space_facts(grouping, reader)
    for node, placement in reader.placements.items():
        replacement = {f"d{i}": e for i, e in enumerate(placement)}
        for access in grouping.reads[node]:
            member = grouping.graph.producer.get(access.base)
            if member not in group.placements:
                continue
            targets = result_placement(group, member)
            if len(access.map) != len(targets):
                return False
            for expr, target in zip(access.map, targets):
                actual = expr.substitute(replacement)
                if actual != target and facts.simplify(actual) != facts.simplify(target):
                    return False
    return True
