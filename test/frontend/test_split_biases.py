"""split-biases: which products with a bias become a product and an addition, and that results stay."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import symshape

W, B = torch.randn(7, 5), torch.randn(7)
SPLIT: dict[str, Callable[[torch.Tensor], object]] = {
    "pointwise": lambda x: F.gelu(F.linear(x, W, B)),
    "behind views": lambda x: F.linear(x, W, B).transpose(0, 1).unsqueeze(0) * 2,
    "a norm of a sum": lambda x: F.layer_norm(F.linear(x, W, B) + 1, (7,)),
    "float64": lambda x: F.linear(x.double(), W.double(), B.double()).relu(),
}
WHOLE: dict[str, Callable[[torch.Tensor], object]] = {
    "returned": lambda x: F.linear(x, W, B),
    "returned and read": lambda x: ((h := F.linear(x, W, B)), h.relu()),
    "float16": lambda x: F.linear(x.half(), W.half(), B.half()).relu(),
    "scaled": lambda x: torch.addmm(B, x.flatten(0, 1), W.t(), beta=2).relu(),
    "a matrix": lambda x: torch.addmm(x.flatten(0, 1)[:, :1].expand(-1, 7), x.flatten(0, 1), W.t()).relu(),
    "read by another product": lambda x: F.linear(F.linear(x, W, B), W.t()),
}


@pytest.mark.parametrize("name", [*SPLIT, *WHOLE])
def test_results(name: str) -> None:
    fn = {**SPLIT, **WHOLE}[name]
    torch.manual_seed(0)
    torch._dynamo.reset()
    sizes = [(3, 4), (2, 1), (5, 3), (0, 4)]
    inputs = [torch.randn(*size, 5) for size in sizes]
    report = symshape.explain(fn, inputs[0], options={"target": "triton"})
    for x in inputs[1:]:
        torch.testing.assert_close(report.run(x), fn(x))
    called = [call for graph in report.graphs for call in graph.library_calls]
    assert ("aten.addmm.default" in called) == (name in WHOLE)
    if name in SPLIT:
        assert called == ["aten.mm.default"]


def test_what_backward_needs_is_not_split() -> None:
    """The value before the activation is saved: it is written once, by the product."""
    torch._dynamo.reset()
    w, b = W.clone().requires_grad_(), B.clone().requires_grad_()
    x = torch.randn(6, 5)
    report = symshape.explain(lambda x: F.gelu(F.linear(x, w, b)), x, options={"target": "triton"})
    forward = next(graph for graph in report.graphs if graph.kind == "forward")
    assert "aten.addmm.default" in forward.library_calls
    expected = F.gelu(F.linear(x, w, b))
    torch.testing.assert_close(report.result, expected)
    grads = torch.autograd.grad(report.result.sum(), [w, b]), torch.autograd.grad(expected.sum(), [w, b])
    torch.testing.assert_close(*grads)


def test_left_out() -> None:
    torch._dynamo.reset()
    options = {"target": "triton", "disable_passes": ["split-biases"]}
    report = symshape.explain(SPLIT["pointwise"], torch.randn(2, 3, 5), options=options)
    assert report.graphs[0].library_calls == ["aten.addmm.default"]
    torch._dynamo.reset()
    assert "aten.mm.default" not in symshape.explain(SPLIT["pointwise"], torch.randn(2, 3, 5)).graphs[0].library_calls
