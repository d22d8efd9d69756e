"""The runner's own parts."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("expecttest")

from cases import alone, cases
from check import call
from differences import value_difference
from draws import Errors
from variants import variants


def test_complex_results_in_float64() -> None:
    """What ``out=`` of torch.complex is given is widened with the operands."""
    found = cases(variants()["op/complex"], torch.float16, most=1)
    parts = [part for case in found for part in (alone(case) if case.parts else [case])]
    assert [part.parts for part in parts] == [(), ("no_grad",), ("out=",)]
    for part in parts:
        assert part.wide is not None
        (wide,), (result,) = (
            [one] if isinstance(one, torch.Tensor) else one
            for one in (call(which, part.function, 0).result for which in (part.wide, part))
        )
        assert (result.dtype, wide.dtype) == (torch.complex32, torch.complex128)
        assert torch.equal(wide.to(torch.complex64), result.to(torch.complex64))


@pytest.mark.parametrize("part", [0, 1])
def test_complex_halves_are_judged_as_halves(part: int) -> None:
    exact = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
    off = exact.clone()
    off[1, part] += 2**-8  # two halves further, but near for a complex number without float64 ones to compare with
    right, wrong = (torch.view_as_complex(one.half()) for one in (exact, off))
    assert value_difference(right, right, torch.view_as_complex(exact)) == ""
    assert "error 0.0039" in value_difference(wrong, right, torch.view_as_complex(exact))
    assert "error 0.0039" in value_difference(wrong.conj(), right.conj(), torch.view_as_complex(exact).conj())


def test_draws_judge_what_eager_overflows_in() -> None:
    """Elements apart: one that eager mode overflows in does not hide the others, whatever its size is."""
    exact = torch.tensor([1.0, 2.0, 1e6], dtype=torch.float64)
    inf, nan = torch.inf, torch.nan

    def judged(*values: float, eager: float = nan) -> str:
        errors, theirs = Errors(), torch.tensor([1.0, 2.0, eager], dtype=torch.float16)
        return errors.add(torch.tensor(values, dtype=torch.float16), theirs, exact) or errors.too_large()

    assert judged(1.0, 2.0, inf) == judged(1.0, 2.0, nan) == judged(1.0, 2.0, -inf) == ""
    assert "relative error" in judged(1.0, 2.5, inf)
    assert "relative error" in judged(1.0, 2.0, 3.0)
    assert "infinity" in judged(1.0, 2.0, -inf, eager=inf)
    assert "infinity" in judged(1.0, inf, inf)
    exact = torch.tensor([1.0001, 2.0, -60_000.0], dtype=torch.float64)  # eager's error of the first is not 0
    assert judged(1.0, 2.0, -60_000.0) == ""
    assert "relative error" in judged(1.0, 2.1, -60_000.0)
    assert "relative error" in judged(1.0, 2.0, -58_000.0)
