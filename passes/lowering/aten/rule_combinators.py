"""Combinators that make rules of pointwise operators from scalar code, and fix the types it computes in.

Scalar code is a function of the Body and one Scalar per operand, all of one compute type unless a rule says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

from symshape.passes.lowering.aten.builder import Builder, Tensor, Unsupported
from symshape.passes.lowering.aten.promotion import nearest, promote, require_native
from symshape.passes.lowering.aten.scalar_body import Body, Scalar, compute_type, is_float

Code = Callable[..., Scalar]
Rule = Callable[..., Any]


def apply(
    b: Builder, operands: Sequence[Any], dtypes: Sequence[str], code: Code, unrounded: Collection[int] = ()
) -> Tensor:
    """One value per point of the result. Operands (tensors, numbers, None) are passed to ``code`` as scalars of
    ``dtypes``.

    If the result has a half type, tensors of other types (zero-dim ones, integers) are rounded to it first.
    ``unrounded``: positions of operands that are not.
    """
    result = b.results[0]
    meets = [
        isinstance(x, Tensor) and compute_type(result.dtype) != result.dtype and x.dtype not in ("i1", result.dtype)
        for x in operands
    ]
    tensors = [x for x in operands if isinstance(x, Tensor)]
    require_native(result.dtype, *(x.dtype for x in tensors))

    def body(*scalars: Scalar) -> Scalar:
        entered = iter(scalars)
        values = [next(entered) if isinstance(x, Tensor) else x for x in operands]
        for i, scalar in enumerate(values):
            if meets[i] and i not in unrounded:
                values[i] = b.body.rounded(scalar, result.dtype)
        return code(b.body, *(None if v is None else number(b.body, v, t) for v, t in zip(values, dtypes)))

    return b.pointwise(result.sizes, result.dtype, tensors, body)


def number(m: Body, value: Any, dtype: str) -> Scalar:
    """A scalar, a Python number or a symbolic size as a scalar of ``dtype``."""
    if isinstance(value, float) and not math.isfinite(value) and not is_float(dtype):
        raise Unsupported(f"{value} as an integer")
    return m.number(value, dtype)


def to_result(code: Code, arity: int = 0) -> Rule:
    """A rule that computes in the compute type of the result. The first ``arity`` arguments (0: all positional ones)
    are operands; the others are parameters, which ``code`` gets unchanged."""

    def rule(b: Builder, *args: Any, **parameters: Any) -> Tensor:
        operands, rest = (args[:arity], args[arity:]) if arity else (args, ())
        dtype = compute_type(b.results[0].dtype)
        return apply(b, operands, [dtype] * len(operands), lambda m, *s: code(m, *s, *rest, **parameters))

    return rule


def scaled(code: Code) -> Rule:
    """As ``to_result`` for two operands. Like eager mode it does not round a zero-dim second operand, which is a factor
    or divisor in the compute type. On a GPU that is so only if it is on the CPU."""

    def rule(b: Builder, x: Any, y: Any) -> Tensor:
        dtype = compute_type(b.results[0].dtype)
        is_number = isinstance(y, Tensor) and is_factor(b, y)
        return apply(b, (x, y), (dtype, dtype), code, (1,) if is_number else ())

    return rule


def is_factor(b: Builder, y: Tensor) -> bool:
    """Whether eager mode treats a zero-dim tensor as a Python number, which it does not round."""
    return y.rank == 0 and (b.target == "cpu" or y.value in b.sizes.foreign)


def promoted(code: Code) -> Rule:
    """Computes in the promoted dtype of the operands, to which Python numbers are rounded: a bf16 can equal 0.1."""

    def rule(b: Builder, *operands: Any) -> Tensor:
        dtype = promote(operands)
        operands = tuple(nearest(x, dtype) for x in operands)

        def rounded(m: Body, *scalars: Scalar) -> Scalar:
            exact = [isinstance(x, (int, float)) or (isinstance(x, Tensor) and x.dtype == dtype) for x in operands]
            return code(m, *(v if same else m.rounded(v, dtype) for v, same in zip(scalars, exact)))

        return apply(b, operands, [compute_type(dtype)] * len(operands), rounded)

    return rule


def compare(kind: str) -> Rule:
    """A comparison of two operands."""
    return promoted(lambda m, x, y: m.compare(kind, x, y))


def logical(code: Code) -> Rule:
    """A logical op: operands are compared with zero, in their promoted type if that is a half type."""

    def rule(b: Builder, *operands: Any) -> Tensor:
        dtype = promote(operands)

        def of_bools(m: Body, *scalars: Scalar) -> Scalar:
            return code(m, *(m.cast(scalar, "i1") for scalar in scalars))

        if compute_type(dtype) == dtype:
            return apply(b, operands, ["i1"] * len(operands), code)
        return promoted(of_bools)(b, *operands)

    return rule


def predicate(code: Code, on_integers: bool | None = None) -> Rule:
    """A predicate of one number, in its own type. Its value for integers is ``on_integers``, if given."""

    def rule(b: Builder, x: Tensor) -> Tensor:
        dtype = compute_type(x.dtype)
        known = on_integers is not None and not is_float(dtype)
        return apply(b, (x,), (dtype,), (lambda m, v: m.constant(on_integers, "i1")) if known else code)

    return rule


def math_op(name: str) -> Code:
    """One operation of the math dialect."""
    return lambda m, *operands: m.math(name, *operands)


def body_op(name: str) -> Code:
    """A method of Body."""
    return lambda m, *operands: getattr(m, name)(*operands)


def on_floats(code: Code) -> Code:
    """Rounding functions: integers are returned unchanged."""
    return lambda m, x: code(m, x) if is_float(x.dtype) else x
