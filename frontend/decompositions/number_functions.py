"""Functions and methods of Python numbers that PyTorch specialises on if an argument is a size.

NumPy's functions are not included: they return NumPy's numbers, which have methods (``astype``) that a SymInt lacks.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import Any, Final

from symshape.artifact.compiled_program import named
from symshape.frontend.bridge.number_functions import NONNEGATIVE, POSITIVE, Domain, NumberFunction
from symshape.runtime.number_functions import bit_length, has_integer_value, rounded

_LOGARITHM: Final[tuple[Domain, ...]] = (POSITIVE,)

_OF_MATH: Final[Mapping[str, tuple[type, tuple[Domain, ...]]]] = {
    **dict.fromkeys(("log", "log10"), (float, _LOGARITHM)),
    "log1p": (float, ((operator.gt, -1),)),
    "acosh": (float, ((operator.ge, 1),)),
    "atanh": (float, ((operator.gt, -1), (operator.lt, 1))),
    **dict.fromkeys(
        "asinh atan2 cbrt copysign degrees erf erfc exp exp2 expm1 fabs fmod gamma hypot ldexp lgamma pow radians "
        "remainder".split(),
        (float, ()),
    ),
    **dict.fromkeys(("gcd", "lcm"), (int, ())),
    **dict.fromkeys(("comb", "factorial", "isqrt", "perm"), (int, (NONNEGATIVE,))),
}

FUNCTIONS: Final[Mapping[Any, NumberFunction]] = {
    getattr(math, name): NumberFunction(getattr(math, name), "math", returns, domain)
    for name, (returns, domain) in _OF_MATH.items()
    if hasattr(math, name)
}

METHODS: Final[Mapping[str, NumberFunction]] = {
    "bit_length": named("symshape.bit_length")(NumberFunction(bit_length, bit_length.__module__, int)),
    "is_integer": named("symshape.has_integer_value")(
        NumberFunction(has_integer_value, has_integer_value.__module__, int)
    ),
}

# `round` of an integer, to tens or hundreds.
ROUND: Final = named("symshape.rounded")(NumberFunction(rounded, rounded.__module__, int))
