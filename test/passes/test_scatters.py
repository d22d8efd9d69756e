"""Writes at data-dependent indices: rules, kernels of both targets, order, gradients and errors against eager."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from lowering import check

import symshape

Tensor = torch.Tensor
aten = torch.ops.aten


def along(x: Tensor, i: Tensor, v: Tensor) -> list[Tensor]:
    """An index for each element; there are fewer of them than of x, and more values than indices."""
    found = [x.scatter_add(d, i, v) for d in (0, -1)]
    found += [x.scatter_reduce(1, i, v, how) for how in ("amax", "amin")]
    found += [x.scatter_reduce(0, i, v, how, include_self=False) for how in ("sum", "prod", "mean", "amax", "amin")]
    found += [x.scatter_reduce(1, i, v, "mean"), x.scatter(0, i, 2.0), x.scatter(1, i, v, reduce="multiply")]
    unequal = torch.where(v.isinf(), v, torch.nan)  # NaN wins in every extremum
    whole, part = x.long(), v.long()
    return [
        *found,
        x.scatter_reduce(0, i, unequal, "amax"),
        whole.scatter_add(1, i, part),
        whole.scatter_reduce(1, i, part, "mean"),
        x.abs().byte().scatter_reduce(0, i, v.abs().byte(), "amax"),
    ]


def at_rows(x: Tensor, j: Tensor, w: Tensor) -> list[Tensor]:
    """Whole rows at once, in vectors; negative indices, indices of several dims, values that are repeated."""
    y = x.reshape(x.shape[0], x.shape[1], 1).expand(-1, -1, 3)
    return [
        x.index_put((j,), w, accumulate=True),
        x.index_put((-1 - j,), w[0], accumulate=True),
        x.index_put((j[:, None], j[None, :] % x.shape[1]), w[0, 0], accumulate=True),
        aten.index_put(y, [j, None, j % 3], w, True).contiguous(),
        aten.index_put(y, [None, j % x.shape[1]], y.sum(1)[:, None, :], True).contiguous(),
        x.index_add(0, j, w, alpha=2),
        x.index_reduce(0, j, w, "mean"),
        x.index_reduce(0, j, w, "prod", include_self=False),
        x.t().index_put((j % x.shape[1],), w[:, :1], accumulate=True),
    ]


def once(x: Tensor, p: Tensor, w: Tensor) -> list[Tensor]:
    """Each place once: values replace."""
    return [
        x.index_put((p,), w),
        x.index_copy(0, p, w),
        (x > 0).index_put((p,), w > 0),
        x.index_fill(0, p, 3.0),
        x.scatter(0, p[:, None].expand_as(w), w),
        x.index_put((p,), torch.tensor(4.0)),
    ]


def inputs(n: int, m: int, count: int) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(n * m)
    low = min(n, m)
    x, w = torch.randn(n, m, generator=generator), torch.randn(count, m, generator=generator)
    i = torch.randint(0, max(low, 1), (min(count, n), m - 1) if low else (0, m), generator=generator)
    v = torch.randn(i.shape[0] + 1, i.shape[1] + 2, generator=generator)
    j = torch.randint(0, max(n, 1), (count,), generator=generator)
    return x, i, v, j, w, torch.randperm(n, generator=generator)[:count], w[: min(n, count)]


def everything(x: Tensor, i: Tensor, v: Tensor, j: Tensor, w: Tensor, p: Tensor, u: Tensor) -> list[Tensor]:
    return [*along(x, i, v), *at_rows(x, j, w), *once(x, p, u)]


SIZES = ((7, 9, 5), (4, 70, 6), (40, 13, 50), (129, 33, 65), (3, 5, 2))


def test_rules() -> None:
    """What the rules say, before there are kernels: no library call is left."""
    given = [inputs(*size) for size in SIZES[:2]]
    check(along, *(one[:3] for one in given))
    check(
        lambda x, j, w: [x.index_put((j,), w, accumulate=True), x.index_reduce(0, j, w, "amin")],
        *((x, j, w) for x, _, _, j, w, *_ in given),
    )


def without_dims(x: Tensor, i: Tensor, v: Tensor) -> list[Tensor]:
    """Of a tensor without dims, by an index of one or none; and the other way round."""
    y, j = x[None], i[None]
    return [
        x.gather(0, i),
        x.gather(0, j),
        y.gather(0, i),
        x.index_select(0, i),
        x.index_select(0, j),
        y.index_select(0, i),
        x.scatter(0, i, v),
        x.scatter(0, j, v[None]),
        y.scatter(0, i, v),
        x.scatter(0, i, 2.0),
        x.scatter_add(0, i, v),
        x.scatter_reduce(0, i, v, "mean"),
        x.scatter_reduce(0, j, v[None], "prod", include_self=False),
        x.index_reduce(0, j, v, "amax"),
        x.index_copy(0, i, v),
        x.index_add(0, j, v, alpha=2),
        x.sin().gather(0, i),
        y.repeat(3).scatter(0, j + 2, v.cos()[None]),
    ]


@pytest.mark.parametrize("target", ["cpu", "triton"])
def test_without_dims(target: str) -> None:
    if target == "triton":
        pytest.importorskip("triton")
    torch._dynamo.reset()
    given = torch.tensor(1.5), torch.tensor(0), torch.tensor(-3.0)
    (graph,) = symshape.explain(without_dims, *given).graphs
    assert not graph.library_calls
    compiled = symshape.compile(without_dims, fullgraph=True, target=target, cache=False)
    torch.testing.assert_close(compiled(*given), without_dims(*given))


def of_another_rank(x: Tensor, *indices: Tensor) -> list[Tensor]:
    """By indices without elements, whose rank eager mode does not look at."""
    found = []
    for i in indices:
        v = i.to(x.dtype)
        found += [x.gather(0, i), x.sin().gather(-1, i) * 2, x.take_along_dim(i)]
        found += [x.scatter(0, i, 2.0), x.cos().scatter(-1, i, v), x.scatter(0, i, v, reduce="multiply") + 1]
        found += [x.scatter_add(-1, i, v)]
        found += [x.scatter_reduce(0, i, v, how, include_self=how == "amax") for how in ("mean", "amax", "prod")]
    return found


@pytest.mark.sample(2)
@pytest.mark.parametrize("target", ["cpu", "triton"])
@pytest.mark.parametrize("sizes", [[(), ()], [(4,), (1,), (0,)], [(3, 2), (5, 1), (0, 3)]], ids=str)
def test_empty_index_of_another_rank(sizes: list[tuple[int, ...]], target: str) -> None:
    if target == "triton":
        pytest.importorskip("triton")
    torch._dynamo.reset()
    shapes = [shape for shape in ((0,), (1, 0), (0, 7), (2, 0, 5)) if len(shape) != max(len(sizes[0]), 1)]
    given = [[torch.randn(size), *(torch.zeros(shape, dtype=torch.int64) for shape in shapes)] for size in sizes]
    (graph,) = symshape.explain(of_another_rank, *given[0]).graphs
    assert not graph.library_calls
    torch._dynamo.reset()
    compiled = symshape.compile(of_another_rank, fullgraph=True, target=target, cache=False)
    for inputs in given:
        for actual, expected in zip(compiled(*inputs), of_another_rank(*inputs), strict=True):
            torch.testing.assert_close(actual, expected)


def test_index_of_another_rank_with_elements() -> None:
    """One compiled function: an error where there is something to read, as in eager mode."""
    torch._dynamo.reset()

    def function(x: Tensor, i: Tensor) -> tuple[Tensor, Tensor]:
        return x.gather(0, i), x.scatter(0, i, 1.0)

    compiled = symshape.compile(function, cache=False)
    x = torch.randn(3, 2)
    for n in (0, 2, 0, 1):
        i = torch.zeros(n, dtype=torch.int64)
        if n:
            for one in (function, compiled):
                with pytest.raises(RuntimeError, match="same number of dimensions"):
                    one(x, i)
            continue
        for actual, expected in zip(compiled(x, i), function(x, i), strict=True):
            torch.testing.assert_close(actual, expected)


def test_gradients_by_an_empty_index_of_another_rank() -> None:
    torch._dynamo.reset()

    def function(x: Tensor, i: Tensor) -> Tensor:
        return x.sin().gather(0, i).sum() + x.cos().sum()

    compiled = symshape.compile(function, fullgraph=True, cache=False)
    for n, m in ((3, 2), (1, 4), (0, 2)):
        own, other = (torch.randn(n, m, generator=torch.manual_seed(n)).requires_grad_() for _ in range(2))
        i = torch.zeros(0, dtype=torch.int64)
        compiled(own, i).backward()
        function(other, i).backward()
        torch.testing.assert_close(own.grad, other.grad)


@pytest.mark.parametrize("target", ["cpu", "triton"])
def test_kernels(target: str) -> None:
    if target == "triton":
        pytest.importorskip("triton")
    torch._dynamo.reset()
    compiled = torch.compile(
        everything, backend="symshape", dynamic=True, fullgraph=True, options={"target": target, "cache": False}
    )
    for size in SIZES if target == "cpu" else SIZES[:3]:
        given = inputs(*size)
        torch.testing.assert_close(compiled(*given), everything(*given), equal_nan=True)


def test_report() -> None:
    """Each is a kernel of the report, launched once; the source is what code can be made of for a GPU too."""
    pytest.importorskip("triton")
    x, _, _, j, w, *_ = inputs(7, 9, 5)
    (graph,) = symshape.explain(lambda x, j, w: x.index_add(0, j, w), x, j, w).graphs
    assert not graph.library_calls
    (kernel,) = (kernel for kernel in graph.kernels if kernel.kind == "scatter")
    assert kernel.variants == ("default",) and "atomic_add" in kernel.triton_source


def test_half_types_are_summed_in_float32() -> None:
    torch._dynamo.reset()
    x, j = torch.zeros(3, 5, dtype=torch.float16), torch.zeros(5000, dtype=torch.int64)
    compiled = torch.compile(lambda x, j, v: x.index_add(0, j, v), backend="symshape", dynamic=True)
    assert compiled(x, j, torch.ones(5000, 5, dtype=torch.float16))[0].tolist() == [5000.0] * 5  # eager mode: 2048


def test_in_order_whatever_the_threads() -> None:
    """Sums have the same bits, and of values for one place the last one stays."""
    torch._dynamo.reset()
    threads = torch.get_num_threads()

    def run(x: Tensor, j: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        return x.index_put((j,), w), x.index_add(0, j, w), x.scatter_add(0, j[:, None].expand_as(w), w)

    compiled = torch.compile(run, backend="symshape", dynamic=True, fullgraph=True)
    x, w, j = torch.zeros(50, 3000), torch.randn(400, 3000), torch.randint(0, 50, (400,))
    found = []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found.append(compiled(x, j, w))
    finally:
        torch.set_num_threads(threads)
    for outputs in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(outputs, found[0]))
    last = {int(place): row for row, place in enumerate(j)}
    assert all(torch.equal(found[0][0][place], w[row]) for place, row in last.items())


def test_gradients() -> None:
    torch._dynamo.reset()

    def run(x: Tensor, i: Tensor, v: Tensor, j: Tensor, w: Tensor) -> Tensor:
        v = v[: i.shape[0], : i.shape[1]]  # eager mode has no gradient of a part that is scattered
        a = x.scatter_add(0, i, v).sin() + x.index_put((j,), w, accumulate=True).cos() + x.index_add(0, j, w * w)
        return a + x.scatter_reduce(1, i, v, "amax") * x.scatter_reduce(0, i, v, "mean") + x[j].sum()

    compiled = torch.compile(run, backend="symshape", dynamic=True, fullgraph=True)
    for size in ((7, 9, 5), (30, 21, 40)):
        x, i, v, j, w, *_ = inputs(*size)
        results = []
        for function in (compiled, run):
            leaves = [t.clone().requires_grad_() for t in (x, v, w)]
            function(leaves[0], i, leaves[1], j, leaves[2]).square().sum().backward()
            results.append([t.grad for t in leaves])
        torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-4)


BAD: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], tuple[int, ...]]] = {
    "scatter_add": (lambda x, i: x.scatter_add(0, i[:, None].expand(-1, 4), x[:2] * 2), (1, 6)),
    "scatter_add, negative": (lambda x, i: x.scatter_add(0, i[:, None].expand(-1, 4), x[:2] * 2), (1, -1)),
    "index_put": (lambda x, i: x.index_put((i,), x[0]), (-7, 2)),
    "index_add": (lambda x, i: x.index_add(0, i, x[:2]), (2, -1)),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_index(name: str) -> None:
    torch._dynamo.reset()
    function, bad = BAD[name]
    compiled = torch.compile(function, backend="symshape", dynamic=True)
    x, good = torch.randn(6, 4), torch.tensor([1, 2])
    torch.testing.assert_close(compiled(x, good), function(x, good))
    with pytest.raises((IndexError, RuntimeError)) as expected:
        function(x, torch.tensor(bad))
    with pytest.raises(type(expected.value)):
        compiled(x, torch.tensor(bad))
    torch.testing.assert_close(compiled(x, good), function(x, good))


def test_empty() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, i, v: x.scatter_add(0, i, v) * 2, backend="symshape", dynamic=True)
    for n, m in ((3, 5), (0, 5), (4, 0), (1, 1)):
        x, i = torch.randn(6, 5), torch.zeros(n, m, dtype=torch.int64)
        torch.testing.assert_close(compiled(x, i, torch.ones(n, m)), x.scatter_add(0, i, torch.ones(n, m)) * 2)
    with pytest.raises((IndexError, RuntimeError)):
        compiled(torch.randn(0, 5), torch.zeros(2, 5, dtype=torch.int64), torch.ones(2, 5))
