"""``out=``: what is written, what is returned, and what of it is an error."""

from __future__ import annotations

import pytest
import torch

import symshape

ROWS = (0, 1, 2, 5, 17)


def places(n):
    return torch.arange(3 * n).reshape(n, 3) % max(n, 1)


CALLS = {
    "gather": lambda x, out: torch.gather(x, 0, places(x.size(0)), out=out),
    "scatter": lambda x, out: torch.scatter(x, 0, places(x.size(0)), x + 1, out=out),
    "scatter_add": lambda x, out: torch.scatter_add(x, 0, places(x.size(0)), x, out=out),
    "index_reduce": lambda x, out: torch.index_reduce(x, 0, places(x.size(0))[:, 0], x, "amax", out=out),
    "take_along_dim": lambda x, out: torch.take_along_dim(x, places(x.size(0)), 0, out=out),
    "angle": lambda x, out: torch.angle(x, out=out),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_is_written_and_returned(name):
    def f(x, out):
        return CALLS[name](x, out) * 2, out + 1

    torch._dynamo.reset()
    compiled = symshape.compile(f, fullgraph=True)
    for n in ROWS:
        x = torch.randn(n, 3)
        ours, theirs = torch.ones(n, 3), torch.ones(n, 3)
        torch.testing.assert_close(compiled(x, ours), f(x, theirs))
        torch.testing.assert_close(ours, theirs)


def test_several_results_come_back_as_what_was_given():
    def f(x, out):
        return torch.geqrf(x, out=out)

    torch._dynamo.reset()
    compiled = symshape.compile(f, fullgraph=True)
    for n in (2, 3, 7):
        x = torch.randn(n, n)
        ours, theirs = [(torch.ones(n, n), torch.ones(n)) for _ in range(2)]
        result = compiled(x, ours)
        f(x, theirs)
        assert result[0] is ours[0] and result[1] is ours[1]
        torch.testing.assert_close(ours, theirs)


def test_sizes_in_the_data():
    def f(x, out):
        return torch.masked_select(x, x > 0, out=out)

    for fullgraph in (True, False):
        torch._dynamo.reset()
        compiled = symshape.compile(f, fullgraph=fullgraph)
        for n in ROWS:
            x = torch.randn(n)
            out = torch.ones(int((x > 0).sum()))
            assert compiled(x, out) is out
            assert torch.equal(out, x[x > 0])
        out = torch.ones(4)
        if fullgraph:  # eager mode resizes it
            with pytest.raises(RuntimeError):
                compiled(torch.tensor([1.0, 2.0, -1.0]), out)
            assert out.tolist() == [1, 1, 1, 1]
        else:
            with pytest.warns(UserWarning, match="resized"):
                compiled(torch.tensor([1.0, 2.0, -1.0]), out)
            assert out.tolist() == [1, 2]


def test_no_gradient_through_out():
    def f(x, out):
        return torch.gather(x, 0, places(x.size(0)), out=out)

    torch._dynamo.reset()
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        symshape.compile(f)(torch.randn(4, 3, requires_grad=True), torch.ones(4, 3))
