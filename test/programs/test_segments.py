"""Segments by lengths, offsets or indices: reductions, networks on graphs, packed rows; one graph for all sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils import _pytree as pytree

import symshape

Tensor = torch.Tensor
WIDTH = 5
# Lengths of segments: empty ones in front, inside and at the end, all in one, primes, one segment, no element.
BATCHES = ((3, 0, 4, 2), (0, 7, 1, 13, 0), (0, 0, 29), (1, 1, 1), (1,), (0, 0), (101, 2, 3, 0, 5))
REDUCTIONS = ("sum", "mean", "max", "min", "prod")


def numbers(lengths: Sequence[int], *, special: bool = False, width: int | None = WIDTH) -> Tensor:
    """One for each element; ``special``: some are 0 or equal, some NaN."""
    generator = torch.Generator().manual_seed(sum(lengths) + len(lengths))
    x = torch.randn(sum(lengths), *(() if width is None else (width,)), generator=generator)
    if special and x.numel():
        x.view(-1)[::4], x.view(-1)[1::5], x.view(-1)[3::11] = 0, 1.5, math.nan
    return x


def offsets_of(lengths: Sequence[int], dtype: torch.dtype = torch.int64) -> Tensor:
    return F.pad(torch.tensor(lengths).cumsum(0), (1, 0)).to(dtype)


def outcome(function: Callable[..., Any], given: Sequence[Any]) -> Any:
    """Results, and gradients of the floating-point inputs."""
    given = [x.detach().requires_grad_() if x.is_floating_point() else x for x in given]
    results = function(*given)
    floats = [x for x in pytree.tree_leaves(results) if x.requires_grad]
    wanted = [x for x in given if x.requires_grad]
    if not floats:
        return results
    torch.manual_seed(len(floats))
    cotangents = [torch.randn_like(x, dtype=torch.float32).to(x.dtype) for x in floats]
    return results, torch.autograd.grad(floats, wanted, cotangents, allow_unused=True, materialize_grads=True)


def in_float64(function: Callable[..., Any], given: Sequence[Any]) -> Any:
    """Eager mode's outcome in float64, as float32: in float32 its sums of a thousand elements are off by 1e-4."""
    found = outcome(function, [x.double() if x.is_floating_point() else x for x in given])
    return pytree.tree_map(lambda x: x.float(), found)


def assert_as_eager(
    function: Callable[..., Any],
    inputs: Sequence[Sequence[Any]],
    calls: Sequence[str] = (),
    reference: Callable[..., Any] = outcome,
) -> None:
    """For all inputs, with one graph in each direction; ``calls``: what stays of PyTorch's own operators."""
    torch._dynamo.reset()
    first = [x.detach().requires_grad_() if x.is_floating_point() else x for x in inputs[0]]
    report = symshape.explain(function, *first, options={"strict": True})
    for given in inputs:
        found, expected = outcome(report.run, given), reference(function, given)
        sizes = [tuple(x.shape) for x in given]
        torch.testing.assert_close(
            found, expected, rtol=1e-4, atol=1e-4, equal_nan=True, msg=lambda text, of=sizes: f"{of}: {text}"
        )
    assert not report.further
    assert len({graph.kind for graph in report.graphs}) == len(report.graphs)  # nor was it broken
    left = {call.split(".")[1] for graph in report.graphs for call in graph.library_calls}
    assert left == set(calls)


@pytest.mark.parametrize(
    "reduce", [r if r in ("mean", "max") else pytest.param(r, marks=pytest.mark.long) for r in REDUCTIONS]
)
def test_reductions(reduce: str) -> None:
    """By lengths and by offsets, of one dim and of two, with an initial value and without, between pointwise work."""

    def program(x: Tensor, y: Tensor, lengths: Tensor, offsets: Tensor) -> list[Tensor]:
        return [
            torch.segment_reduce(x * 1.5, reduce, lengths=lengths).exp(),
            torch.segment_reduce(y, reduce, offsets=offsets, initial=1.25) * 2,
        ]

    def inputs(lengths: Sequence[int], special: bool) -> tuple[Tensor, ...]:
        x, y = numbers(lengths, special=special), numbers(lengths, special=special, width=None)
        return x, y, torch.tensor(lengths), offsets_of(lengths, torch.int32)

    given = [inputs(lengths, special) for lengths in BATCHES for special in (False, True)]
    assert_as_eager(program, given, ["_assert_async"])


def test_segments_of_an_inner_dim() -> None:
    """Lengths for each index of the dims before it; elements outside of any segment; transposed data."""

    def program(x: Tensor, lengths: Tensor, offsets: Tensor) -> list[Tensor]:
        return [
            torch.segment_reduce(x, "sum", lengths=lengths, axis=1, unsafe=True),
            torch.segment_reduce(x.transpose(0, 2).contiguous().transpose(0, 2), "max", offsets=offsets, axis=1),
        ]

    given = []
    for rows, ends in (([[3, 0, 1], [0, 4, 0]], [[0, 2, 3], [1, 1, 4]]), ([[2, 1, 0]], [[1, 2, 2]]), ([[5]], [[0, 5]])):
        x = torch.randn(len(rows), max(max(map(sum, rows)), 4), 3)
        given.append((x, torch.tensor(rows), torch.tensor(ends)))
    assert_as_eager(program, given)


