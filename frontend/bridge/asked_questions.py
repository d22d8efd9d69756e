"""Records the conditions that PyTorch's tracing rules evaluate in a shape environment: for `symshape corpus record`."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import sympy

from symshape.frontend.bridge.general_shape_env import GeneralShapeEnv
from symshape.frontend.bridge.shape_env import symbol_range


class Listener(Protocol):
    """Called with each condition. ``answer``: None if unknown; it is an answer, not the value at the hints, only if
    ``is_answer``."""

    def __call__(self, facts: tuple[Any, ...], condition: Any, answer: bool | None, *, is_answer: bool) -> None: ...


@contextlib.contextmanager
def questions_of_tracing(listener: Listener) -> Iterator[None]:
    """Calls the listener for every outermost condition that is evaluated inside.

    ``evaluate_expr`` evaluates an undecided condition at the hints and makes a guard: that is no answer.
    """
    inside = threading.local()
    environments: Any = GeneralShapeEnv  # a class of ours: nothing of PyTorch is changed
    evaluate, static = environments.evaluate_expr, environments._maybe_evaluate_static

    def outermost(run: Callable[[], Any]) -> tuple[Any, bool]:
        if getattr(inside, "value", False):
            return run(), False
        inside.value = True
        try:
            return run(), True
        finally:
            inside.value = False

    @functools.wraps(evaluate)
    def evaluate_expr(self: Any, orig_expr: Any, *args: Any, **kwargs: Any) -> Any:
        before = None if getattr(inside, "value", False) or not _is_condition(orig_expr) else known_facts(self)
        found, _ = outermost(lambda: evaluate(self, orig_expr, *args, **kwargs))
        if before is not None:
            listener(before, orig_expr, None, is_answer=False)
        return found

    @functools.wraps(static)
    def maybe_evaluate_static(self: Any, expr: Any, **kwargs: Any) -> Any:
        found, asked = outermost(lambda: static(self, expr, **kwargs))
        if asked and _is_condition(expr) and not (kwargs.get("compute_hint") or kwargs.get("unbacked_only")):
            answer = {sympy.true: True, sympy.false: False}.get(found)
            listener(known_facts(self), expr, answer, is_answer=True)
        return found

    environments.evaluate_expr = evaluate_expr
    environments._maybe_evaluate_static = maybe_evaluate_static
    try:
        yield
    finally:
        environments.evaluate_expr = evaluate
        del environments._maybe_evaluate_static


def known_facts(env: Any) -> tuple[Any, ...]:
    """Ranges of symbols, what replaced symbols are, guards, deferred assertions; as sympy conditions."""
    found = []
    for symbol in env.var_to_range:
        low, high = symbol_range(env, symbol)
        found += [sympy.Ge(symbol, low)] if low is not None else []
        found += [sympy.Le(symbol, high)] if high is not None else []
    found += [sympy.Eq(symbol, value) for symbol, value in env.replacements.items()]
    found += [guard.expr for guard in env.guards]
    found += [one.expr for several in env.deferred_runtime_asserts.values() for one in several]
    return tuple(one for one in dict.fromkeys(found) if one is not sympy.true)


def _is_condition(expr: Any) -> bool:
    return isinstance(expr, sympy.logic.boolalg.Boolean) and not isinstance(
        expr, sympy.Symbol | sympy.logic.boolalg.BooleanAtom
    )
