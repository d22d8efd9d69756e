"""Tests of symbolic sizes: without a guard where the shape environment knows the answer, else with one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch
import torch.utils._pytree as pytree

from symshape.frontend.bridge.general_shape_env import GeneralShapeEnv, is_general
from symshape.frontend.bridge.shape_env import symbol_hint
from symshape.runtime.torch_c import first_seen

_torch: Any = torch  # it has no types


def is_unbacked(size: int | torch.SymInt | torch.SymFloat) -> bool:
    """Whether a size is data-dependent."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return bool(free_unbacked_symbols(size))


def has_unbacked_sizes(tensor: torch.Tensor) -> bool:
    """Whether a size is data-dependent."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return bool(free_unbacked_symbols(tensor))


def hint_of(size: int | torch.SymInt) -> int | None:
    """The size at the call that is traced, without a guard; None if it is data-dependent."""
    if not isinstance(size, torch.SymInt):
        return size
    hint = size.node.hint
    return hint if isinstance(hint, int) else None


def known_multiple(a: Any, b: Any) -> bool:
    """Whether a size is known to be a multiple of another (except where that is 0)."""
    left, right = (x.node.expr if isinstance(x, torch.SymInt) else sympy.Integer(x) for x in (a, b))
    return right != 0 and bool(sympy.cancel(left / right).is_integer)


def guard_or_false(condition: Any) -> bool:
    """Whether a condition on sizes holds, with a guard; False if it is data-dependent."""
    from torch.fx.experimental import symbolic_shapes

    return condition if isinstance(condition, bool) else bool(symbolic_shapes.guard_or_false(condition))


def clamped_size(size: Any) -> Any:
    """``max(size, 0)`` of a size of a GeneralShapeEnv, without a guard; of what it is asked with a guard, its sign is
    too."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    if statically_known_true(size >= 0):
        return size
    found = _torch.sym_max(size, 0)
    if isinstance(found, torch.SymInt):
        found.node.shape_env.clamped.add(found.node.expr)
    return found


def holds_here(condition: Any) -> bool:
    """Whether a condition on sizes holds at the hints, with a guard on the outcome, also if it is false. False if it is
    data-dependent."""
    if isinstance(condition, bool):
        return condition
    return False if is_unbacked(condition) else bool(condition)


def number_here(size: Any) -> Any:
    """The number that a size is at this call, without a guard; None if it is data-dependent."""
    return first_seen(size) if isinstance(size, torch.SymInt) else size


def holds_for_sizes(comparison: Callable[[Any, Any], Any], left: Any, right: Any) -> bool:
    """Whether a comparison of sizes holds at the hints, with a guard; True if one is data-dependent."""
    sizes = (left, right)
    if all(type(size) in (int, float) for size in sizes):
        return bool(comparison(left, right))
    symbolic = [size for size in sizes if isinstance(size, torch.SymInt | torch.SymFloat)]
    are_ours = any(isinstance(size.node.shape_env, GeneralShapeEnv) for size in symbolic)
    if not are_ours or any(map(is_unbacked, symbolic)):
        return True
    return bool(comparison(left, right))


def expression_of(number: torch.SymInt | torch.SymFloat | torch.SymBool) -> Any:
    """The sympy expression of a symbolic number."""
    return number.node.expr


def known_not_one(size: Any) -> bool:
    """Whether a size is known not to be 1; nothing is assumed of a data-dependent one."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return size != 1 if type(size) is int else statically_known_true(size != 1)


def known_at_most_one(size: Any) -> bool:
    """Whether a size is known to be 0 or 1."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return size <= 1 if type(size) is int else statically_known_true(size <= 1)


def is_known_empty(tensor: torch.Tensor) -> bool:
    """Whether a tensor is known to have no elements. Of a size in a GeneralShapeEnv that is not assumed: there a graph
    serves 0 and other sizes."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    if has_unbacked_sizes(tensor) or any(map(is_general, tensor.shape)):
        return any(size == 0 if type(size) is int else statically_known_true(size == 0) for size in tensor.shape)
    return tensor.numel() == 0


def is_decided_against(condition: torch.SymBool) -> bool:
    """Whether a condition on sizes of inputs is known not to hold."""
    env, expr = condition.node.shape_env, condition.node.expr
    return isinstance(env, GeneralShapeEnv) and env.is_backed(expr) and env._maybe_evaluate_static(expr) == sympy.false


def seen_as_one(size: Any) -> bool:
    """Whether a size of an input was 1 at the first call and is not known to stay 1."""
    return is_general(size) and not is_unbacked(size) and first_seen(size) == 1


def known_equal(a: Any, b: Any) -> bool:
    """Whether two sizes are known to be equal."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return a is b or statically_known_true(a == b)


def assert_equal(a: Any, b: Any) -> bool:
    """The tracer takes one size for the other from now on; False if it cannot."""
    torch._check(a == b)  # type: ignore[no-untyped-call]
    return known_equal(a, b)


def either(*conditions: Any) -> Any:
    """A condition that holds if one of these conditions on sizes does; none is evaluated."""
    from torch.fx.experimental.symbolic_shapes import sym_or

    return sym_or(*conditions)


def size_at(size: Any, values: Mapping[Any, int]) -> int:
    """The value of a symbolic size for these values of its symbols."""
    if not isinstance(size, torch.SymInt):
        return int(size)
    return int(size.node.expr.xreplace({symbol: sympy.Integer(value) for symbol, value in values.items()}))


def number_at(number: torch.SymFloat, values: Mapping[Any, Any]) -> float:
    """The value of a symbolic float for these values of its symbols."""
    return float(number.node.expr.xreplace({symbol: sympy.sympify(value) for symbol, value in values.items()}))


def first_seen_sizes(sizes: Sequence[Any]) -> tuple[dict[Any, int], list[Any]]:
    """The symbols in some sizes: hints of backed ones, and the list of unbacked ones."""
    fixed: dict[Any, int] = {}
    unknown: dict[Any, None] = {}
    for size in sizes:
        symbolic = isinstance(size, torch.SymInt | torch.SymFloat)
        for symbol in sorted(size.node.expr.free_symbols, key=str) if symbolic else ():
            hint = symbol_hint(size.node.shape_env, symbol)
            if hint is None:
                unknown[symbol] = None
            else:
                fixed[symbol] = hint
    return fixed, list(unknown)


def new_unbacked_size(env: Any, error: Exception | None = None) -> Any:
    """A new unbacked size. If Dynamo's settings forbid them, raises ``error``: Dynamo breaks the graph there."""
    from torch.fx.experimental.symbolic_shapes import _constrain_range_for_size

    if error is not None and not env.allow_dynamic_output_shape_ops:
        raise error
    size = env.create_unbacked_symint()
    _constrain_range_for_size(size)
    return size


@contextlib.contextmanager
def forgetting_new_sizes(env: Any) -> Iterator[Callable[[Any], None]]:
    """If an error is raised inside, unbacked sizes that were created are no longer pending.

    Yields a function that takes the result of a call: other sizes that were created on the way are dropped too. (A view
    of a tensor that was written to is made twice, once for its gradient.)
    """
    pending = env.pending_fresh_unbacked_symbols
    before = len(pending)

    def keep_those_of(result: Any) -> None:
        from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

        kinds = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)
        found = (free_unbacked_symbols(x) for x in pytree.tree_leaves(result) if isinstance(x, kinds))
        kept: set[Any] = set().union(*found)
        pending[before:] = [symbol for symbol in pending[before:] if symbol in kept]

    try:
        yield keep_those_of
    except Exception:
        del pending[before:]
        raise
