"""A correction of Triton's interpreter, which kernels are tested with where there is no GPU."""

from __future__ import annotations

from typing import Any


def comparisons_are_bools() -> None:
    """Comparisons give values of type int1, as compiled ones do. The interpreter's have their operands' type: a scalar
    one that meets a block (``mask & (n > 0)``) is then spread as integers or floats, and is no mask any more.

    Of this process, for good; without effect the second time. See ``InterpreterBuilder.binary_op`` and ``create_splat``
    in triton/runtime/interpreter.py.
    """
    import numpy
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle, interpreter_builder

    given = interpreter_builder.binary_op
    if getattr(given, "gives_bools", False):
        return

    def binary_op(lhs: Any, rhs: Any, op: Any) -> Any:
        result = given(lhs, rhs, op)
        is_bool = result.data.dtype == numpy.bool_ and result.dtype != tl.int1
        return TensorHandle(result.data, tl.int1) if is_bool else result

    binary_op.gives_bools = True  # type: ignore[attr-defined]
    interpreter_builder.binary_op = binary_op
