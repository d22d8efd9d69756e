"""Message passing between the nodes of a graph: gathers, an edge softmax and scatters, for any number of either."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import symshape
from symshape.backend import symshape_backend
from symshape.frame_compiler import compile_with
from symshape.tools.measure import relative_error
from symshape.tools.report import GraphReport

Tensor = torch.Tensor
WIDTH = 12


def convolution(x: Tensor, w: Tensor, start: Tensor, end: Tensor) -> Tensor:
    """Of Kipf and Welling: sums over neighbours, each weighted by both degrees."""
    h, ones = x @ w, torch.ones(start.shape[0])
    degree = torch.zeros(x.shape[0]).index_add(0, end, ones).clamp(min=1) ** -0.5
    return torch.relu(torch.zeros_like(h).index_add(0, end, h[start] * (degree[start] * degree[end])[:, None]))


def softmax_of_edges(scores: Tensor, end: Tensor, nodes: int) -> Tensor:
    largest = torch.full((nodes,), -torch.inf).scatter_reduce(0, end, scores, "amax")
    p = torch.exp(scores - largest[end])
    return p / torch.zeros(nodes).index_add(0, end, p)[end]


def attention(x: Tensor, w: Tensor, start: Tensor, end: Tensor) -> Tensor:
    """Of Velickovic and others."""
    h = x @ w
    scores = F.leaky_relu(h[start].sum(-1) * 0.3 + h[end].sum(-1) * 0.2, 0.2)
    weights = softmax_of_edges(scores, end, x.shape[0])
    return torch.zeros_like(h).index_add(0, end, weights[:, None] * h[start])


def dot_products(x: Tensor, w: Tensor, start: Tensor, end: Tensor) -> Tensor:
    """Rows that a reduction and a scatter read; an index for each element, which are those of a row."""
    h = x @ w
    weights = softmax_of_edges((h[start] * h[end]).sum(-1), end, x.shape[0])
    return torch.zeros_like(h).scatter_add(0, end[:, None].expand(-1, h.shape[1]), weights[:, None] * h[start])


def heads(x: Tensor, w: Tensor, start: Tensor, end: Tensor) -> Tensor:
    """Several destinations for each edge, side by side."""
    h = (x @ w).reshape(x.shape[0], 3, -1)
    return torch.zeros_like(h).index_add(0, end, h[start] * x[end, :3, None]).flatten(1)


def own_rows(x: Tensor, w: Tensor, start: Tensor, end: Tensor) -> Tensor:
    """The scatter writes over what it gathers from: not in place."""
    h = x * 2
    return h.index_add(0, end, h[start]) @ w


def largest(x: Tensor, w: Tensor, start: Tensor, end: Tensor) -> Tensor:
    return torch.zeros_like(x).index_reduce(0, end, x[start] - x[end], "amax") @ w


def half(x: Tensor, w: Tensor, start: Tensor, end: Tensor) -> Tensor:
    """Sums of half numbers are made in float32, as a row of them is gathered. In double precision all is."""
    h = x @ w if x.dtype == torch.float64 else (x @ w).half()
    return torch.zeros_like(h).index_add(0, end, h[start] * 0.125).to(x.dtype)


def replaced(x: Tensor, w: Tensor, start: Tensor, end: Tensor) -> Tensor:
    """The last of the edges counts."""
    return x.index_copy(0, end, x[start] + 1) @ w


def hops(x: Tensor, w: Tensor, start: Tensor, end: Tensor) -> Tensor:
    """The next scatter gathers from what the last one made."""
    h = x @ w
    for _ in range(3):
        h = torch.zeros_like(h).index_add(0, end, h[start] * x[end])
    return h


PROGRAMS = (convolution, attention, dot_products, heads, own_rows, largest, half, replaced, hops)
FUSED = {hops: 3}  # scatters that compute their messages, where there are several
SIZES = ((9, 30), (5, 3), (40, 333), (1, 7), (6, 1), (4, 0), (33, 34))  # nodes, edges


def inputs(nodes: int, edges: int, ordered: bool = False) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(nodes * edges)
    x, w = (torch.randn(n, WIDTH, generator=generator) for n in (nodes, WIDTH))
    start, end = (torch.randint(0, nodes, (edges,), generator=generator) for _ in range(2))
    return x, w / 4, start - nodes * (start % 2), end.sort().values if ordered else end


def compiled(function: Callable[..., Tensor]) -> tuple[Callable[..., Tensor], list[GraphReport]]:
    reports: list[GraphReport] = []

    def backend(graph: object, inputs: object) -> object:
        return symshape_backend(graph, inputs, reports=reports)

    return compile_with(function, backend, fullgraph=True), reports


def outcome(function: Callable[..., Tensor], x: Tensor, w: Tensor, *edges: Tensor) -> list[Tensor]:
    """The result, and the gradients of nodes and weights."""
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    result = function(x, w, *edges)
    return [result, *torch.autograd.grad((result * result).sum(), [x, w])]


@pytest.mark.sample(2)
@pytest.mark.parametrize("program", PROGRAMS)
def test_values_and_gradients(program: Callable[..., Tensor]) -> None:
    function, reports = compiled(program)
    for nodes, edges in SIZES:
        for ordered in (False, True):
            given = inputs(nodes, edges, ordered)
            actual, expected = outcome(function, *given), outcome(program, *given)
            if program is half:
                exact = [t.float() for t in outcome(half, *(t.double() if t.is_floating_point() else t for t in given))]
                assert relative_error(actual, exact) <= 2 * relative_error(expected, exact) + 1e-3
            else:
                torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
    assert [report.kind for report in reports] == ["forward", "backward"]
    assert not any(report.fallbacks for report in reports)


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_row_for_each_edge_is_stored(program: Callable[..., Tensor]) -> None:
    """Messages are the largest tensors of such a network by far: the scatter computes them."""
    function, reports = compiled(program)
    given = inputs(9, 30)
    with torch.no_grad():
        torch.testing.assert_close(function(*given), program(*given), rtol=2e-3, atol=2e-3)
    (report,) = reports
    assert report.statistics["fuse-into-scatters"]["fused"] == FUSED.get(program, 1)


def test_triton_code() -> None:
    """The same scatters on GPUs, by the interpreter."""
    pytest.importorskip("triton")
    for program in (convolution, own_rows):
        function = symshape.compile(program, fullgraph=True, target="triton", cache=False)
        for nodes, edges in ((5, 3), (4, 0)):
            given = inputs(nodes, edges)
            with torch.no_grad():
                torch.testing.assert_close(function(*given), program(*given), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("bad", [0, 1])
@pytest.mark.parametrize("node", [9, -10])
def test_an_edge_of_no_node(bad: int, node: int) -> None:
    """Either end is checked."""

    def messages(x: Tensor, start: Tensor, end: Tensor) -> Tensor:
        return torch.zeros_like(x).index_put((end,), x[start] * 2, accumulate=True)

    function = symshape.compile(messages, fullgraph=True)
    x, _, start, end = inputs(9, 30)
    torch.testing.assert_close(function(x, start, end), messages(x, start, end))
    (start, end)[bad][4] = node
    with pytest.raises((IndexError, RuntimeError), match="out of (bounds|range)"):
        function(x, start, end)


def test_threads_change_no_bit() -> None:
    function, _ = compiled(dot_products)
    given, found = inputs(50, 700), []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(function(*given))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(found[0], other) for other in found)
