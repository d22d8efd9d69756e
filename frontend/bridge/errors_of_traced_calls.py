"""Finds eager mode's error for a call that fails while it is traced.

A tracing rule names symbols, often in words of its own ("a and b must have same reduction dim, but got [s77, s27] X
[4, 2]"). The call is run on tensors of the sizes of this call: what that raises has eager mode's type and words.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree

from symshape.frontend.bridge.fake_tensors import is_wrapped
from symshape.frontend.bridge.running_operators import without_modes
from symshape.frontend.bridge.symbolic_sizes import first_seen_sizes, number_at, size_at
from symshape.frontend.bridge.tracing_errors import RefusedCall

_MOST_ELEMENTS = 1 << 22
# What tracing rules raise for a user's mistake. Errors of other types say that something cannot be traced.
_MISTAKES = (RuntimeError, ValueError, IndexError, TypeError, AssertionError, ZeroDivisionError, OverflowError)
_NOT_RUN = ("torch.autograd.", "torch.distributed.", "torch.func.", "torch._functorch.", "torch._higher_order_ops.")
_HOMES = ("torch", "_operator", "math")
_OF_NUMBERS = ("_operator", "math")
_OF_GRADIENTS = frozenset({"backward", "requires_grad_", "retain_grad", "register_hook", "grad"})


def eager_error_of(error: BaseException, called: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What eager mode raises for a call whose trace has raised ``error``. ``called``: a function of PyTorch's or of
    Python's numbers, or the name of a tensor's method. None where eager mode raises nothing, or the call is not run: it
    is no such function, or its values decide."""
    if not (type(error) in _MISTAKES or isinstance(error, RefusedCall)) or not _may_be_run(called):
        return None
    leaves, spec = pytree.tree_flatten((list(args), dict(kwargs)))
    with without_modes(), torch.no_grad(), torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the trace has given them
        real = _at_hints(leaves, _home(called) in _OF_NUMBERS)
        if real is None:
            return None
        operands, options = pytree.tree_unflatten(real, spec)
        function: Any = getattr(operands[0], called, None) if isinstance(called, str) else called
        try:
            function(*(operands[1:] if isinstance(called, str) else operands), **options)
        except torch.linalg.LinAlgError:
            return None  # of the made-up elements
        except _MISTAKES as found:
            return found.with_traceback(None) if type(found) in _MISTAKES else None
    return None


def _may_be_run(called: Any) -> bool:
    if isinstance(called, torch._ops.HigherOrderOperator):
        return False
    if isinstance(called, torch._ops.OpOverload):
        return called.namespace in ("aten", "prims")
    name, home = (called, "torch") if isinstance(called, str) else (getattr(called, "__name__", ""), _home(called))
    return name not in _OF_GRADIENTS and home.partition(".")[0] in _HOMES and not f"{home}.".startswith(_NOT_RUN)


def _home(function: Any) -> str:
    return str(getattr(function, "__module__", None) or "torch")  # functions written in C++ have none


def _at_hints(leaves: Sequence[Any], numbers_only: bool) -> list[Any] | None:
    """Leaves as they are at this call, tensors with made-up elements; None where that is not known, or too large, or
    where there is no tensor, unless there may be ``numbers_only``."""
    tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
    if not (tensors or numbers_only) or any(x.layout != torch.strided or x.is_nested or is_wrapped(x) for x in tensors):
        return None
    sizes = [x for x in leaves if isinstance(x, torch.SymInt | torch.SymFloat)]
    known, unknown = first_seen_sizes([*sizes, *(s for x in tensors for s in (*x.shape, *x.stride()))])
    others = any(isinstance(x, torch.SymBool) for x in leaves)
    if unknown or others or sum(math.prod(size_at(s, known) for s in x.shape) for x in tensors) > _MOST_ELEMENTS:
        return None
    device = "cpu" if all(x.device.type == "cpu" for x in tensors) else "meta"

    def real(x: Any) -> Any:
        if isinstance(x, torch.SymInt):
            return size_at(x, known)
        if isinstance(x, torch.SymFloat):
            return number_at(x, known)
        return _made(x, known, device) if isinstance(x, torch.Tensor) else x

    return [real(x) for x in leaves]


def _made(x: torch.Tensor, known: Mapping[Any, int], device: str) -> torch.Tensor:
    """Ones, which are probabilities and divisors, or of integers zeros, which are indices."""
    shape, strides = ([size_at(s, known) for s in given] for given in (x.shape, x.stride()))
    extent = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides)) if all(shape) else 0
    fill: Callable[..., torch.Tensor] = torch.ones if x.is_floating_point() else torch.zeros
    return fill(extent, dtype=x.dtype, device=device).as_strided(shape, strides)
