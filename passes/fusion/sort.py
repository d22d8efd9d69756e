"""Sorts the operations of a block topologically after new ones were appended."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

from torch_mlir import ir

from symshape.dialects.accessors import orders_of


def sort_block(block: ir.Block) -> None:
    """Topological order, as near to the present one as it can be; the terminator stays last, and calls that draw random
    numbers stay in their order, as collectives do."""
    operations = [view.operation for view in block.operations]
    terminator = operations.pop()
    position = {result: i for i, op in enumerate(operations) for result in op.results}
    waiting: list[int] = []
    users: list[list[int]] = [[] for _ in operations]
    last: dict[str, int] = {}  # of each kind of calls that keep their order
    for i, op in enumerate(operations):
        producers = {position[value] for value in _used(op) if value in position}
        for kind in orders_of(op):
            producers |= {last[kind]} if kind in last else set()
            last[kind] = i
        waiting.append(len(producers))
        for producer in producers:
            users[producer].append(i)
    ready = [i for i, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    while ready:
        i = heapq.heappop(ready)
        operations[i].move_before(terminator)
        for user in users[i]:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, user)


def _used(op: Any) -> Iterator[ir.Value]:
    """Its operands, and those of the operations in its regions."""
    yield from op.operands
    for region in op.regions:
        for inner in region.blocks[0].operations:
            yield from inner.operation.operands
