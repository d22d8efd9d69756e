"""A trampoline: recursion over chains of thousands of operations, without Python's stack.

A thread's stack may be small.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

Result = TypeVar("Result")
Recursive = Generator[Generator[Any, Any, Any], Any, Result]  # yields a call, and is sent what it returned


def run(call: Recursive[Result]) -> Result:
    """The result of a recursive function that is written as a generator, in which ``yield f(x)`` is a recursive
    call."""
    calls: list[Generator[Any, Any, Any]] = [call]
    value: Any = None
    while calls:
        try:
            inner = calls[-1].send(value)
        except StopIteration as end:
            calls.pop()
            value = end.value
        else:
            calls.append(inner)
            value = None
    result: Result = value
    return result
