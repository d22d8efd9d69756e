"""Verification of a whole module: MLIR's own, then what MLIR cannot check."""

from __future__ import annotations

from torch_mlir import ir

from symshape.dialects.accessors import symbol_name
from symshape.dialects.host import HOST_OPS
from symshape.dialects.symbols import SYMBOLS
from symshape.dialects.symshape import bad

_NAMED = {**dict.fromkeys(SYMBOLS, "symbol"), "symshape.variant": "variant"}


def verify(module: ir.Module | ir.OpView | ir.Operation, *, allow_unregistered: bool = False) -> bool:
    """True if the module is valid; otherwise errors are reported at the ops. Raises MLIRError where MLIR's verifier
    does.

    Checked here: ``host.*`` ops; that every other op is registered, unless others are allowed; that a function defines
    no symbol or variant twice (one op of many could only find that out by looking at all the others).
    """
    if not module.operation.verify():
        return False
    known: dict[str, bool] = {}
    named: set[tuple[str, str]] = set()
    valid = True

    def visit(op: ir.Operation) -> ir.WalkResult:
        nonlocal valid
        name = op.name
        if name == "func.func":
            named.clear()
        elif name in _NAMED:
            symbol = symbol_name(op)
            if (_NAMED[name], symbol) in named:
                valid &= bad(op.opview, f"{_NAMED[name]} '{symbol}' is defined twice in this function")
            named.add((_NAMED[name], symbol))
        if name in HOST_OPS:
            valid &= op.opview.verify_invariants()
            return ir.WalkResult.ADVANCE
        if name not in known:
            known[name] = allow_unregistered or op.context.is_registered_operation(name)
        if not known[name]:
            valid &= bad(op.opview, "is not registered; is its name right?")
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return valid
