"""Gradients of normalisations of half types, with parameters of float32 and without any, against float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import symshape

LAYERS = {
    "layer": lambda x, w, b: F.layer_norm(x, x.shape[1:], w, b),
    "group": lambda x, w, b: F.group_norm(x.unsqueeze(-1), 3, w, b).squeeze(-1),
    "batch": lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
}


def results(*arguments: torch.Tensor | None) -> list[torch.Tensor]:
    """Of each layer, with tensors (or None) of its own: one compile for all."""
    triples = zip(*[iter(arguments)] * 3, strict=True)
    return [layer(*triple) for layer, triple in zip(LAYERS.values(), triples)]


@pytest.mark.parametrize("kind", ["float32", pytest.param("none", marks=pytest.mark.long)])
def test_statistics_are_as_exact_as_eager_mode_s(kind: str) -> None:
    """Around 100, where a mean in float16 is off by 3% of the deviation."""
    torch._dynamo.reset()
    compiled = symshape.compile(results)
    for n in (7, 40):
        x = (torch.randn(n, 24) + 100).half()
        parameters = [None, None] if kind == "none" else [torch.randn(24), torch.randn(24)]
        weight = torch.randn(n, 24)
        found = []
        for function, wide in ((compiled, False), (results, False), (results, True)):
            arguments = [
                t if t is None else (t.double() if wide else t.clone()).requires_grad_() for t in [x, *parameters] * 3
            ]
            made = function(*arguments)
            loss = sum((one.double() * weight).sum() for one in made)
            found.append([*made, *torch.autograd.grad(loss, [t for t in arguments if t is not None])])
        for mine, theirs, exact in zip(*found, strict=True):
            assert mine.dtype == theirs.dtype
            allowed = 2 * (theirs - exact).abs().max() + exact.abs().max() * torch.finfo(mine.dtype).eps
            assert (mine - exact).abs().max() <= allowed
