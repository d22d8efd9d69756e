"""``torch._check`` while a frame of ``symshape.compile`` is traced: a failing check raises a ShapeConstraintError, and
a message that contains sizes does not break the graph.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo import utils
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable

from symshape.artifact.constraint_checks import CheckText, error_of
from symshape.errors import ShapeConstraintError, with_text
from symshape.frontend.bridge.dynamo import unimplemented
from symshape.frontend.bridge.shape_env import symbol_hint, symbol_source
from symshape.frontend.patches.checks.dynamo_errors import passing, users_error
from symshape.frontend.patches.patch import Changes
from symshape.frontend.patches.probes import Exists, Takes
from symshape.prover.numbers.sympy_bridge import UnsupportedExpr, condition_from_sympy
from symshape.runtime.torch_c import first_seen, user_lines

# Position of each function's condition; its message follows.
_CHECKS: dict[Any, int] = {
    torch._check: 0,
    torch._check_index: 0,
    torch._check_value: 0,
    torch._check_type: 0,
    torch._check_not_implemented: 0,
    torch._check_tensor_all: 0,
    torch._check_with: 1,
    torch._check_tensor_all_with: 1,
}
_NO_MESSAGE = "Expected cond to be True"
_FAILED = "a torch._check does not hold"
_NEXT = "pass inputs for which the check holds"


def constraint_error(env: Any, expr: Any, message: str, location: str) -> ShapeConstraintError | None:
    """The error for a check that fails at the traced sizes. ``expr``: its condition as a sympy expression over symbols
    of ``env``, or None if not known. None if the condition is not over sizes."""
    if expr is None or not expr.free_symbols:
        return ShapeConstraintError(message or _FAILED, where=with_text(location), next_step=_NEXT)
    try:
        condition = condition_from_sympy(expr)
    except UnsupportedExpr:
        return None
    symbols = {str(symbol): symbol for symbol in expr.free_symbols}
    sources = tuple((name, symbol_source(env, symbol)) for name, symbol in symbols.items())
    values = {name: hint for name, s in symbols.items() if (hint := symbol_hint(env, s)) is not None}
    return error_of(CheckText(condition.python(), message, location, sources), values)


_HANDLERS = "torch._dynamo.variables.torch.TorchInGraphFunctionVariable._get_handlers()"
_FUNCTIONS = "torch._dynamo.variables.functions"
CHECK = (torch._check,)
OTHER_CHECKS = tuple(check for check in _CHECKS if check not in CHECK)
MESSAGE_PROBES = (
    Exists(f"{_FUNCTIONS}.ClosureConversionError"),
    Exists(f"{_FUNCTIONS}.NestedUserFunctionVariable.get_function"),
    Takes(f"{_FUNCTIONS}.NestedUserFunctionVariable.has_closure", "self"),
)


def probes(checks: Sequence[Any]) -> tuple[Takes, ...]:
    """Probes of the signatures of these checks."""
    return tuple(
        Takes(f"torch.{check.__name__}", "error_type, cond, message" if _CHECKS[check] else "cond, message")
        for check in checks
    )


def targets(checks: Sequence[Any]) -> tuple[str, ...]:
    """Dynamo's handlers of these checks, as targets."""
    return tuple(f"{_HANDLERS}[torch.{check.__name__}]" for check in checks)


def messages_show_sizes(changes: Changes) -> None:
    """Allows sizes in the message of ``torch._check``, and makes a failing check a ShapeConstraintError."""
    _handle(changes, CHECK)


def messages_of_others_show_sizes(changes: Changes) -> None:
    """Allows sizes in the messages of ``torch._check_value`` and similar functions."""
    _handle(changes, OTHER_CHECKS)


def _handle(changes: Changes, checks: Sequence[Any]) -> None:
    handlers: Any = TorchInGraphFunctionVariable._get_handlers()
    changes.items(handlers, {check: _handler(check, handlers[check]) for check in checks})


def failed_checks_are_constraints(changes: Changes) -> None:
    """Makes a check that fails when the tracer runs its node a ShapeConstraintError."""
    changes.wrap(utils, "run_node", _runner)


