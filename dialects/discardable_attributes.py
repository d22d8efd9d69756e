"""Verifies attributes that ops may have or not: those of ours on MLIR's ops, which MLIR calls discardable and leaves to
the dialect, and the optional ones of our own. `dialects/accessors.py` reads them, and takes for granted what is checked
here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from torch_mlir import ir

from symshape.artifact.relations import DETACHED, OF_ARGUMENT, OWN, VIEW
from symshape.dialects.accessors import (
    KERNEL_KINDS,
    by_value_of,
    in_place_of,
    is_kernel,
    kernel_kind,
    num_inputs,
    num_outputs,
    output_template,
    returned_relations,
    written_arguments,
)
from symshape.dialects.symshape import bad
from symshape.dialects.template import operand_indices

_RELATIONS: Final = (OWN, VIEW, DETACHED, OF_ARGUMENT)
_LOOP: Final = {"stacked": ir.UnitAttr, "written": ir.DenseI64ArrayAttr}
_DRAWS: Final = {"draws": ir.UnitAttr, "collective": ir.IntegerAttr}
_CONSTRAINT: Final = {"symshape.status": ir.StringAttr}

# Op -> attribute -> its type, wherever the attribute may be absent.
_TYPES: Final[Mapping[str, Mapping[str, type[ir.Attribute]]]] = {
    "func.func": {
        **dict.fromkeys(("symshape.kernel", "symshape.subgraph", "symshape.layer"), ir.UnitAttr),
        "symshape.kind": ir.StringAttr,
        **dict.fromkeys(("symshape.num_inputs", "symshape.num_outputs"), ir.IntegerAttr),
        **dict.fromkeys(("symshape.in_place", "symshape.by_value"), ir.DenseI64ArrayAttr),
    },
    "func.return": {
        **dict.fromkeys(("symshape.outputs", "symshape.relations"), ir.StringAttr),
        "symshape.writes": ir.DenseI64ArrayAttr,
    },
    "linalg.generic": {"symshape.combiner": ir.StringAttr},
    "arith.extf": {"symshape.as_stored": ir.UnitAttr},
    "host.call": {
        **dict.fromkeys(("fresh", "checked"), ir.UnitAttr),
        **_DRAWS,
        "reason": ir.StringAttr,
        "result_indices": ir.DenseI64ArrayAttr,
    },
    "host.attention": {"written": ir.DenseI64ArrayAttr, "whole": ir.FlatSymbolRefAttr, **_DRAWS},
    "host.cond": _DRAWS,
    "host.layer": _DRAWS,
    **dict.fromkeys(("host.while", "host.scan", "host.associative_scan"), {**_LOOP, **_DRAWS}),
    "symshape.unbacked_symbol": {"dim": ir.IntegerAttr},
    "symshape.bind": {"device": ir.StringAttr, "negated": ir.UnitAttr},
    **dict.fromkeys(("symshape.assume", "symshape.expect_true", "symshape.guard"), _CONSTRAINT),
}
VERIFIED: Final = frozenset(_TYPES)


def verify_attributes(op: Any) -> bool:
    """Whether the attributes of an op of ``VERIFIED`` are right; an error is reported at the op otherwise."""
    name, attributes = op.name, op.attributes
    if not len(attributes):  # the usual case of binds and constraints
        return True
    for key, type_ in _TYPES[name].items():
        if key in attributes and not isinstance(attributes[key], type_):
            return bad(
                op.opview, f"needs an attribute '{key}' of type {type_.__name__}, which {attributes[key]} is not"
            )
    if name == "func.func" and is_kernel(op):
        return _verify_kernel(op)
    return name != "func.return" or _verify_return(op)


def _verify_kernel(function: Any) -> bool:
    for key in ("symshape.num_inputs", "symshape.num_outputs"):
        if key not in function.attributes:
            return bad(function.opview, f"is a kernel, and needs an attribute '{key}'")
    type_, inputs, outputs = function.opview.type, num_inputs(function), num_outputs(function)
    tensors = sum(isinstance(one, ir.RankedTensorType) for one in type_.inputs)
    if inputs < 0 or outputs < 0 or inputs + outputs != tensors or outputs != len(type_.results):
        found = f"{tensors} tensors as arguments and {len(type_.results)} results"
        return bad(function.opview, f"has {found}, which are not {inputs} inputs and {outputs} outputs")
    if (kind := kernel_kind(function)) and kind not in KERNEL_KINDS:
        return bad(function.opview, f"kind '{kind}' is none of {', '.join(KERNEL_KINDS)}")
    if len(function.attributes["symshape.in_place"] if "symshape.in_place" in function.attributes else ()) % 2:
        return bad(function.opview, "in_place has an odd number of elements, which are pairs (input, output)")
    for taken, written in in_place_of(function):
        if not (0 <= taken < inputs and 0 <= written < outputs):
            return bad(function.opview, f"in_place pair ({taken}, {written}) is no input and output of the kernel")
    arguments = list(type_.inputs)
    for position in by_value_of(function):
        argument = arguments[position] if 0 <= position < inputs else None
        if not isinstance(argument, ir.RankedTensorType) or argument.rank:
            return bad(function.opview, f"argument {position} is passed by value, but is no input without dims")
    return True


def _verify_return(returned: Any) -> bool:
    operands, function = len(returned.operands), returned.parent
    arguments = len(function.regions[0].blocks[0].arguments)
    for i in operand_indices(output_template(returned) or ""):
        if i >= operands:
            return bad(returned.opview, f"outputs name ${i}, but there are {operands} operands")
    relations, writes = returned_relations(returned), written_arguments(returned)
    for relation in relations:
        if relation not in _RELATIONS:
            return bad(returned.opview, f"relation '{relation}' is none of {', '.join(_RELATIONS)}")
    for what, given in (("relations", relations), ("writes", writes)):
        if len(given) != operands:
            return bad(returned.opview, f"has {len(given)} {what}, but {operands} operands")
    for position in writes:
        if not -1 <= position < arguments:
            return bad(returned.opview, f"writes argument {position}, but the function has {arguments}")
    return True
