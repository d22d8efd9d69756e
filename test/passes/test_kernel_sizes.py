"""Kernels take the sizes that they use: those of other resolutions and of other numbers of channels are one kernel."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import symshape
from symshape.passes.fusion.kernel_sizes import KernelSizes
from symshape.prover.numbers.expr import Expr

S0, S1, C = (Expr.symbol(name) for name in ("s0", "s1", "size_48"))


class Stages(nn.Module):
    """Feature maps that halve while their channels change; each is normalised, by what is of each channel."""

    def __init__(self, channels: tuple[int, ...], training: bool = False) -> None:
        super().__init__()
        pairs = zip((3, *channels), channels, strict=False)
        self.convolutions = nn.ModuleList(nn.Conv2d(a, b, 3, stride=2, padding=1, bias=False) for a, b in pairs)
        self.norms = nn.ModuleList(map(nn.BatchNorm2d, channels))
        for norm in self.norms:
            norm.running_var.uniform_(0.5, 2)
        self.train(training)

    def forward(self, x: Tensor) -> Tensor:
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = F.hardswish(norm(convolution(x)))
        return x.mean((2, 3))


SHAPES = [(2, 3, 33, 65), (1, 3, 16, 16), (3, 3, 61, 17), (2, 3, 1, 1), (5, 3, 7, 130), (0, 3, 20, 20)]


@pytest.mark.parametrize(
    ("channels", "pointwise"),
    [
        ((24, 40, 88, 56), 1),  # the last stage's mean is in a kernel of its own
        ((24, 32, 40, 64, 32), 2),  # 16 divides two of them: addresses that are known to be aligned are no less so
    ],
)
def test_stages_share_their_kernel(channels: tuple[int, ...], pointwise: int) -> None:
    model = Stages(channels)
    with torch.no_grad():
        options = {"disable_passes": ["pack-convolutions"]}  # the norms are kernels
        torch._dynamo.reset()
        (graph,) = symshape.explain(model, torch.randn(*SHAPES[0]), options=options).graphs
        compiled = symshape.compile(model, fullgraph=True, options=options)
        for shape in SHAPES:
            x = torch.randn(*shape)
            torch.testing.assert_close(compiled(x), model(x), equal_nan=True)
    assert Counter(kernel.kind for kernel in graph.kernels) == {"pointwise": pointwise, "reduction": 1}


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_training(layout: torch.memory_format) -> None:
    torch.manual_seed(0)
    model = Stages((24, 40, 96), training=True).to(memory_format=layout)
    compiled = symshape.compile(model, fullgraph=True)
    for shape in ((2, 3, 33, 65), (4, 3, 16, 24), (3, 3, 61, 17)):
        x = torch.randn(*shape).to(memory_format=layout)
        state = {name: value.clone() for name, value in model.state_dict().items()}
        found = torch.autograd.grad(compiled(x).square().sum(), list(model.parameters()))
        model.load_state_dict(state)
        expected = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def test_a_number_beside_an_equal_one_of_another_meaning() -> None:
    """Columns are as many as channels in one loop, and a sum is over as many elements in another."""

    def run(x: Tensor, y: Tensor, z: Tensor) -> list[Tensor]:
        return [t.exp() * t.shape[1] for t in (x, y, z)]

    compiled = symshape.compile(run, fullgraph=True)
    for n, m in ((3, 5), (1, 48), (48, 32), (2, 1)):
        inputs = [torch.randn(n, c, m) for c in (32, 48, 96)]
        for a, b in zip(compiled(*inputs), run(*inputs), strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (Expr.const(48), C),
        (96 * S0, 2 * C * S0),
        (48 * (S0 // 2) * S1 + 7, C * (S0 // 2) * S1 + 7),
        (47 * S0, 47 * S0),
        (S0 % 48, S0 % 48),  # the remainder's divisor stays a number
        (S0 + S1, S0 + S1),
    ],
    ids=str,
)
def test_inside(expr: Expr, expected: Expr) -> None:
    sizes = KernelSizes((S0, S1, Expr.const(48)), {48: C})
    assert sizes.inside(expr) == expected
    values = {"s0": 11, "s1": 5}
    assert sizes.inside(expr).evaluate(values | {"size_48": 48}) == expr.evaluate(values)