@functools.cache
def _runner(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps ``run_node``, where the tracer finds out that a condition over sizes does not hold."""

    def run_node(graph: Any, node: torch.fx.Node, args: Any, kwargs: Any, module: Any) -> Any:
        try:
            return original(graph, node, args, kwargs, module)
        except RuntimeError as error:
            if node.target not in (torch._check, torch._check_is_size) or type(error) is not RuntimeError:
                raise
            condition: Any = args[0] if args else None
            symbolic = isinstance(condition, torch.SymBool) and hasattr(graph, "shape_env")
            file, line = (user_lines(node) or [("", 0)])[-1]
            expr = condition.node.expr if symbolic else None
            message = str(error.__cause__ or error)
            said = "" if symbolic and message.startswith(_NO_MESSAGE) else message
            found = constraint_error(graph.shape_env if symbolic else None, expr, said, f"{file}:{line}")
            if found is None:
                raise
            raise found from None

    return run_node


def _handler(check: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def handle(self: Any, tx: Any, *args: Any, **kwargs: Any) -> Any:
        first = _CHECKS[check]
        condition: Any = args[first] if len(args) > first else kwargs.get("cond")
        message: Any = args[first + 1] if len(args) > first + 1 else kwargs.get("message")
        if message is not None:
            _show_sizes(tx, message)
        constant = condition is not None and condition.is_python_constant()
        if check is torch._check and constant and not condition.as_python_constant() and not _is_handled(tx):
            text = message.get_function()() if hasattr(message, "get_function") else _FAILED
            where = with_text(f"{tx.f_code.co_filename}:{tx.lineno}")
            raise passing(ShapeConstraintError(str(text), where=where, next_step=_NEXT))
        try:
            return original(self, tx, *args, **kwargs)
        except RuntimeError as error:
            if check is torch._check or tx.one_graph or users_error(error, None) is None:
                raise
            unimplemented(check.__name__, "it does not hold, and raises an error of its own type in eager mode", None)

    return handle


def _is_handled(tx: Any) -> bool:
    """Whether a traced frame, or a caller of it, is inside of a ``try`` or ``with``."""
    while tx is not None:
        if tx.current_instruction.exn_tab_entry is not None or tx.block_stack:
            return True
        tx = tx.parent
    return False


def _show_sizes(tx: Any, message: Any) -> None:
    """Makes Dynamo accept a message function that refers to tensors and sizes, by stand-ins with the sizes of this
    call, for which a failing check is traced. Dynamo itself accepts constants only."""
    from torch._dynamo.variables.functions import ClosureConversionError, NestedUserFunctionVariable

    if not isinstance(message, NestedUserFunctionVariable):
        return
    try:
        message.get_function()
    except ClosureConversionError:
        function: Any = message
        cells = function.closure.items if function.closure else ()
        try:
            values = [_stand_in(tx.output.side_effects.load_cell(cell)) for cell in cells]
        except _NoStandIn:
            return
        closure = tuple(types.CellType(value) for value in values)
        said = types.FunctionType(function.get_code(), function.f_globals, "message", None, closure)
        text = functools.partial(_text, said)
        function.get_function = lambda *_: text
    shown: Any = message
    shown.has_closure = lambda: False  # before PyTorch 2.13 any closure breaks the graph


class _NoStandIn(Exception):
    pass


def _text(message: Callable[[], Any]) -> str:
    try:
        return str(message())
    except Exception:  # noqa: BLE001 - the check has failed already; its message cannot be computed from stand-ins
        return _FAILED


def _stand_in(variable: Any) -> Any:
    import torch._dynamo.variables as modules

    variables: Any = modules
    variable = variable.realize()
    if variable.is_tensor():
        fake = variable.as_proxy().node.meta["example_value"]
        sizes, strides = [_number(n) for n in fake.shape], [_number(n) for n in fake.stride()]
        if any(isinstance(n, str) for n in (*sizes, *strides)):
            raise _NoStandIn
        return torch.empty_strided(sizes, strides, dtype=fake.dtype, device="meta")
    if isinstance(variable, variables.SymNodeVariable):
        return _number(variable.sym_num)
    if isinstance(variable, variables.lists.SizeVariable):
        return torch.Size(map(_stand_in, variable.items))
    if isinstance(variable, (variables.TupleVariable, variables.ListVariable)):
        return variable.python_type()(map(_stand_in, variable.items))
    if isinstance(variable, (variables.UserDefinedObjectVariable, variables.NNModuleVariable)):
        return getattr(variable, "value", None)
    if variable.is_python_constant():
        return variable.as_python_constant()
    raise _NoStandIn


def _number(size: Any) -> Any:
    if not isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return size
    seen = first_seen(size)
    return "a number from a tensor" if seen is None else seen  # such a check raises its error at call time
