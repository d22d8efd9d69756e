"""Attention masks that broadcast to the scores: no kernel expands them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import symshape

MASKS: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "of keys": lambda lengths, n: (torch.arange(n) < lengths[:, None])[:, None, None],
    "of keys, as numbers": lambda lengths, n: (torch.arange(n) >= lengths[:, None])[:, None, None] * -1e9,
    "of queries and keys": lambda lengths, n: (torch.arange(n)[:, None] >= torch.arange(n))[None, None],
}


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_is_as_large_as_it_is_given(name: str) -> None:
    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=MASKS[name](lengths, k.shape[2]))

    def inputs(b: int, n: int) -> list[torch.Tensor]:
        heads = [torch.randn(b, 3, n, 8, requires_grad=True) for _ in range(3)]
        return [*heads, torch.randint(1, n + 1, (b,))]

    first = inputs(2, 11)
    for x in first:
        for dim in (0, 2)[: x.dim()]:
            torch._dynamo.maybe_mark_dynamic(x, dim)
    compiled = symshape.compile(attention, dynamic=None)
    report = symshape.explain(attention, *first)
    (forward,) = (graph for graph in report.graphs if graph.kind == "forward")
    assert all(len(kernel.loops.dims) <= 2 for kernel in forward.kernels), report
    for b, n in ((2, 11), (3, 1), (1, 7), (5, 33)):
        own = inputs(b, n)
        ours, eager = compiled(*own), attention(*own)
        torch.testing.assert_close(ours, eager)
        weights = torch.randn_like(eager)
        for a, e in zip(*(torch.autograd.grad((y * weights).sum(), own[:3]) for y in (ours, eager)), strict=True):
            torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-5)
