"""The epilogue of a convolution: a pointwise expression over its value and other tensors, as plain data.

`frontend/graph_rewrites/convolution_epilogues.py` reads it off a graph, ``symshape::packed_convolution`` takes it as
text, and `runtime/cpu/epilogue_code.py` makes machine code of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

VALUE: Final = "y"  # the name of the convolution's value
MOST_OPERANDS: Final = 4  # tensors
MOST_STEPS: Final = 32
# What a step computes, by the names of PyTorch's operators, and of how many operands. Comparisons make conditions,
# which only `where` reads. `low` and `high` are bounds: NaN stays, and so it does in `minimum` and `maximum`.
OPERATIONS: Final = {
    **dict.fromkeys(("neg", "abs", "exp", "expm1", "log", "log1p", "tanh", "erf", "sigmoid", "sqrt", "rsqrt"), 1),
    **dict.fromkeys(("add", "sub", "mul", "div", "minimum", "maximum", "gt", "ge", "lt", "le", "low", "high"), 2),
    "where": 3,
}
COMPARISONS: Final = frozenset({"gt", "ge", "lt", "le"})


@dataclass(frozen=True)
class Step:
    """An operation on values, by name, and numbers."""

    operation: str
    operands: tuple[str | float, ...]


@dataclass(frozen=True)
class Epilogue:
    """Steps in order, the last of which is the result; without any it is the convolution's value, ``y``. The value of
    step 3 is ``v3``. Tensors are ``a0``, ``a1``, ...: of the result's shape, or with one number for each channel, for
    each image or for all (1, channels, 1, 1).

    As text: ``neg y; exp v0; add v1 1.0; div y v2`` (SiLU).
    """

    steps: tuple[Step, ...] = ()

    def __str__(self) -> str:
        return "; ".join(" ".join((step.operation, *map(str, step.operands))) for step in self.steps)

    @staticmethod
    @lru_cache(maxsize=1024)
    def parse(text: str) -> Epilogue:
        """ValueError for anything that ``str`` does not print."""
        steps: list[Step] = []
        for number, line in enumerate(filter(None, text.split("; "))):
            operation, *operands = line.split(" ")
            if OPERATIONS.get(operation) != len(operands):
                raise ValueError(f"no step of an epilogue: {line!r}")
            steps.append(Step(operation, tuple(_operand(one, number) for one in operands)))
        return Epilogue(tuple(steps))

    @property
    def tensors(self) -> int:
        """The number of tensors that it reads."""
        names = [one for step in self.steps for one in step.operands if isinstance(one, str) and one[0] == "a"]
        return max((int(name[1:]) + 1 for name in names), default=0)

    def without_first(self) -> Epilogue | None:
        """The epilogue whose ``y`` is the value of this one's first step; None if a later step reads ``y``."""
        if any(VALUE in step.operands for step in self.steps[1:]):
            return None
        return Epilogue(tuple(Step(step.operation, tuple(map(_earlier, step.operands))) for step in self.steps[1:]))


def _operand(text: str, number: int) -> str | float:
    """An operand of step ``number``."""
    if text == VALUE:
        return text
    if text[:1] in ("a", "v") and text[1:].isdecimal():
        if int(text[1:]) >= (MOST_OPERANDS if text[0] == "a" else number):
            raise ValueError(f"no value of an epilogue: {text}")
        return text
    return float(text)


def _earlier(operand: str | float) -> str | float:
    """The name that an operand has without the first step."""
    if isinstance(operand, str) and operand[0] == "v":
        return VALUE if operand == "v0" else f"v{int(operand[1:]) - 1}"
    return operand


@dataclass(frozen=True)
class Bounded:
    """An epilogue's first steps, which the code of a tile does in registers: the sum with tensor ``added``, then
    bounds. ``rest``: what is done afterwards."""

    added: int | None
    low: float
    high: float
    rest: Epilogue


def bounded(epilogue: Epilogue, full: tuple[bool, ...]) -> Bounded:
    """``full``: which tensors have the result's shape."""
    added, low, high, rest = None, -math.inf, math.inf, epilogue
    while rest.steps:
        (operation, operands), later = (rest.steps[0].operation, rest.steps[0].operands), rest.without_first()
        if later is None:
            break
        other = operands[-1] if operands[0] == VALUE else operands[0]
        if operation == "add" and added is None and (low, high) == (-math.inf, math.inf) and isinstance(other, str):
            if other == VALUE or not full[int(other[1:])]:
                break
            added = int(other[1:])
        elif operation == "low" and isinstance(other, float) and low <= other <= high:
            low = other
        elif operation == "high" and isinstance(other, float) and low <= other <= high:
            high = other
        else:
            break
        rest = later
    return Bounded(added, low, high, rest)
