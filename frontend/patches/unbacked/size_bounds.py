"""Corrects bounds of sizes in the tracer, and its handling of sizes that may be 0."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from typing import Any

import sympy
from torch._library.fake_impl import FakeImplCtx
from torch.fx.experimental import symbolic_shapes

from symshape.frontend.patches.patch import Changes

_UNBOUNDED = sys.maxsize - 1  # the bound for which PyTorch inserts no assertion


def bounds_allow_one(changes: Changes) -> None:
    """Raises the bound of a new size from 0 or 1 to 2. Otherwise it could not replace an equal size whose assumed
    minimum is 2."""
    changes.wrap(symbolic_shapes.ShapeEnv, "_constrain_range_for_size", _at_most_two)


def _at_most_two(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def bound(self: Any, a: Any, min: int | None = None, max: int | None = None) -> Any:
        return original(self, a, min, max if max is None or max >= 2 else 2)

    return bound


def bounds_fit(changes: Changes) -> None:
    """Limits bounds to 64 bits. The sizes of a mask may be unbacked with bounds of 2**63 - 2; the product, which bounds
    the number of selected elements, then overflowed, and was asserted."""
    changes.wrap(symbolic_shapes.ShapeEnv, "_constrain_range_for_size", _at_most_unbounded)


def _at_most_unbounded(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def bound(self: Any, a: Any, min: int | None = None, max: int | None = None) -> Any:
        return original(self, a, min, max if max is None or max < _UNBOUNDED else _UNBOUNDED)

    return bound


def new_sizes_start_at_zero(changes: Changes) -> None:
    """Gives sizes from the deprecated method a minimum of 0. It defaults to 2, so that an operator that returns fewer
    rows (``torchvision.ops.nms`` of one box) violated the graph's assumptions."""
    changes.wrap(FakeImplCtx, "create_unbacked_symint", _from_zero)


def _from_zero(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def create_unbacked_symint(self: Any, *, min: int = 0, max: int | None = None) -> Any:
        message: Any = vars(original).get("__deprecated__")  # warn at the line of the rule, not at this one
        if message is not None:
            warnings.warn(message, FutureWarning, stacklevel=2)
        return self.new_dynamic_size(min=min, max=max)

    return create_unbacked_symint


def zero_factors_are_kept(changes: Changes) -> None:
    """Does not divide equations by factors that may be 0: ``a * b == c * b`` implies ``a == c`` only if b is not 0."""
    changes.wrap(symbolic_shapes, "try_solve", _unless_zero)


def _unless_zero(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def try_solve(relation: Any, symbol: Any, *args: Any, **kwargs: Any) -> Any:
        return None if _divides_by_zero(relation, symbol) else original(relation, symbol, *args, **kwargs)

    return try_solve


def _divides_by_zero(relation: Any, symbol: Any) -> bool:
    """Whether an equation has a term in which the symbol is multiplied by a factor that may be 0."""
    terms = [term for side in relation.args for term in sympy.Add.make_args(side) if term.has(symbol)]
    factors = [factor for term in terms for factor in sympy.Mul.make_args(term) if not factor.has(symbol)]
    return not all(factor.is_nonzero for factor in factors)
