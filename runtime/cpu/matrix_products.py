"""Chooses the library for float32 matrix products on CPUs: MKL, or oneDNN where that is faster.

MKL has AVX-512 code for Intel's processors only; on others it runs generic code. oneDNN selects code by the processor's
features. The choice depends on the processor and on the sizes of a call, never on a measurement: results are bitwise
the same in every run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import torch

from symshape.runtime.torch_c import has_both_libraries, onednn_is_enabled

# Fewer multiplications take longer in oneDNN: it makes a description of each call.
_LEAST = 1 << 22


def cpu_products() -> dict[str, Callable[..., torch.Tensor]]:
    """Replacements for ``aten.mm`` and ``aten.addmm`` on this processor: target -> callable."""
    of_amd = llvm.get_host_cpu_name().startswith("znver") and llvm.get_host_cpu_features().get("avx512f", False)
    if not (of_amd and has_both_libraries()):
        return {}
    return {"aten.mm.default": mm, "aten.addmm.default": addmm}


def mm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """``torch.mm``: (m, k) and (k, n) to (m, n), contiguous."""
    product: torch.Tensor = _linear(a, b.t(), None, "none", [], "") if _is_for_onednn(a, b) else torch.mm(a, b)
    return product


def addmm(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: Any = 1, alpha: Any = 1) -> torch.Tensor:
    """``torch.addmm``: ``beta * c + alpha * a @ b``; (n,) or what else (m, n) broadcasts from, (m, k) and (k, n)."""
    if _is_for_onednn(a, b) and c.dim() == 1 and c.stride(0) == 1 and beta == 1 and alpha == 1 and len(c) == b.size(1):
        product: torch.Tensor = _linear(a, b.t(), c, "none", [], "")
        return product
    return torch.addmm(c, a, b, beta=beta, alpha=alpha)


# What `torch.nn.Linear` is in graphs of Inductor (aten/src/ATen/native/mkldnn/Linear.cpp).
_linear: Any = torch.ops.mkldnn._linear_pointwise.default


def _is_for_onednn(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Large enough, of float32, and laid out so that oneDNN neither copies nor is slow: a transposed ``a``, as in the
    gradients of weights, takes up to twice MKL's time."""
    if a.numel() * b.size(1) < _LEAST or a.dtype != torch.float32 or not onednn_is_enabled():
        return False
    (k, n), (outer, inner), (rows, columns) = b.shape, a.stride(), b.stride()
    return (inner, outer) == (1, k) and (rows, columns) in ((n, 1), (1, k))
