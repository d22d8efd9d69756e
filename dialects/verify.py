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
    kernel_functions,
    num_inputs,
    symbol_name,
)
from symshape.dialects.foreign_tensors import Foreign, foreign_of
from symshape.dialects.host import HOST_OPS
from symshape.dialects.symbols import SYMBOLS
from symshape.dialects.symshape import bad

_NATIVE = frozenset({"linalg.generic", "symshape.view", "symshape.reuse", "tensor.extract"})
_NAMED = {**dict.fromkeys(SYMBOLS, "symbol"), "symshape.variant": "variant"}
_LOOKED_AT = frozenset({"func.func", "symshape.bind", *_NAMED})  # each of them, not only whether they are registered


def verify(module: ir.Module | ir.OpView | ir.Operation, *, allow_unregistered: bool = False) -> bool:
    """True if the module is valid; otherwise errors are reported at the ops. Raises MLIRError where MLIR's verifier
    does.

    Checked here: ``host.*`` ops; that every other op is registered, unless others are allowed; that a function defines
    no symbol or variant twice (one op of many could only find that out by looking at all the others); that a function's
    collectives are those of the imported graph, in its order; that kernels are given numbers of tensors without dims
    only, and read no tensor that they cannot (`Foreign`).
    """
    if not module.operation.verify():
        return False
    known: dict[str, bool] = {}  # whether an op's name is all there is to check
    foreign: list[tuple[Any, Foreign]] = []
    named: set[tuple[str, str]] = set()
    collectives = 0  # of the function, so far
    valid = True

    def visit(op: ir.Operation) -> ir.WalkResult:
        nonlocal valid, collectives
        name = op.name
        if known.get(name):
            return ir.WalkResult.ADVANCE
        if name == "func.func":
            named.clear()
            collectives = 0
        elif name == "symshape.bind" and (why := foreign_of(op)) is not None:
            foreign.append((op.operands[0], why))
        elif name in _NAMED:
            symbol = symbol_name(op)
            if (_NAMED[name], symbol) in named:
                valid &= bad(op.opview, f"{_NAMED[name]} '{symbol}' is defined twice in this function")
            named.add((_NAMED[name], symbol))
        if name in HOST_OPS:
            number = collective_number(op)
            if number is not None and number != collectives:
                valid &= bad(op.opview, _out_of_order(number, collectives))
            collectives += number is not None
            valid &= op.opview.verify_invariants()
            return ir.WalkResult.ADVANCE
        is_known = allow_unregistered or op.context.is_registered_operation(name)
        if not is_known:
            valid &= bad(op.opview, "is not registered; is its name right?")
        known[name] = is_known and name not in _LOOKED_AT
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return valid and _kernels_take_numbers(module) and _kernels_read_their_own(module, foreign)


def _out_of_order(number: int, expected: int) -> str:
    met = "another rank would meet another collective"
    return f"is collective {number} in the place of collective {expected}: {met}"


def _kernels_take_numbers(module: Any) -> bool:
    """Whether all inputs that are passed by value have no dims."""
    valid = True
    for kernel in kernel_functions(module) if isinstance(module, ir.Module) else ():
        arguments = list(kernel.regions[0].blocks[0].arguments)
        for position in by_value_of(kernel):
            type_ = arguments[position].type if position < num_inputs(kernel) else None
            if not isinstance(type_, ir.RankedTensorType) or ir.RankedTensorType(type_).rank:
                valid &= bad(kernel.opview, f"argument {position} is passed by value, but is no input without dims")
    return valid


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
