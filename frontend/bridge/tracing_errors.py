"""Classifies errors that end a trace, and finds out what they are about."""

from __future__ import annotations

import traceback
from typing import Any

import torch

from symshape.frontend.bridge.source_lines import is_users


class RefusedCall(RuntimeError):
    """Eager mode's own error for a call, raised by one of our rules: no failure of a patch. ``kind``: its type."""

    kind: type[Exception] = RuntimeError


class MistakenCall(RuntimeError):
    """A node cannot run, and eager mode's call fails too, with the error ``found``."""

    def __init__(self, said: str, found: Exception) -> None:
        super().__init__(said)
        self.found = found


class RefusedDivision(RefusedCall, ZeroDivisionError):
    """RefusedCall for Python's arithmetic."""

    kind = ZeroDivisionError


class RefusedArgument(RefusedCall, ValueError):
    """RefusedCall for a function of ``math``."""

    kind = ValueError


def is_data_dependent_error(error: BaseException | None) -> bool:
    """Whether an error of a trace means that it needed the value of an unbacked symbol, or that an operator has no fake
    rule."""
    return _data_dependent_error(error) is not None


def says_size_is_in_data(error: BaseException) -> bool:
    """Whether a rule for an operator's results has asked for a size that is in the data, where there are to be none."""
    from torch._subclasses.fake_tensor import DynamicOutputShapeException

    return isinstance(_data_dependent_error(error), DynamicOutputShapeException)


def data_dependent_condition(error: BaseException) -> str:
    """The question about sizes, in the tracer's words."""
    text = str(_data_dependent_error(error) or error).partition("\n")[0]
    return text.partition(" (unhinted")[0].replace("Could not guard on", "not known:")


def _data_dependent_error(error: BaseException | None) -> BaseException | None:
    from torch._subclasses.fake_tensor import DynamicOutputShapeException, UnsupportedOperatorException
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    seen: set[int] = set()
    found = None
    while error is not None and id(error) not in seen:
        if isinstance(error, (GuardOnDataDependentSymNode, DynamicOutputShapeException, UnsupportedOperatorException)):
            return error
        if any(sign in str(error) for sign in _SIGNS):
            found = error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return found


_SIGNS = ("with symbolic sizes/strides", "GuardOnDataDependentSymNode:")  # the second in what C++ says of an error


def changes_leaf(error: BaseException) -> bool:
    """Whether an error of a trace means that ``requires_grad`` of an input was to be changed: its fake tensor is not a
    leaf."""
    return type(error) is RuntimeError and "change requires_grad flags of leaf variables" in str(error)


def calls_backward(error: BaseException) -> bool:
    """Whether an error of a trace without Dynamo means that the function calls ``backward``."""
    return isinstance(error, RuntimeError) and "Cannot backprop through mirrored meta" in str(error)


def met_symbols(error: BaseException) -> bool:
    """Whether an error of PyTorch means that it got a fake tensor or a symbol where it accepts none."""
    *_, (innermost, _) = traceback.walk_tb(error.__traceback__)
    return not is_users(innermost) and any(sign in str(error) for sign in _OF_TRACED_VALUES)


_OF_TRACED_VALUES = (
    "with symbolic sizes/strides",
    "not support symbolic shapes",
    "INTERNAL ASSERT FAILED",
    "FakeTensor",
    "SymInt",
    "SymBool",
    "SymFloat",
)


class TensorHasNoText(RuntimeError):
    """A traced function prints a tensor, or uses its text otherwise."""

    def __init__(self) -> None:
        super().__init__("the text of a tensor depends on its elements")


def depends_on_values(error: BaseException) -> bool:
    """Whether an error of a trace means that the value of a tensor decides what to run."""
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    return isinstance(error, (GuardOnDataDependentSymNode, DataDependentOutputException, DynamicOutputShapeException))


def operator_without_rule(error: BaseException) -> Any:
    """The operator of PyTorch's that a trace has failed at, since the tracer has no rule for it; else None."""
    from torch._subclasses.fake_tensor import UnsupportedOperatorException

    return error.func if isinstance(error, UnsupportedOperatorException) else None


def unsupported(op: Any) -> Exception:
    """The tracer's error for an operator that it has no rule for."""
    from torch._subclasses.fake_tensor import UnsupportedOperatorException

    return UnsupportedOperatorException(op)


def failed_check(error: BaseException) -> tuple[Any, str] | None:
    """If the user's ``torch._check`` raised the error: its condition (a sympy expression, None if it was decided
    without one) and its ``file:line``. Else None."""
    frames = list(traceback.walk_tb(error.__traceback__))
    check = frames[-1][0]
    if check.f_code.co_name != "_check_with" or check.f_globals.get("__name__") != "torch":
        return None
    caller, line = next(one for one in reversed(frames) if one[0].f_globals.get("__name__") != "torch")
    if not is_users(caller):
        return None  # an operator's own check of its operands
    condition = check.f_locals.get("cond")
    expr = condition.node.expr if isinstance(condition, torch.SymBool) else None
    return expr, f"{caller.f_code.co_filename}:{line}"


def failing_node(error: BaseException) -> torch.fx.Node | None:
    """The node of a graph that was being run when an error was raised, the innermost one with a value from Dynamo."""
    found = None
    seen: set[int] = set()
    step: BaseException | None = error
    while step is not None and id(step) not in seen:
        seen.add(id(step))
        for frame, _ in traceback.walk_tb(step.__traceback__):
            node = frame.f_locals.get("n") if frame.f_code.co_name == "run_node" else None
            if isinstance(node, torch.fx.Node) and "example_value" in node.meta:
                found = node
        step = step.__cause__ or step.__context__
    return found
