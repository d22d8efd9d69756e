"""The minimum cut of the partitioner's graph, on lists of numbers instead of dictionaries of names.

AOTAutograd saves the values that are a minimum cut between what must be saved and what backward needs. NetworkX finds
it by pushing flow through nested dictionaries. Of the partitioner's edges nearly all are unlimited: what unlimited
edges connect with the source, or with the sink, is on that side of every cut, so that a small graph is left, through
which flow is sent along shortest paths (Dinic, "Algorithm for solution of a problem of maximum flow in networks with
power estimation", 1970).

The result is NetworkX's: of several minimum cuts it returns the one whose second part is smallest, the nodes from which
the sink can still be reached once a maximum flow is sent. That set is the same for every maximum flow.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any

from symshape.frontend.patches.patch import Changes

_LARGEST = 2**53  # sums of floats below are exact


def cuts_are_found_in_lists(changes: Changes) -> None:
    """Replaces NetworkX's function, which the partitioner calls."""
    import networkx  # only where a graph has a backward

    changes.wrap(networkx, "minimum_cut", _minimum_cut)


@functools.cache
def _minimum_cut(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def minimum_cut(graph: Any, source: Any, sink: Any, *args: Any, **kwargs: Any) -> Any:
        found = None
        if not args and not kwargs and graph.is_directed() and not graph.is_multigraph():
            found = cut_of(graph.adj, source, sink)
        return original(graph, source, sink, *args, **kwargs) if found is None else found

    return minimum_cut


def cut_of(
    successors: Mapping[Any, Mapping[Any, Mapping[str, Any]]], source: Any, sink: Any
) -> tuple[Any, tuple[set[Any], set[Any]]] | None:
    """(value, (nodes on the source's side, nodes on the sink's side)) of a graph of edges with a ``capacity`` (none: it
    is unlimited). None where that is NetworkX's to say: an error, or capacities that are no exact numbers."""
    if source not in successors or sink not in successors or source == sink:
        return None
    numbers = {node: i for i, node in enumerate(successors)}
    edges = [
        (numbers[start], numbers[end], attributes.get("capacity", inf))
        for start, ends in successors.items()
        for end, attributes in ends.items()
        if start != end
    ]
    edges = [edge for edge in edges if edge[2] > 0]
    limited = [capacity for _, _, capacity in edges if capacity != inf]
    if any(capacity != int(capacity) for capacity in limited) or sum(limited) >= _LARGEST:
        return None
    flow = _Flow(edges, len(numbers), numbers[source], numbers[sink])
    if flow.is_unlimited:
        return None
    value = flow.send()
    below = flow.nodes_before_sink()
    second = {node for node, i in numbers.items() if i in below}
    return value, (set(successors) - second, second)


class _Flow:
    """A flow from ``source`` to ``sink``, as large as ``send`` finds it. Nodes that unlimited edges connect with the
    source or to the sink are one node each."""

    def __init__(self, edges: list[tuple[int, int, Any]], count: int, source: int, sink: int) -> None:
        unlimited = [(start, end) for start, end, capacity in edges if capacity == inf]
        first, last = _reached(unlimited, source), _reached(((end, start) for start, end in unlimited), sink)
        self.is_unlimited = not first.isdisjoint(last)
        self._source, self._sink, self._last = source, sink, last
        self._same = [source if i in first else sink if i in last else i for i in range(count)]
        self._edges_of: list[list[int]] = [[] for _ in range(count)]
        self._ends: list[int] = []  # of edge i; edge i ^ 1 is its reverse
        self._left: list[Any] = []  # the capacity of edge i that is left
        for start, end, capacity in edges:
            self._add(self._same[start], self._same[end], capacity)

    def _add(self, start: int, end: int, capacity: Any) -> None:
        if start == end or start == self._sink or end == self._source:
            return  # no flow that ends in the sink gets larger by it
        for node, other, left in ((start, end, capacity), (end, start, 0)):
            self._edges_of[node].append(len(self._ends))
            self._ends.append(other)
            self._left.append(left)

    def send(self) -> Any:
        """Sends as much as possible, and returns how much that is."""
        total: Any = 0
        while (steps := self._steps_to_sink()).get(self._source) is not None:
            total += self._send_along(steps)
        return total

    def _steps_to_sink(self) -> dict[int, int]:
        """The least number of edges with capacity left from a node to the sink."""
        steps, todo = {self._sink: 0}, [self._sink]
        for node in todo:
            for edge in self._edges_of[node]:
                other = self._ends[edge]
                if self._left[edge ^ 1] and other not in steps:
                    steps[other] = steps[node] + 1
                    todo.append(other)
        return steps

    def _send_along(self, steps: Mapping[int, int]) -> Any:
        """Sends what shortest paths can take, each edge of which is tried once."""
        total: Any = 0
        remaining = {node: iter(self._edges_of[node]) for node in steps}
        path: list[int] = []
        node = self._source
        while True:
            if node == self._sink:
                sent = min(self._left[edge] for edge in path)
                total += sent
                for edge in path:
                    self._left[edge] -= sent
                    self._left[edge ^ 1] += sent
                full = next(i for i, edge in enumerate(path) if not self._left[edge])
                node = self._ends[path[full] ^ 1]
                del path[full:]
            following = self._next_edge(node, remaining[node], steps)
            if following is not None:
                path.append(following)
                node = self._ends[following]
            elif path:
                node = self._ends[path.pop() ^ 1]
            else:
                return total

    def _next_edge(self, node: int, edges: Iterable[int], steps: Mapping[int, int]) -> int | None:
        wanted = steps[node] - 1
        for edge in edges:
            if self._left[edge] and steps.get(self._ends[edge]) == wanted:
                return edge
        return None

    def nodes_before_sink(self) -> set[int]:
        """All nodes from which the sink can still be reached."""
        below = self._steps_to_sink().keys()
        return {node for node, one in enumerate(self._same) if one in below}


def _reached(edges: Iterable[tuple[int, int]], start: int) -> set[int]:
    following: dict[int, list[int]] = {}
    for one, other in edges:
        following.setdefault(one, []).append(other)
    found, todo = {start}, [start]
    for node in todo:
        new = [other for other in following.get(node, ()) if other not in found]
        found.update(new)
        todo += new
    return found


def cuts_are_the_same() -> str:
    """A probe: NetworkX must choose among several minimum cuts as `cut_of` does. Returns what is wrong, or ""."""
    import networkx

    graph = networkx.DiGraph()
    for start, end, capacity in (("s", "a", 2), ("a", "b", 2), ("b", "t", 2), ("s", "c", inf), ("c", "t", 3.0)):
        graph.add_edge(start, end, capacity=capacity)
    found = cut_of(graph.adj, "s", "t")
    try:
        expected = networkx.minimum_cut(graph, "s", "t")
    except Exception as error:  # noqa: BLE001 - whatever another one raises
        return f"networkx.minimum_cut fails: {type(error).__name__}: {error}"
    return "" if found == expected else f"networkx.minimum_cut returns {expected}, and returned {found}"
