"""Products of matrices by oneDNN: the values of torch.mm and torch.addmm for any layout, at any size."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from symshape.runtime.cpu import matrix_products

LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rows": lambda x: x,
    "columns": lambda x: x.t().contiguous().t(),
    "wider rows": lambda x: torch.cat([x, x], 1)[:, : x.shape[1]],
    "taller columns": lambda x: torch.cat([x, x]).t().contiguous().t()[: x.shape[0]],
    "every second row": lambda x: x.repeat_interleave(2, 0)[::2],
    "every second column": lambda x: x.repeat_interleave(2, 1)[:, ::2],
    "one row": lambda x: x[:1].expand_as(x),
    "negative": lambda x: torch.complex(-x, -x).conj().imag,
}
SIZES = (64, 300, 257), (3, 1500, 1501), (1, 2048, 2049), (2100, 2000, 1), (1500, 1, 3000), (0, 2048, 2048), (8, 0, 8)


@dataclass
class Exact:
    """A product in float64, and the same of absolute values: computed where a result has not the bits of eager mode."""

    a: torch.Tensor
    b: torch.Tensor

    @functools.cached_property
    def product(self) -> torch.Tensor:
        return self.a.double() @ self.b.double()

    @functools.cached_property
    def weight(self) -> torch.Tensor:
        return self.a.double().abs() @ self.b.double().abs()

    def check(self, actual: torch.Tensor, eager: torch.Tensor, c: torch.Tensor, scale: float = 1.0) -> None:
        """``actual`` is ``c + scale * a @ b``: as eager mode computes it, or to the probable error of a sum of rounded
        products (Higham and Mary, 2019)."""
        assert (actual.dtype, actual.stride()) == (eager.dtype, eager.stride())
        if torch.equal(actual, eager):
            return
        c = c.double()
        error = (actual.double() - (c + scale * self.product)).abs()
        bound = 5 * (self.a.shape[1] + 1) ** 0.5 * 2**-24
        assert bool((error <= bound * (c.abs() + abs(scale) * self.weight)).all())


@functools.cache
def _operands(m: int, k: int, n: int) -> tuple[torch.Tensor, ...]:
    """Both factors, contiguous, and what may be added to their product."""
    generator = torch.Generator().manual_seed(0)
    shapes = (m, k), (k, n), (n,), (2 * n,), (1,), (m, 1), (m, n)
    return tuple(torch.randn(shape, generator=generator) for shape in shapes)


@pytest.mark.parametrize("left", LAYOUTS)
@pytest.mark.parametrize("right", LAYOUTS)
def test_products_of_all_layouts(left: str, right: str) -> None:
    for sizes in SIZES:
        a, b, row, wide_row, *more = _operands(*sizes)
        a, b = LAYOUTS[left](a), LAYOUTS[right](b)
        exact = Exact(a, b)
        exact.check(matrix_products.mm(a, b), torch.mm(a, b), torch.zeros(()))
        for c in (row, wide_row[::2], *more):
            exact.check(matrix_products.addmm(c, a, b), torch.addmm(c, a, b), c)
        scaled, eager = (addmm(row, a, b, beta=2, alpha=-0.5) for addmm in (matrix_products.addmm, torch.addmm))
        exact.check(scaled, eager, 2 * row, -0.5)


def test_other_types_and_a_switched_off_library() -> None:
    a = torch.randint(0, 9, (200, 200))
    assert torch.equal(matrix_products.mm(a, a), a @ a)
    assert torch.equal(matrix_products.mm(a.double(), a.double()), a.double() @ a.double())
    with torch.backends.mkldnn.flags(enabled=False):
        assert torch.equal(matrix_products.mm(a.float(), a.float()), a.float() @ a.float())


def test_processors_that_mkl_has_code_for_keep_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def on(name: str, features: dict[str, bool]) -> dict[str, Any]:
        monkeypatch.setattr(matrix_products.llvm, "get_host_cpu_name", lambda: name)
        monkeypatch.setattr(matrix_products.llvm, "get_host_cpu_features", lambda: features)
        return matrix_products.cpu_products()

    assert on("sapphirerapids", {"avx512f": True}) == {} == on("znver3", {"avx512f": False}) == on("apple-m1", {})
    if torch._C.has_mkl and torch._C._has_mkldnn:
        assert set(on("znver4", {"avx512f": True})) == {"aten.mm.default", "aten.addmm.default"}
