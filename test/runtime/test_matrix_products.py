"""Products of matrices by oneDNN: the values of torch.mm and torch.addmm for any layout, at any size."""

from __future__ import annotations

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
SIZES = (64, 300, 257), (3, 1500, 1501), (1, 2048, 2049), (2100, 2000, 1), (1500, 1, 3000), (0, 4096, 4096), (8, 0, 8)


@dataclass
class Exact:
    """``a @ b`` in float64, and the same of absolute values."""

    product: torch.Tensor
    weight: torch.Tensor
    points: int  # of a sum

    @classmethod
    def of(cls, a: torch.Tensor, b: torch.Tensor) -> Exact:
        a, b = a.double(), b.double()
        return cls(a @ b, a.abs() @ b.abs(), a.shape[1])

    def check(self, actual: torch.Tensor, like: torch.Tensor, c: torch.Tensor, scale: float = 1.0) -> None:
        """``actual`` is ``c + scale * a @ b``, to the probable error of a sum of rounded products (Higham and Mary,
        2019)."""
        assert (actual.dtype, actual.stride()) == (like.dtype, like.stride())
        c = c.double()
        error = (actual.double() - (c + scale * self.product)).abs()
        bound = 5 * (self.points + 1) ** 0.5 * 2**-24
        assert bool((error <= bound * (c.abs() + abs(scale) * self.weight)).all())


@pytest.mark.parametrize("left", LAYOUTS)
@pytest.mark.parametrize("right", LAYOUTS)
def test_products_of_all_layouts(left: str, right: str) -> None:
    generator = torch.Generator().manual_seed(0)
    for m, k, n in SIZES:
        a = LAYOUTS[left](torch.randn(m, k, generator=generator))
        b = LAYOUTS[right](torch.randn(k, n, generator=generator))
        exact = Exact.of(a, b)
        exact.check(matrix_products.mm(a, b), torch.mm(a, b), torch.zeros(()))
        for c in (torch.randn(n), torch.randn(2 * n)[::2], torch.randn(1), torch.randn(m, 1), torch.randn(m, n)):
            exact.check(matrix_products.addmm(c, a, b), torch.addmm(c, a, b), c)
        c = torch.randn(n)
        scaled = matrix_products.addmm(c, a, b, beta=2, alpha=-0.5)
        exact.check(scaled, torch.addmm(c, a, b), 2 * c, -0.5)


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
