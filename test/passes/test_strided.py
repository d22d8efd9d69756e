"""Ops that say where in a storage their elements are, against eager: of contiguous tensors and of others."""

from __future__ import annotations

import pytest
import torch

import symshape

Tensor = torch.Tensor


def run(x: Tensor, y: Tensor) -> list[Tensor]:
    """Of an argument with gaps, of a view of one, of a transposed intermediate; and ``x`` changes while it is read."""
    a = x.as_strided((2, 3), (1, 2), 1)
    b = torch.as_strided_copy(y.t(), (3,), (2,), 0)
    c = (y * 2).t().as_strided((2, 2), (2, 1)) + a[:, :2]
    d = torch.as_strided_scatter(x, c, (2, 2), (4, 2), 1)
    e = torch.as_strided_scatter(y.t().exp(), c[0, 0], (), (), 1)
    f = torch.as_strided_scatter(y, c, (2, 2), (3, 1), 2)
    before = a * 2
    x.add_(1)
    return [before, b, c, d, e, f, x.as_strided((2,), (3,), 0)]


@pytest.mark.parametrize("target", ["cpu", "triton"])
def test_storage(target: str) -> None:
    if target == "triton":
        pytest.importorskip("triton")
    torch._dynamo.reset()
    compiled = symshape.compile(run, fullgraph=True, target=target, cache=False)
    for n in (4, 7):
        y = torch.randn(n, 5)
        storage = torch.randn(40)
        mine, eagers = (one[: 4 * n].view(n, 4)[:, ::2] for one in (storage, storage.clone()))
        expected, actual = run(eagers, y), compiled(mine, y)
        torch.testing.assert_close(actual, expected)
        torch.testing.assert_close(mine, eagers)
        assert [one.stride() for one in actual] == [one.stride() for one in expected]
    if target == "cpu":
        (graph,) = symshape.explain(run, mine, y).graphs
        assert not graph.library_calls


def test_elements_that_share_memory_cannot_be_written() -> None:
    """Eager's error, of the operator itself: which of several values stays is not defined."""

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.as_strided_scatter(x, y, (y.shape[0], 2), (0, 1))

    compiled = torch.compile(program, backend="symshape", dynamic=True)
    for function in (program, compiled):
        with pytest.raises(RuntimeError, match="more than one element"):
            function(torch.randn(4, 3), torch.randn(5, 2))
