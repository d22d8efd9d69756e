"""Selects the anchors: values that are materialised. All others float to their readers.

This is the cost model of recomputation: ``_cheap``, with ``CHEAP_WEIGHT``. Which anchors share a kernel is decided by
``group``, ``siblings`` and ``merge_readers``.
"""

from __future__ import annotations

from symshape.artifact.element_types import ITEM_SIZE
from symshape.dialects.types import dtype_of
from symshape.passes.fusion.compute_graph import Compute, Graph, dim_symbols
from symshape.passes.fusion.group import Group, Grouping
from symshape.passes.fusion.row_gathers import weight_of_row_gather
from symshape.prover.numbers.expr import Expr

CHEAP_WEIGHT = 8  # scalar operations that are computed again rather than stored and loaded


def choose_anchors(graph: Graph) -> set[Compute]:
    """Reductions, scans, values that something needs in memory, and values too dear to be computed by each of the
    readers."""
    anchors = {n for n in graph.computes if n.accumulates or any(r in graph.buffer_uses for r in n.results)}
    for node in graph.computes:
        _anchor_guarded(graph, node, anchors)
    readers: dict[Compute, frozenset[Compute]] = {}  # of a value: the anchors that compute it again if it floats
    for node in reversed(graph.computes):  # users come first
        users = [readers[user] if user not in anchors else frozenset([user]) for user in node.users]
        readers[node] = frozenset().union(*users)
        if len(node.users) > 1 and not _cheap(graph, node, len(readers[node])):
            anchors.add(node)
    return anchors


def read_by_one_kernel(grouping: Grouping) -> set[Compute]:
    """Anchors that were chosen because of several readers, which are all in one kernel now: it computes the value once,
    so that they can float there, and need no memory."""
    graph = grouping.graph
    readers: dict[Compute, set[Group]] = {}
    must = {n for n in grouping.anchors if n.accumulates or any(r in graph.buffer_uses for r in n.results)}
    for reader, reads in grouping.reads.items():
        for access in reads:
            producer = graph.producer.get(access.base)
            if producer is not None:
                readers.setdefault(producer, set()).add(grouping.group_of[reader])
                if access.conditions and _may_raise(graph, producer, grouping.anchors - {producer}):
                    must.add(producer)
    return {
        node
        for node, groups in readers.items()
        if node not in must and len(groups) == 1 and grouping.group_of[node] not in groups and _cheap(graph, node, 1)
    }


def _cheap(graph: Graph, node: Compute, readers: int) -> bool:
    """Whether recomputing a value in each reader is cheaper than storing it: few operations, and fewer bytes to read
    for the additional readers than to store the value once and load it. Operands that lack one of the value's dims are
    not counted, nor are such values with other users, which may be stored anyway. A gather of rows reads as many bytes
    as a tensor would have. A value with a single element is never recomputed."""
    seen: set[tuple[Compute, tuple[Expr, ...]]] = set()
    large: dict[object, int] = {}  # buffer -> bytes of an element
    weight = 0
    every = {f"d{i}" for i, size in enumerate(node.sizes) if size.as_int() != 1}
    stack = [(node, tuple(dim_symbols("d", len(node.sizes))))]
    while stack:
        current, map_ = stack.pop()
        if (current, map_) in seen:
            continue
        seen.add((current, map_))
        of_rows = weight_of_row_gather(current)
        weight += current.weight if of_rows is None else of_rows
        if (current.heavy and of_rows is None) or weight > CHEAP_WEIGHT:
            return False
        for table in current.captured:
            large[table] = ITEM_SIZE.get(dtype_of(table), 16)
        replacement = {f"d{i}": e for i, e in enumerate(map_)}
        for access in current.inputs:
            producer = graph.producer.get(access.base)
            inner = tuple(e.substitute(replacement) for e in access.map)
            whole = every <= set().union(*(e.symbols for e in inner))
            if producer is not None and not producer.accumulates and (whole or len(producer.users) == 1):
                stack.append((producer, inner))
            elif whole:
                large[access.base] = ITEM_SIZE.get(dtype_of(access.base), 16)
    item = ITEM_SIZE.get(dtype_of(node.results[0]), 16)
    return not every or (readers - 1) * sum(large.values()) < readers * item


def _anchor_guarded(graph: Graph, node: Compute, anchors: set[Compute]) -> None:
    """Makes operands of predicated reads that may raise an error anchors: outside of the predicate a gather would get
    out-of-range indices, and a division wrong divisors. So the operand is stored first, by a kernel that computes only
    valid points."""
    for access in node.inputs:
        producer = graph.producer.get(access.base)
        if access.conditions and producer is not None and _may_raise(graph, producer, anchors):
            anchors.add(producer)


def _may_raise(graph: Graph, node: Compute, anchors: set[Compute]) -> bool:
    """Whether the node, or a value that floats to it, may raise an error."""
    seen: set[Compute] = set()
    stack = [node]
    while stack:
        current = stack.pop()
        if current in seen or current in anchors:
            continue
        seen.add(current)
        if current.raises:
            return True
        stack.extend(graph.producer[a.base] for a in current.inputs if a.base in graph.producer)
    return False
