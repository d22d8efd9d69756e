"""The minimum cut that the partitioner asks NetworkX for is the same, found in another way."""

from __future__ import annotations

import random
from math import inf

import networkx
import pytest

from symshape.frontend.patches.speed.minimum_cut import cut_of


def _graph(seed: int) -> networkx.DiGraph:
    draw = random.Random(seed)
    count = draw.randint(3, 14)
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(count))
    for _ in range(draw.randint(2, 40)):
        graph.add_edge(*draw.sample(range(count), 2), capacity=draw.choice([0, 1, 2, 3, 5.0, 8, inf]))
    return graph


def test_the_cut_is_networkx_cut() -> None:
    cuts = 0
    for seed in range(300):
        graph = _graph(seed)
        last = len(graph) - 1
        found = cut_of(graph.adj, 0, last)
        if found is None:
            with pytest.raises(networkx.NetworkXUnbounded):
                networkx.minimum_cut(graph, 0, last)
            continue
        assert found == networkx.minimum_cut(graph, 0, last)
        cuts += found[0] > 0
    assert cuts > 100


def test_of_several_cuts_the_one_nearest_to_the_sink() -> None:
    graph = networkx.DiGraph()
    for start, end in (("source", "a"), ("a", "b"), ("b", "sink")):
        graph.add_edge(start, end, capacity=4)
    assert cut_of(graph.adj, "source", "sink") == (4, ({"source", "a", "b"}, {"sink"}))


@pytest.mark.parametrize("capacity", [0.5, 2**53])
def test_numbers_that_may_be_rounded_are_left_to_networkx(capacity: float) -> None:
    graph = networkx.DiGraph()
    graph.add_edge("source", "sink", capacity=capacity)
    assert cut_of(graph.adj, "source", "sink") is None
    assert cut_of(graph.adj, "source", "elsewhere") is None


def test_a_long_chain_needs_no_recursion() -> None:
    graph = networkx.DiGraph()
    for i in range(5000):
        graph.add_edge(i, i + 1, capacity=5000 - i)
    value, (first, second) = cut_of(graph.adj, 0, 5000) or (0, (set(), set()))
    assert (value, len(first), second) == (1, 5000, {5000})
