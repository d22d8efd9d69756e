"""Random inputs for a program, made from its IR: sizes from the hints of symbols, layouts from binds."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch_mlir import ir

from symshape.artifact.element_types import TORCH_NAMES
from symshape.dialects.accessors import body_of, call_arguments, symbol_binding
from symshape.dialects.symbols import parse_binding, parse_inverse
from symshape.random_tensors import SIZE_WITHOUT_HINT, Draw, strided_tensor
from symshape.tools.reduce.edits import binds_of
from symshape.tools.reduce.scalars import hint_of, sizes_at_hints

_NUMBERS = {"f64": float, "i1": bool}


def inputs_of(function: ir.Operation, draw: Draw) -> list[Any]:
    """One value per argument. Deterministic for equal IR."""
    operations = body_of(function)
    sizes = sizes_at_hints(operations)
    numbers: dict[int, int] = {}
    for op in operations:
        if op.name == "symshape.symbol":
            position, part, _ = parse_binding(symbol_binding(op)) or (0, "", 0)
            rest, factor = parse_inverse(symbol_binding(op))
            if part == "value":
                numbers[position] = hint_of(op) * factor + rest
    return [
        _tensor(argument, sizes, draw, seed)
        if isinstance(argument.type, ir.RankedTensorType)
        else _NUMBERS.get(str(argument.type), int)(numbers.get(seed, SIZE_WITHOUT_HINT))
        for seed, argument in enumerate(function.regions[0].blocks[0].arguments)
    ]


def constants_of(function: ir.Operation, draw: Draw) -> list[Any]:
    """Random values for the constants of the module, by position: its text does not contain their data."""
    operations = body_of(function)
    sizes = sizes_at_hints(operations)
    found: dict[int, Any] = {}
    for op in operations:
        if op.name == "host.call" and ir.StringAttr(op.attributes["target"]).value == "symshape.constant":
            position = int(call_arguments(op).strip("(),"))
            found[position] = _tensor(op.results[0], sizes, draw, -1 - position)
    return [found.get(i) for i in range(max(found, default=-1) + 1)]


def _tensor(value: ir.Value, sizes: dict[ir.Value, Any], draw: Draw, seed: int) -> torch.Tensor:
    type_ = ir.RankedTensorType(value.type)
    dtype = getattr(torch, TORCH_NAMES[str(type_.element_type)])
    # Scaled so that products of matrices keep their magnitude and deep graphs stay finite.
    scale = max(type_.shape[-1], 1) ** -0.5 if type_.rank > 1 else 1.0
    draw = replace(draw, scale=scale)
    known = [bind for bind in binds_of(value) if all(v in sizes for v in list(bind.operands)[1:])]
    if known:
        layout = [sizes[v] for v in list(known[0].operands)[1:]]
        shape, strides, offset = layout[: type_.rank], layout[type_.rank : -1], layout[-1]
    else:
        shape = [SIZE_WITHOUT_HINT if type_.is_dynamic_dim(d) else type_.shape[d] for d in range(type_.rank)]
        strides, offset = [math.prod(shape[d + 1 :]) for d in range(type_.rank)], 0
    return strided_tensor(shape, strides, offset, dtype, torch.Generator().manual_seed(seed + 1000), draw)
