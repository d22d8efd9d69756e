"""Functions of Python numbers that PyTorch makes a number of where an argument is a size, by what stands for them."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy
import torch

from symshape.artifact.compiled_program import named
from symshape.frontend.bridge.number_functions import NONNEGATIVE, POSITIVE, Domain, NumberFunction
from symshape.runtime.number_functions import bit_length, has_integer_value

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

_OF_NUMPY: Final = (
    "arccos arccosh arcsin arcsinh arctan arctan2 arctanh cbrt cos cosh degrees exp exp2 expm1 hypot log log10 log1p "
    "log2 radians sin sinh sqrt tan tanh"
).split()  # real numbers of real ones; what has no value is nan


def product(numbers: Any) -> Any:
    """``numpy.prod`` of some numbers, or of one"""
    return functools.reduce(operator.mul, numbers, 1) if isinstance(numbers, Sequence) else numbers


def total(numbers: Any) -> Any:
    """``numpy.sum`` of some numbers, or of one"""
    return functools.reduce(operator.add, numbers, 0) if isinstance(numbers, Sequence) else numbers


def floor(x: Any) -> Any:
    """``numpy.floor``, which returns a float"""
    return torch.sym_float(math.floor(x))


def ceil(x: Any) -> Any:
    """``numpy.ceil``"""
    return torch.sym_float(math.ceil(x))


def trunc(x: Any) -> Any:
    """``numpy.trunc``"""
    return torch.sym_float(math.trunc(x))


def rint(x: Any) -> Any:
    """``numpy.rint``: half to even, as ``round``"""
    return torch.sym_float(round(x))


def absolute(x: Any) -> Any:
    """``numpy.abs``"""
    return abs(x)


def square(x: Any) -> Any:
    """``numpy.square``"""
    return x * x


def maximum(x: Any, y: Any) -> Any:
    """``numpy.maximum`` of two numbers"""
    return torch.sym_max(x, y)


def minimum(x: Any, y: Any) -> Any:
    """``numpy.minimum`` of two numbers"""
    return torch.sym_min(x, y)


def unchanged(x: Any) -> Any:
    """``numpy.float64.item``"""
    return x


_PLAIN: Final[Mapping[str, Callable[..., Any]]] = {
    **dict.fromkeys(("abs", "absolute", "fabs"), absolute),
    "ceil": ceil,
    "floor": floor,
    "maximum": maximum,
    "minimum": minimum,
    "prod": product,
    "rint": rint,
    "square": square,
    "sum": total,
    "trunc": trunc,
}

FUNCTIONS: Final[Mapping[Any, Callable[..., Any]]] = {
    **{
        getattr(math, name): NumberFunction(getattr(math, name), "math", returns, domain)
        for name, (returns, domain) in _OF_MATH.items()
        if hasattr(math, name)
    },
    **{getattr(numpy, name): NumberFunction(getattr(numpy, name), "numpy", float) for name in _OF_NUMPY},
    **{getattr(numpy, name): function for name, function in _PLAIN.items()},
}

METHODS: Final[Mapping[str, Callable[..., Any]]] = {
    "bit_length": named("symshape.bit_length")(NumberFunction(bit_length, bit_length.__module__, int)),
    "is_integer": named("symshape.has_integer_value")(
        NumberFunction(has_integer_value, has_integer_value.__module__, int)
    ),
    "item": unchanged,
}
