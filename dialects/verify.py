"""Verifies a whole module: MLIR's verifier first, then what MLIR cannot check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch_mlir import ir

from symshape.dialects.accessors import (
    by_value_of,
    callee_of,
    collective_number,
    function_name,
    is_kernel,
    kernel_functions,
    symbol_name,
)
from symshape.dialects.discardable_attributes import VERIFIED, verify_attributes
from symshape.dialects.foreign_tensors import Foreign, foreign_of
from symshape.dialects.host import HOST_OPS
from symshape.dialects.symbols import SYMBOLS
from symshape.dialects.symshape import bad, enclosing_function

_NATIVE = frozenset({"linalg.generic", "symshape.view", "symshape.reuse", "tensor.extract"})
_NAMED = {**dict.fromkeys(SYMBOLS, "symbol"), "symshape.variant": "variant"}
_OF_KERNELS = frozenset(
    f"symshape.{name}" for name in ("space", "store", "scatter", "variant", "processors", "address")
)
# Each of them is looked at, of others only whether their name is registered.
_LOOKED_AT = VERIFIED | _OF_KERNELS | frozenset({"func.func", "symshape.bind", "symshape.check_index", *_NAMED})


def verify(module: ir.Module | ir.OpView | ir.Operation, *, allow_unregistered: bool = False) -> bool:
    """True if the module is valid; otherwise errors are reported at the ops. Raises MLIRError where MLIR's verifier
    does.

    Checked here: ``host.*`` ops; attributes that ops may have (`verify_attributes`); that every other op is registered,
    unless others are allowed; that ops of kernels are in kernels, and a kernel has one space; that a function defines
    no symbol or variant twice (one op of many could only find that out by looking at all the others); that a function's
    collectives are those of the imported graph, in its order; that no layer or kernel calls itself; that kernels read
    no tensor that they cannot (`Foreign`).
    """
    if not module.operation.verify():
        return False
    walk = _Walk(module, allow_unregistered)
    module.operation.walk(walk.visit, ir.WalkOrder.PRE_ORDER)
    return walk.valid and _none_calls_itself(walk.calls) and _kernels_read_their_own(module, walk.foreign)


class _Walk:
    """One walk over a module or an op in it. ``calls``: function -> its launches and calls of layers, with
    the functions that they name."""

    def __init__(self, root: Any, allow_unregistered: bool) -> None:
        function = None if isinstance(root, ir.Module) else enclosing_function(root)
        self.valid = True
        self.foreign: list[tuple[Any, Foreign]] = []
        self.calls: dict[str, list[tuple[Any, str]]] = {}
        self.allow_unregistered = allow_unregistered
        self._known: dict[str, bool] = {}  # whether an op's name is all there is to check
        self._enter("" if function is None else function_name(function), function is not None and is_kernel(function))

    def _enter(self, name: str, in_kernel: bool) -> None:
        self._in_kernel, self._calls = in_kernel, self.calls.setdefault(name, [])
        self._defined: set[tuple[str, str]] = set()  # symbols and variants of the function
        self._spaces = self._collectives = 0  # of the function, so far

    def visit(self, op: ir.Operation) -> ir.WalkResult:
        name = op.name
        if self._known.get(name):
            return ir.WalkResult.ADVANCE
        if name in VERIFIED and not verify_attributes(op):  # what follows reads them
            self.valid = False
        elif name in HOST_OPS:
            self._visit_host(op)
        else:
            is_known = self.allow_unregistered or op.context.is_registered_operation(name)
            if not is_known:
                self._error(op, "is not registered; is its name right?")
            self._known[name] = is_known and name not in _LOOKED_AT
            if name in _LOOKED_AT:
                self._visit_own(op, name)
        return ir.WalkResult.ADVANCE

    def _error(self, op: ir.Operation, message: str) -> None:
        self.valid = bad(op.opview, message)

    def _visit_host(self, op: ir.Operation) -> None:
        number = collective_number(op)
        if number is not None and number != self._collectives:
            self._error(op, _out_of_order(number, self._collectives))
        self._collectives += number is not None
        if not op.opview.verify_invariants():
            self.valid = False
        elif op.name in ("host.launch", "host.layer"):
            self._calls.append((op, callee_of(op)))

    def _visit_own(self, op: ir.Operation, name: str) -> None:
        if name == "func.func":
            self._enter(function_name(op), is_kernel(op))
        elif name == "symshape.bind" and (why := foreign_of(op)) is not None:
            self.foreign.append((op.operands[0], why))
        elif name == "symshape.check_index" and op.parent.name != "linalg.generic":
            self._error(op, "must be in the body of a linalg.generic")
        elif name in _OF_KERNELS and not self._in_kernel:
            self._error(op, "must be in a kernel: a function with an attribute 'symshape.kernel'")
        if name == "symshape.space":
            self._spaces += 1
            if self._spaces > 1:
                self._error(op, "is the second space of its kernel, which has one")
        elif name in _NAMED:
            symbol = symbol_name(op)
            if (_NAMED[name], symbol) in self._defined:
                self._error(op, f"{_NAMED[name]} '{symbol}' is defined twice in this function")
            self._defined.add((_NAMED[name], symbol))


def _out_of_order(number: int, expected: int) -> str:
    met = "another rank would meet another collective"
    return f"is collective {number} in the place of collective {expected}: {met}"


def _none_calls_itself(calls: dict[str, list[tuple[Any, str]]]) -> bool:
    """Whether the calls have no cycle: layers are inlined, and a kernel is planned after those that it launches."""
    done: set[str] = set()

    def ends(name: str, callers: tuple[str, ...]) -> bool:
        for op, callee in () if name in done else calls.get(name, ()):
            if callee in callers:
                return bad(op.opview, f"calls @{callee}, which it is in")
            if not ends(callee, (*callers, callee)):
                return False
        done.add(name)
        return True

    return all(ends(name, (name,)) for name in calls)


def _kernels_read_their_own(module: Any, foreign: Sequence[tuple[Any, Foreign]]) -> bool:
    """Whether native code reads no tensor that it cannot, but for numbers of the CPU's, which launches pass by value.
    A view of one is a number too, but nothing that a call could be given."""
    if not foreign:
        return True
    by_value = {function_name(kernel): by_value_of(kernel) for kernel in kernel_functions(module)}
    valid, waiting = True, [(value, why, False) for value, why in foreign]
    for value, why, viewed in waiting:
        number = viewed or why.by_value
        for use in value.uses:
            op, name = use.owner.operation, use.owner.operation.name
            fits = not viewed if name not in _NATIVE else number and name != "symshape.reuse"
            if name == "host.launch":
                fits = number and use.operand_number in by_value.get(callee_of(op), frozenset()) and not viewed
            if name == "symshape.view":
                waiting.append((op.results[0], why, True))
            if not fits and name != "symshape.bind":
                valid &= bad(op.opview, f"reads a tensor that is {why}, which kernels cannot")
    return valid
