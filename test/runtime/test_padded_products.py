"""Products on padded copies: the values of PyTorch's own, for any layout, at any size. On CPU tensors, with the rule
for a GPU."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape
from symshape.runtime import program as programs
from symshape.runtime.triton import padded_products
from symshape.runtime.triton.padded_products import PadRule, cuda_products, rule_of

LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rows": lambda x: x.contiguous(),
    "columns": lambda x: x.mT.contiguous().mT,
    "wider rows": lambda x: torch.cat([x, x[..., :1]], -1)[..., : x.shape[-1]],
    "every second column": lambda x: x.repeat_interleave(2, -1)[..., ::2],
    "expanded": lambda x: x[..., :1, :].expand(x.shape),
}
SIZES = [
    (7, 33, 65),
    (8, 9, 16),
    (5, 16, 9),
    (9, 8, 8),
    (1, 17, 1),
    (17, 1, 3),
    (24, 16, 32),
    (0, 9, 9),
    (9, 0, 9),
    (9, 9, 0),
]


class Padding(PadRule):
    """Whatever it costs, and how often: each product that is not empty is asked for twice where it could be padded."""

    def pays(self, operations: int, size: int, launches: int) -> bool:
        return operations > 0


PADDED, PLAIN = (
    cuda_products(lambda _device: Padding()),
    {"mm": torch.mm, "bmm": torch.bmm, "addmm": torch.addmm, "baddbmm": torch.baddbmm},
)


def exact(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """The product, and how far a sum of rounded products may be from it."""
    product = a.double() @ b.double()
    bound = (a.double().abs() @ b.double().abs()) * torch.finfo(dtype).eps * 2 + torch.finfo(dtype).tiny
    return product, bound


def check(name: str, *operands: torch.Tensor, **scales: Any) -> torch.Tensor:
    found, wanted = PADDED[f"aten.{name}.default"](*operands, **scales), PLAIN[name](*operands, **scales)
    assert (found.dtype, found.shape, found.stride()) == (wanted.dtype, wanted.shape, wanted.stride())
    assert found.storage_offset() == 0 and found._base is None
    *added, a, b = operands
    product, bound = exact(a, b, found.dtype)
    alpha, beta = scales.get("alpha", 1), scales.get("beta", 1)
    expected = product * alpha + (added[0].double() * beta if added and beta else 0)
    bound = bound * abs(alpha) + expected.abs() * torch.finfo(found.dtype).eps
    assert bool(((found.double() - expected).abs() <= bound).all())
    return found


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("m", "k", "n"), SIZES)
def test_any_layout(m: int, k: int, n: int, dtype: torch.dtype) -> None:
    a, b = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype)
    for left, right in itertools.product(LAYOUTS.values(), repeat=2):
        x, y = left(a), right(b)
        check("mm", x, y)
        batch = left(torch.stack([a, -a, a + 1])), right(torch.stack([b, b, b - 1]))
        check("bmm", *batch)
        for c in (torch.randn(n), torch.randn(1, n), torch.randn(m, 1), torch.randn(m, n), torch.randn(n, m).t()):
            check("addmm", c.to(dtype), x, y, beta=0.5, alpha=2)
        for c in (torch.randn(n), torch.randn(3, 1, n), torch.randn(1, m, n), torch.randn(3, m, n)):
            check("baddbmm", c.to(dtype), *batch)


def test_padding_meets_no_infinity() -> None:
    a, b = torch.randn(7, 9).half(), torch.randn(9, 5).half()
    a[0, 8], a[1, 3], b[2, 1], b[8, 4] = float("inf"), float("nan"), float("-inf"), float("nan")
    for x, y in itertools.product((a, a.t().contiguous().t()), (b, b.t().contiguous().t())):
        found, wanted = PADDED["aten.mm.default"](x, y), torch.mm(x, y)
        for kind in (torch.isnan, torch.isposinf, torch.isneginf):
            assert torch.equal(kind(found), kind(wanted))
        nothing = torch.full((5,), float("nan")).half()
        scaled = PADDED["aten.addmm.default"](nothing, x, y, beta=0)
        assert torch.equal(torch.isnan(scaled), torch.isnan(torch.addmm(nothing, x, y, beta=0)))


def noted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of the copies that are made."""
    copies: list[tuple[int, ...]] = []
    copy = padded_products._copy

    def counted(x: torch.Tensor, sizes: tuple[int, int], summed: int) -> torch.Tensor:
        made = copy(x, sizes, summed)
        if made is not x:
            copies.append(tuple(made.shape))
        return made

    monkeypatch.setattr(padded_products, "_copy", counted)
    return copies


