"""Reads the guards and deferred assertions of a ShapeEnv, and adds new ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from symshape.frontend.bridge.shape_env import symint_of
from symshape.frontend.bridge.source_lines import user_frame
from symshape.runtime.torch_c import first_seen


def shape_env_guards(env: Any) -> list[tuple[Any, tuple[str, int]]]:
    """Every guard of a ShapeEnv as (sympy condition, (file, line))."""
    return [(guard.expr, user_frame(guard.sloc)) for guard in env.guards]


def is_about_rows(env: Any, relation: Any) -> bool:
    """Whether each comparison of a condition is of a ragged size. That is a name for offsets, not a number: compared
    with another, or with a number, it has the same answer at every call."""
    from sympy.core.relational import Relational
    from torch.utils._sympy.singleton_int import SingletonInt

    hints = env.backed_var_to_val
    ragged = {symbol for symbol in relation.free_symbols if isinstance(hints.get(symbol), SingletonInt)}
    comparisons = relation.atoms(Relational) if ragged else ()
    return bool(comparisons) and all(not ragged.isdisjoint(one.free_symbols) for one in comparisons)


def track_sources(env: Any) -> None:
    """Makes every size in Dynamo's guards one that it reads at a call.

    If inputs are views, AOTAutograd traces their bases, with symbols of their own. PyTorch uses one symbol for equal
    sizes, so that no guard is on a base alone; here one may be, and Dynamo, which reads the sizes of the inputs that it
    has tracked, would raise an error. Such a symbol is tracked by itself, by its source (``x._base.size()[0]``).
    """
    tracked = env.tracked_fakes if env is not None else None
    if not tracked:
        return
    known = {symbol for one in tracked for symbol in symbols_of(one.fake)}
    used = {symbol for guard in env.guards for symbol in env.replace(guard.expr).free_symbols}
    for symbol in sorted(used - known, key=str):
        for source in env.var_to_sources.get(symbol, [])[:1]:
            tracked.append(type(tracked[0])(symint_of(env, symbol), source, None))


def symbols_of(fake: Any) -> set[Any]:
    """The symbols of an input's sizes, strides and offset, or of a number; for a tensor subclass, those of its inner
    tensors and its own: the ragged size of a nested tensor is a symbol that no inner tensor has."""
    if is_traceable_wrapper_subclass(fake):
        names, _ = fake.__tensor_flatten__()
        inside = {symbol for name in names for symbol in symbols_of(getattr(fake, name))}
        return inside | _free((*fake.size(), *fake.stride()))
    strided = isinstance(fake, torch.Tensor) and fake.layout is torch.strided
    return _free((*fake.size(), *fake.stride(), fake.storage_offset()) if strided else (fake,))


def _free(numbers: Sequence[Any]) -> set[Any]:
    symbolic = [number for number in numbers if isinstance(number, torch.SymInt | torch.SymFloat | torch.SymBool)]
    return {symbol for number in symbolic for symbol in number.node.expr.free_symbols}


def deferred_runtime_asserts(env: Any) -> list[tuple[Any, str]]:
    """Every deferred runtime assertion as (sympy condition, message)."""
    table = env.deferred_runtime_asserts
    return [(item.expr, str(item.msg)) for items in table.values() for item in items]


def guard_counts(env: Any) -> tuple[int, ...]:
    """The numbers of guards, replaced symbols and deferred assertions of a ShapeEnv, to tell whether one was added."""
    if env is None:
        return ()
    return len(env.guards), len(env.replacements), len(deferred_runtime_asserts(env))


def ignored_guards(env: Any) -> int:
    """How many guards were asked for after Dynamo had written them down (``are_guards_closed``)."""
    return 0 if env is None else int(env.counter["ignored_backward_guard"])


def are_guards_closed(env: Any) -> bool:
    """Whether Dynamo has written down the guards: later ones are ignored, with nothing but a log entry."""
    return bool(env.frozen)


def require_equal(env: Any, a: Any, b: Any, origin: str) -> bool:
    """Makes it a guard that two sizes are equal; False if at the first call they are not, or it is too late."""
    import sympy

    left, right = (x.node.expr if isinstance(x, torch.SymInt) else sympy.Integer(x) for x in (a, b))
    hints = [x if isinstance(x, int) else first_seen(x) for x in (a, b)]
    if None in hints or hints[0] != hints[1] or are_guards_closed(env):
        return False
    return add_guard(env, sympy.Eq(left, right), origin)


def add_guard(env: Any, relation: Any, origin: str) -> bool:
    """Adds a guard, which must hold at the hints. False if PyTorch does not accept it.

    A condition that follows from other guards is not added.
    """
    before = len(env.guards)
    if env._suppress_guards_tls():
        return False
    if not env.evaluate_expr(relation):
        return False
    if len(env.guards) > before:
        guard = env.guards[-1]
        env.guards[-1] = type(guard)(guard.expr, type(guard.sloc)(origin, None), guard.size_oblivious)
    return True
