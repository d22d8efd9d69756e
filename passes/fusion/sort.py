"""Operations written at the end of a block, put where they belong."""

from __future__ import annotations

import heapq
from typing import Any

from torch_mlir import ir

from symshape.dialects.accessors import draws_numbers


def sort_block(block: ir.Block) -> None:
    """Topological order, as near to the present one as it can be; the terminator stays last, and calls that draw random
    numbers stay in their order."""
    operations = [view.operation for view in block.operations]
    terminator = operations.pop()
    position = {op: i for i, op in enumerate(operations)}
    waiting: dict[Any, int] = {}
    users: dict[Any, list[Any]] = {}
    drawn = None
    for op in operations:
        producers = {v.owner for v in op.operands if not isinstance(v.owner, ir.Block)}
        for region in op.regions:
            for inner in region.blocks[0].operations:
                producers |= {
                    v.owner for v in inner.operands if not isinstance(v.owner, ir.Block) and v.owner in position
                }
        if draws_numbers(op):
            producers |= {drawn} if drawn is not None else set()
            drawn = op
        waiting[op] = len(producers)
        for producer in producers:
            users.setdefault(producer, []).append(op)
    ready = [position[op] for op in operations if not waiting[op]]
    heapq.heapify(ready)
    while ready:
        op = operations[heapq.heappop(ready)]
        op.move_before(terminator)
        for user in users.get(op, ()):
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, position[user])