@pytest.mark.parametrize("dtype", [torch.float64, pytest.param(torch.bfloat16, marks=pytest.mark.long), torch.float16])
def test_dtypes(dtype: torch.dtype) -> None:
    """Halves are summed in float32 and rounded once: 5000 ones are 5000, in eager mode 2048."""

    def program(x: Tensor, lengths: Tensor) -> list[Tensor]:
        return [torch.segment_reduce(x, how, lengths=lengths, unsafe=True) for how in ("sum", "mean", "min")]

    compiled = symshape.compile(program, fullgraph=True)
    for lengths in BATCHES:
        x = numbers(lengths).to(dtype)
        exact = [t.to(dtype) for t in program(x.double(), torch.tensor(lengths))]
        tolerance = {} if dtype == torch.float64 else {"rtol": 1e-2, "atol": 1e-3}
        torch.testing.assert_close(compiled(x, torch.tensor(lengths)), exact, equal_nan=True, **tolerance)
    if dtype == torch.float16:
        assert compiled(torch.ones(5000, 2, dtype=dtype), torch.tensor([5000]))[0].tolist() == [[5000.0] * 2]


def test_errors() -> None:
    """Eager mode's for lengths that are none. Offsets that decrease or address no element read nothing."""
    by_lengths = symshape.compile(lambda x, n: torch.segment_reduce(x, "sum", lengths=n), fullgraph=True)
    by_offsets = symshape.compile(lambda x, n: torch.segment_reduce(x, "sum", offsets=n), fullgraph=True)
    x = torch.arange(6.0)
    assert by_lengths(x, torch.tensor([2, 4])).tolist() == [1, 14]
    assert by_offsets(x, torch.tensor([1, 2, 5])).tolist() == [1, 9]
    for lengths, message in (([7, -1], "negative"), ([3, 2], "sum to data.size"), ([2, 2, 3], "sum to data.size")):
        with pytest.raises(RuntimeError, match=message):
            by_lengths(x, torch.tensor(lengths))
    with pytest.raises(RuntimeError, match="sum to data.size"):
        by_lengths(x[:0], torch.tensor([1, 2]))
    with pytest.raises(RuntimeError, match="Expected reduction dim"):
        by_lengths(x, torch.tensor([], dtype=torch.int64))
    for offsets in ([0, 4, 2, 6], [0, 7], [-1, 6], [0, 6, 1 << 62], [-(1 << 62), 6]):
        with pytest.raises(RuntimeError, match="offsets of rows"):
            by_offsets(x, torch.tensor(offsets))
    with pytest.raises(RuntimeError, match="offsets of rows"):
        by_offsets(x[:0], torch.tensor([0, -1]))


def test_threads_change_no_bit() -> None:
    """Few long segments, many short ones."""
    compiled = symshape.compile(lambda x, n: torch.segment_reduce(x.sin(), "sum", lengths=n), fullgraph=True)
    before = torch.get_num_threads()
    try:
        for lengths in ((200_000, 3), (7,) * 5000):
            for width in (None, 20):
                x, found = numbers(lengths, width=width), []
                for threads in (1, 2, 3):
                    torch.set_num_threads(threads)
                    found.append(compiled(x, torch.tensor(lengths)))
                assert all(torch.equal(one, found[0]) for one in found)
                expected = [part.sum(0) for part in x.double().sin().split(lengths)]
                torch.testing.assert_close(found[0], torch.stack(expected).float(), rtol=1e-4, atol=1e-3)
    finally:
        torch.set_num_threads(before)


def scatter(source: Tensor, index: Tensor, size: int, reduce: str = "sum") -> Tensor:
    """As libraries for networks on graphs write it."""
    each = index.view(-1, *[1] * (source.dim() - 1)).expand_as(source)
    zeros = source.new_zeros(size, *source.shape[1:])
    if reduce == "mean":
        count = source.new_zeros(size).scatter_add_(0, index, source.new_ones(source.size(0))).clamp(min=1)
        return scatter(source, index, size) / count.view(-1, *[1] * (source.dim() - 1))
    if reduce == "sum":
        return zeros.scatter_add_(0, each, source)
    return zeros.scatter_reduce_(0, each, source, reduce, include_self=False)


def mean_of_neighbours(x: Tensor, w: Tensor, edges: Tensor) -> Tensor:
    return scatter(x[edges[0]], edges[1], x.size(0), "mean") @ w + x


def largest_of_neighbours(x: Tensor, w: Tensor, edges: Tensor) -> Tensor:
    return scatter((x @ w)[edges[0]], edges[1], x.size(0), "amax")


def attention_of_heads(x: Tensor, w: Tensor, edges: Tensor) -> Tensor:
    h, (start, end) = (x @ w).view(x.size(0), 2, -1), edges
    scores = F.leaky_relu((h * 0.3).sum(-1)[start] + h.sum(-1)[end], 0.2)
    p = (scores - scatter(scores.detach(), end, x.size(0), "amax")[end]).exp()
    p = p / (scatter(p, end, x.size(0)) + 1e-16)[end]
    return scatter(h[start] * p.unsqueeze(-1), end, x.size(0)).flatten(1)


