"""A reader joins a kernel only if the kernel's points compute each of the reader's points once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import symshape
from symshape.passes.fusion.align import invert
from symshape.prover.numbers.expr import Expr
from symshape.prover.numbers.facts import Facts, Row

D0, D1, K0, K1, N, M = (Expr.symbol(name) for name in ("d0", "d1", "k0", "k1", "s0", "s1"))
FACTS = Facts({"s0": Row(0, None), "s1": Row(1, None)})


@pytest.mark.parametrize(
    ("access", "sizes", "placed", "placed_sizes", "expected"),
    [
        ([D0 // M, D0 % M], [N * M], [K0, K1], [N, M], [K0 * M + K1]),  # a member read flat
        ([8 * D0 + D1], [N, Expr.const(8)], [K0], [8 * N], [K0 // 8, K0 % 8]),
        ([D0 // 2], [N], [K0], [N], None),  # the first half of the member, each element twice
        ([D0 // 2, D0 % 2], [2 * N], [K0, K1], [N, Expr.const(2)], [2 * K0 + K1]),
        ([D0 // 2, D0 % 2], [2 * N], [K0, K1], [2 * N, Expr.const(1)], None),
        ([(D0 // 3) % N], [3 * N], [K0], [3 * N], None),
        ([D0 % M, D1], [M, N], [K0, K1], [M, N], [K0, K1]),
    ],
    ids=str,
)
def test_invert(
    access: list[Expr], sizes: list[Expr], placed: list[Expr], placed_sizes: list[Expr], expected: list[Expr] | None
) -> None:
    spaces = {f"k{i}": size for i, size in enumerate(placed_sizes)}
    assert invert(access, sizes, placed, placed_sizes, FACTS.with_dims(spaces)) == expected


def _repeated(x: Tensor, times: int) -> tuple[Tensor, Tensor]:
    m = x.sum(1)
    return m, m.repeat_interleave(times)[: x.shape[0]].exp()


def _gathered(x: Tensor, times: int) -> tuple[Tensor, ...]:
    n, m = x.shape[0], x.sum(1)
    return m, m[:, None].expand(n, times).reshape(-1)[:n].sin() + 1, m.repeat(times)[:n] * 2


def _upsampled(x: Tensor, times: int) -> tuple[Tensor, ...]:
    normal = (x - x.mean()) * x.var().rsqrt()
    wide = normal.repeat_interleave(times, 1)[:, : x.shape[1]].tanh()
    return normal, wide, normal.repeat_interleave(times, 0)[: x.shape[0]].relu()


@pytest.mark.sample(2)
@pytest.mark.parametrize("program", [_repeated, _gathered, _upsampled])
@pytest.mark.parametrize("times", [2, 3])
def test_elements_repeated_and_cut_to_their_number(program: Callable[..., tuple[Tensor, ...]], times: int) -> None:
    """They were computed with what they repeat: at every second place, to behind the end of the memory."""
    compiled = symshape.compile(program, fullgraph=True)
    for shape in ((200, 48), (201, 7), (2001, 48), (2, 2), (1, 1), (0, 4)):
        x = torch.randn(*shape, dtype=torch.float64, requires_grad=True)
        found, expected = compiled(x, times), program(x, times)
        torch.testing.assert_close(found, expected, equal_nan=True)
        if x.numel() > 1:
            grads = [torch.autograd.grad(sum(t.square().sum() for t in each), x)[0] for each in (found, expected)]
            torch.testing.assert_close(*grads, equal_nan=True)