def test_what_is_aligned_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    copies = noted(monkeypatch)

    def copied(a: torch.Tensor, b: torch.Tensor) -> list[tuple[int, ...]]:
        copies.clear()
        check("mm", a.half(), b.half())
        return list(copies)

    assert copied(torch.randn(7, 16), torch.randn(16, 8)) == []
    assert copied(torch.randn(9, 16).t(), torch.randn(9, 8)) == []  # the gradient of a weight: rows in any number
    assert copied(torch.randn(7, 9), torch.randn(9, 8)) == [(7, 16), (16, 8)]
    assert copied(torch.randn(7, 16), torch.randn(16, 9)) == [(16, 16)]
    assert copied(torch.randn(7, 16), torch.randn(9, 16).t()) == [(16, 16)]
    assert copied(torch.randn(7, 17).half()[:, :16], torch.randn(16, 8)) == [(7, 16)]
    assert copied(torch.randn(16, 9).t(), torch.randn(16, 8)) == [(16, 16)]


def test_small_products_and_other_types_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    copies, own = noted(monkeypatch), cuda_products(lambda _device: PadRule())
    for size in (1, 33, 129, 257):
        a, b = torch.randn(size, size), torch.randn(size, size)
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            own["aten.mm.default"](a.to(dtype), b.to(dtype))
            own["aten.addmm.default"](b[0].to(dtype), a.to(dtype), b.to(dtype))
    PADDED["aten.mm.default"](torch.randn(9, 9), torch.randn(9, 9))
    assert copies == []


def test_a_compiled_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward and backward at odd sizes; results have the strides that the program promises."""
    copies = noted(monkeypatch)
    monkeypatch.setattr(programs, "_products", lambda _device, pad: PADDED if pad else {})
    for pads in (True, False):
        model = torch.nn.Sequential(torch.nn.Linear(9, 17), torch.nn.Tanh(), torch.nn.Linear(17, 5)).bfloat16()
        run = symshape.compile(model, target="triton", cache=False, pad_products=pads)
        for rows in (3, 1, 0, 8):
            x = torch.randn(rows, 9).bfloat16()
            found, wanted = run(x), model(x)
            assert found.stride() == wanted.stride()
            torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)
            gradients = [torch.autograd.grad(y.sum(), list(model.parameters())) for y in (found, wanted)]
            torch.testing.assert_close(*gradients, rtol=5e-2, atol=5e-2)
        assert bool(copies) == pads
        copies.clear()


def sizes(m: int, k: int, n: int) -> Any:
    x = torch.empty(m, k, dtype=torch.bfloat16, device="meta"), torch.empty(k, n, dtype=torch.bfloat16, device="meta")
    return padded_products.padded_sizes(*x, PadRule())


def test_the_rule() -> None:
    """By sizes alone: many operations for each byte that is copied."""
    assert sizes(8191, 8191, 8191) == (8191, 8192, 8192)
    assert sizes(16384, 4095, 16384) == (16384, 4096, 16384)
    assert sizes(1023, 1023, 1023) is sizes(64, 50257, 768) is sizes(8191, 8191, 9) is sizes(8192, 8192, 8192) is None
    assert sizes(0, 9, 9) is None


@pytest.mark.parametrize(
    ("capability", "pads"), [((7, 0), False), ((8, 0), True), ((8, 9), True), ((9, 0), True), ((10, 0), False)]
)
def test_gpus_that_pad(capability: tuple[int, int], pads: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: capability)
    rule_of.cache_clear()
    assert (rule_of(torch.device("cuda:0")) is not None) == pads
    rule_of.cache_clear()
    assert programs._products("cuda:0", True).keys() == PADDED.keys() and not programs._products("cuda:0", False)
