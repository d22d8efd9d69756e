"""A correction of Triton's interpreter, which runs kernels in tests on machines without a GPU."""

from __future__ import annotations

from typing import Any


def comparisons_are_bools() -> None:
    """Patches the interpreter so that comparisons return int1, as in compiled code. Unpatched, they return the
    operands' type, and a scalar comparison combined with a block (``mask & (n > 0)``) is broadcast as a number, not as
    a mask.

    The patch is permanent for this process; applying it again has no effect. See ``InterpreterBuilder.binary_op`` and
    ``create_splat`` in triton/runtime/interpreter.py.
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
