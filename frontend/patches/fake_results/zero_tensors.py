"""Zero tangents of symbolic sizes.

Forward-mode differentiation represents a missing tangent as a tensor without memory, with a dispatch key of its own.
The C++ kernels for that key read sizes as numbers, so that each size would become constant, already for ``x - 1``. Here
are the same kernels in Python. As in eager mode, such a zero times infinity is zero, and adding it changes nothing.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._ops import OpOverload, get_cached_ops

from symshape.frontend.patches.patch import Changes

aten: Any = torch.ops.aten
_KEY = torch._C.DispatchKey.ZeroTensor


def zeros_of_any_size(changes: Changes) -> None:
    """Makes tracing find these kernels instead of the ones in C++."""
    changes.callback(_forget)
    changes.wrap(OpOverload, "_get_dispatch", _with_rules)
    _forget()


def _forget() -> None:
    """Removes cached kernels, so that they are looked up again."""
    for op in get_cached_ops():
        op._dispatch_cache.pop(_KEY, None)


def _with_rules(original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    @functools.wraps(original)
    def _get_dispatch(self: Any, key: Any) -> Any:
        return _rule_of(self) or original(self, key) if key == _KEY else original(self, key)

    return _get_dispatch


def _rule_of(op: Any) -> Callable[..., Any] | None:
    """The kernel of an operator for zero tensors; None if PyTorch's is correct: views and fallthroughs."""
    if op in _RULES:
        return functools.partial(_RULES[op], op)
    hands_on = op.is_view or torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), _KEY)
    return None if hands_on else functools.partial(_with_memory, op)


def _is_zero(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x._is_zerotensor()


def _dense(x: Any) -> Any:
    return aten.zeros([], dtype=x.dtype, device=x.device).expand(x.size()) if _is_zero(x) else x


def _with_memory(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Calls an operator with zeros in memory. RuntimeError if it would write to one."""
    written = [x for x, argument in zip(args, op._schema.arguments) if argument.is_write]
    if any(map(_is_zero, pytree.tree_leaves((written, kwargs.get("out"))))):
        raise RuntimeError(f"{op}: a tangent that is zero everywhere has no memory to write to: call clone() first")
    return op(*pytree.tree_map(_dense, args), **pytree.tree_map(_dense, kwargs))


def _result(op: Any, *operands: Any, **kwargs: Any) -> torch.Tensor:
    """A tensor with the result's size, type and device; its elements are not used."""
    found: torch.Tensor = op(*map(_dense, operands), **kwargs)
    return found


def _zeros_like(x: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = aten._efficientzerotensor(x.size(), dtype=x.dtype, device=x.device)
    return found


def _sum(op: Any, x: torch.Tensor, y: torch.Tensor, *, alpha: Any = 1) -> torch.Tensor:
    """The sum or difference of two tensors, at least one of them zero: the other one, negated for ``sub`` from zero."""
    like = _result(op, x, y)
    if _is_zero(x) and _is_zero(y):
        return _zeros_like(like)
    copy = aten._to_copy((y if _is_zero(x) else x).expand(like.size()), dtype=like.dtype, device=like.device)
    factor = -alpha if op is aten.sub.Tensor else alpha
    return copy if not _is_zero(x) or factor == 1 else copy.mul(factor)


def _product(op: Any, x: torch.Tensor, y: torch.Tensor, **kwargs: Any) -> torch.Tensor:
    return _zeros_like(_result(op, x, y, **kwargs))


def _quotient(op: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    like = _result(op, x, y)
    if not _is_zero(y):
        return _zeros_like(like)
    return torch.full(like.size(), math.nan if _is_zero(x) else math.inf, dtype=like.dtype, device=like.device)


def _view(op: Any, x: torch.Tensor, size: Any, *args: Any) -> torch.Tensor:
    """A view of a zero tensor. PyTorch's own view of a traced zero is not traced."""
    found: torch.Tensor = aten._efficientzerotensor(_dense(x).view(size).size(), dtype=x.dtype, device=x.device)
    return found


_RULES: dict[Any, Callable[..., torch.Tensor]] = {
    aten.add.Tensor: _sum,
    aten.sub.Tensor: _sum,
    aten.mul.Tensor: _product,
    aten.div.Tensor: _quotient,
    aten.linalg_cross.default: _product,
    aten.view.default: _view,
    aten._reshape_alias.default: _view,
}
