"""Finds the constraint that failed at run time, and raises its error."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from symshape.artifact.constraint_checks import CheckText, error_of

# The functions that a condition's text may call (``Condition.python``).
_FUNCTIONS: dict[str, object] = {
    "__builtins__": {},
    **{function.__name__: function for function in (abs, float, max, min, round)},
    "math": math,
}


def holds(check: CheckText, values: Mapping[str, int]) -> bool:
    """Whether a condition holds for these values; one that divides by zero, or is not defined for them, does not."""
    return real(lambda: bool(eval(check.condition, _FUNCTIONS, dict(values))))


def real(condition: Callable[[], bool]) -> bool:
    """Whether a condition on floats holds; False where a part of it is undefined (the root of a negative number).
    Called by generated code."""
    try:
        return condition()
    except (ArithmeticError, ValueError):
        return False


def fail(checks: Sequence[CheckText], values: Mapping[str, int]) -> NoReturn:
    """Raises the ShapeConstraintError of the first check that does not hold.

    Generated code only finds out that one of them fails; which one is found here, by evaluating each by itself.
    """
    raise error_of(next(check for check in checks if not holds(check, values)), values)


def load_function(source: str, name: str, namespace: Mapping[str, object], file: str) -> Callable[..., Any]:
    """The function ``name`` that a generated source defines; tracebacks call the source ``file``."""
    scope: dict[str, Any] = dict(namespace)
    exec(compile(source, file, "exec"), scope)
    loaded: Callable[..., Any] = scope[name]
    return loaded
