"""Where tests marked ``gpu`` run: on a GPU, or through Triton's interpreter on CPU tensors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
import torch
import torch.utils._pytree as pytree

import symshape

if TYPE_CHECKING:  # it imports MLIR, which a program that is only loaded must not need
    from symshape.tools.report import Report

T = TypeVar("T")
Inputs = Sequence[Any]


@dataclass(frozen=True)
class Machine:
    """Where a test runs. ``device``: of its tensors, "cuda" or "cpu" (interpreted)."""

    device: str

    @property
    def is_gpu(self) -> bool:
        return self.device == "cuda"

    @property
    def options(self) -> dict[str, Any]:
        """Options of a compile that makes Triton kernels."""
        return {} if self.is_gpu else {"target": "triton"}

    def compile(self, fn: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        """``symshape.compile`` with kernels of Triton's."""
        return symshape.compile(fn, **self.options, **options)

    def put(self, tree: T) -> T:
        """Copies of tensors on the device, with the same strides and offsets; leaves for autograd stay leaves."""
        return pytree.tree_map_only(torch.Tensor, self._moved, tree)

    def _moved(self, x: torch.Tensor) -> torch.Tensor:
        room = x.untyped_storage().nbytes() // x.itemsize
        memory = torch.as_strided(x.detach(), (room,), (1,), 0).to(self.device, copy=True)
        return memory.as_strided(x.shape, x.stride(), x.storage_offset()).requires_grad_(x.requires_grad)

    def pick(self, interpreted: T, on_a_gpu: T) -> T:
        """The first size where kernels are interpreted, since each element takes microseconds; else the second."""
        return on_a_gpu if self.is_gpu else interpreted

    def only_on_a_gpu(self, why: str) -> None:
        """Skips the test where kernels are interpreted."""
        if not self.is_gpu:
            pytest.skip(f"needs a GPU: {why}")

    def check(
        self,
        fn: Callable[..., Any],
        cases: Sequence[Inputs],
        *,
        launches: int | None = None,
        graphs: int = 1,
        **tolerance: float,
    ) -> Report:
        """One graph serves all cases (or ``graphs``), and each equals eager mode on the device: values, types, strides.

        ``launches``: how many kernels a call launches; by default one or more, and no library calls.
        """
        torch._dynamo.reset()
        report: Report | None = None
        for inputs in cases:
            own, other = self.put(inputs), self.put(inputs)  # of a function that writes to what it is given
            if report is None:
                report = symshape.explain(fn, *own, options=self.options)
            else:
                report.run(*own)
            same(report.result, fn(*other), **tolerance)
            same(own, other, **tolerance)
        assert report is not None
        totals = report.totals()
        assert totals["graphs"] == graphs, report
        if launches is None:
            assert totals["launches"] and not totals["library_calls"], report
        else:
            assert totals["launches"] == launches, report
        return report


def same(actual: Any, expected: Any, **tolerance: float) -> None:
    """Nested tensors are equal, with equal strides, and NaN equals NaN; ``rtol`` and ``atol`` as for
    `torch.testing.assert_close`."""
    if tolerance:
        tolerance = {"rtol": 0.0, "atol": 0.0} | tolerance
    for a, b in zip(pytree.tree_leaves(actual), pytree.tree_leaves(expected), strict=True):
        torch.testing.assert_close(a, b, equal_nan=True, **tolerance)
        if isinstance(a, torch.Tensor):
            assert _steps(a) == _steps(b)


def _steps(x: torch.Tensor) -> list[int]:
    """The strides that matter: of dims along which there is more than one element."""
    return [stride for size, stride in zip(x.shape, x.stride()) if size > 1] if x.numel() else []


def cases_of(names: Iterable[str], long: Iterable[str]) -> list[Any]:
    """Names as parameters of a test; those of ``long`` are marked so: interpreted, each takes half a second."""
    marked, names = frozenset(long), list(names)
    assert marked <= set(names), marked - set(names)
    return [pytest.param(name, marks=pytest.mark.long if name in marked else ()) for name in names]


def machine_here() -> Machine:
    """The machine for this process: its GPU, unless there is none or Triton was imported to interpret."""
    interpreted = os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "yes")
    return Machine("cuda" if torch.cuda.is_available() and not interpreted else "cpu")