def compressed_rows(x: Tensor, w: Tensor, edges: Tensor) -> Tensor:
    """Edges in the order of their ends, as rows of a sparse matrix."""
    order = edges[1].argsort(stable=True)
    offsets = F.pad(torch.bincount(edges[1], minlength=x.size(0)).cumsum(0), (1, 0))
    return torch.segment_reduce(x[edges[0][order]], "sum", offsets=offsets) @ w


def owners(x: Tensor, w: Tensor, edges: Tensor) -> Tensor:
    """As many numbers of repetitions as ``bincount`` gives."""
    degree = torch.bincount(edges[1], minlength=x.size(0))
    ids = torch.repeat_interleave(torch.arange(x.size(0)), degree)
    return (x @ w)[ids] * torch.repeat_interleave(x, degree, dim=0)


NETWORKS = {
    mean_of_neighbours: ["mm"],
    largest_of_neighbours: ["mm"],
    attention_of_heads: ["mm"],
    compressed_rows: ["mm", "sort", "bincount"],
    owners: ["mm", "bincount", "repeat_interleave"],
}


def graph(nodes: int, edges: int, ordered: bool) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(nodes * edges)
    x, w = (torch.randn(n, 6, generator=generator) / 2 for n in (nodes, 6))
    ends = torch.randint(0, nodes, (2, edges), generator=generator)
    return x, w, ends[:, ends[1].argsort()] if ordered else ends


@pytest.mark.parametrize(
    "program", [p if p in (attention_of_heads, owners) else pytest.param(p, marks=pytest.mark.long) for p in NETWORKS]
)
def test_networks(program: Callable[..., Tensor]) -> None:
    """Also of more edges than nodes, ordered by their ends: rows of ascending indices."""
    sizes = ((9, 30), (5, 3), (1, 7), (6, 1), (4, 0), (33, 1500), (12, 1100))
    given = [graph(*size, ordered) for size in sizes for ordered in (False, True)]
    if program is compressed_rows:
        given = [one for one in given if one[0].shape[0] > 1]  # of one node eager mode broadcasts the offsets
    assert_as_eager(program, given, NETWORKS[program], in_float64)


def _packed(documents: Callable[[Tensor, int], Tensor]) -> Callable[..., Tensor]:
    def program(q: Tensor, k: Tensor, v: Tensor, offsets: Tensor) -> Tensor:
        of = documents(offsets, q.size(0))
        heads = (x.transpose(0, 1)[None] for x in (q, k, v))
        return F.scaled_dot_product_attention(*heads, attn_mask=of[:, None] == of[None, :])[0].transpose(0, 1)

    return program


by_search = _packed(lambda offsets, n: torch.searchsorted(offsets[1:], torch.arange(n), right=True))
by_repetition = _packed(lambda offsets, n: torch.repeat_interleave(offsets.diff()))


def by_nested(q: Tensor, k: Tensor, v: Tensor, offsets: Tensor) -> Tensor:
    heads = (torch.nested.nested_tensor_from_jagged(x, offsets).transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(*heads).transpose(1, 2).values()


FLASH = "_scaled_dot_product_flash_attention_for_cpu"
PACKED = {by_search: "searchsorted", by_repetition: "repeat_interleave"}


def packings(dtype: torch.dtype) -> list[tuple[Tensor, ...]]:
    given = []
    for lengths in ((3, 4, 2), (5,), (1, 1, 1), (7, 1, 16, 33), (2, 0, 3)):
        generator = torch.Generator().manual_seed(sum(lengths))
        heads = (torch.randn(sum(lengths), 2, 4, generator=generator) for _ in range(3))
        given.append((*heads, offsets_of(lengths, dtype)))
    return given


@pytest.mark.parametrize("program", [by_repetition, pytest.param(by_search, marks=pytest.mark.long)])
def test_packed_rows(program: Callable[..., Tensor]) -> None:
    """Attention within the rows of a batch that lie one behind the other, by a mask."""
    assert_as_eager(program, packings(torch.int64), [PACKED[program], FLASH, f"{FLASH}_backward"])


@pytest.mark.parametrize("dtype", [torch.int32, pytest.param(torch.int64, marks=pytest.mark.long)])
def test_packed_rows_as_nested_tensors(dtype: torch.dtype) -> None:
    """The same without a mask; eager mode's is the reference."""
    torch._dynamo.reset()
    given = packings(dtype)
    first = [x.requires_grad_() if x.is_floating_point() else x for x in packings(dtype)[0]]
    report = symshape.explain(by_nested, *first, options={"strict": True})
    for one in given:
        expected = outcome(by_search, [*one[:3], one[3].long()])
        torch.testing.assert_close(outcome(report.run, one), expected, rtol=1e-4, atol=1e-4)
    assert [graph.kind for graph in report.graphs] == ["forward", "backward"] and not report.further
