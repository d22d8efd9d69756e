"""Inputs for a graph that is run from its IR: checked against its signature, or generated.

Under ``torch.compile`` Dynamo has checked all of it. Here compiled code would rely on unchecked inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import torch

from symshape.artifact.element_types import DTYPES, TORCH_NAMES
from symshape.dialects import parse_binding, parse_inverse
from symshape.dialects.sizes import Layout
from symshape.errors import CompileError, OptionError, ShapeConstraintError
from symshape.frontend.bridge.fake_tensors import is_fake
from symshape.prover.numbers.expr import Expr
from symshape.random_tensors import strided_tensor
from symshape.signature import Argument, Signature, Symbol

_NUMBERS = {"index": int, "f64": float, "i1": bool}


def checked_inputs(signature: Signature, given: Sequence[Any], device: str) -> list[Any]:
    """All arguments in order; integers that were left out are read from the tensors. ``device``: the program's.

    ShapeConstraintError (a RuntimeError) for inputs that violate the graph's requirements: their number, type, device,
    rank, sizes, strides, or its assumptions about sizes.
    """
    values = _spread(signature, given)
    for position, (argument, value) in enumerate(zip(signature.arguments, values)):
        if value is not None or not argument.is_size:
            _check_kind(signature, position, argument, value, device)
    symbols = _symbol_values(signature, values)
    for position, (argument, value) in enumerate(zip(signature.arguments, values)):
        if argument.is_size and value is None:
            values[position] = _integer(signature, position, symbols)
        elif argument.shape is not None:
            _check_layout(signature, position, argument, value, symbols)
    _check_symbols(signature, symbols)
    return values


def random_inputs(signature: Signature, sizes: Mapping[str, int], device: str, seed: int = 0) -> list[Any]:
    """Arguments with the layouts of the graph: floats from a normal distribution, integers 0 or 1 (as indices they are
    in range wherever a dim has two elements). ``sizes``: values of symbols; of one left out the size first seen.

    OptionError for a size of no symbol, or that the graph is not for, and where a symbol has no value.
    """
    symbols = _chosen(signature, sizes)
    generator = torch.Generator().manual_seed(seed)
    made: list[Any] = []
    for position, argument in enumerate(signature.arguments):
        if argument.is_size:
            made.append(_integer(signature, position, symbols))
        elif argument.shape is not None:
            made.append(_random_tensor(position, argument, symbols, generator).to(argument.bound_device or device))
        elif argument.type in _NUMBERS:
            made.append(_NUMBERS[argument.type](1))
        else:
            raise CompileError(f"argument {position} is no dense tensor and no number", next_step=_OWN_INPUTS)
    return made


_OWN_INPUTS = "symshape.run_ir(file, *inputs) takes inputs of yours"


def _spread(signature: Signature, given: Sequence[Any]) -> list[Any]:
    """One value for each argument, None for an integer that was left out."""
    every, wanted = len(signature.arguments), [a for a in signature.arguments if not a.is_size]
    if len(given) == every:
        return list(given)
    if len(given) != len(wanted):
        raise ShapeConstraintError(
            f"{len(given)} inputs were given, and the graph takes {len(wanted)}, or {every} with the integers",
            next_step=f"it is {signature}",
        )
    left = iter(given)
    return [None if argument.is_size else next(left) for argument in signature.arguments]


def _refuse(signature: Signature, position: int, what: str) -> NoReturn:
    raise ShapeConstraintError(what, where=f"argument {position}", next_step=f"the graph is {signature}")


def _check_kind(signature: Signature, position: int, argument: Argument, value: Any, device: str) -> None:
    if argument.shape is None:
        kind = _NUMBERS.get(argument.type)
        if kind is not None and type(value) is not kind:
            _refuse(signature, position, f"a {kind.__name__} is wanted, not {value!r}")
        return
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_conj():
        _refuse(signature, position, f"a dense tensor is wanted, not a {type(value).__name__}")
    if not has_memory(value):
        _refuse(signature, position, f"a {type(value).__name__} without memory cannot be read")
    if value.is_neg() and not argument.is_negated:
        _refuse(signature, position, "a tensor without the negative bit is wanted")
    wanted = argument.bound_device or device
    if str(value.device) != wanted:
        _refuse(signature, position, f"it is on {value.device}, not on {wanted}")
    dtype = DTYPES.get(str(value.dtype).removeprefix("torch."))
    if dtype != argument.dtype:
        _refuse(signature, position, f"its type is {value.dtype}, not torch.{TORCH_NAMES[argument.dtype]}")
    if value.dim() != len(argument.shape):
        _refuse(signature, position, f"its rank is {value.dim()}, not {len(argument.shape)}")


def has_memory(x: torch.Tensor) -> bool:
    """Whether kernels can read a tensor: not a fake one, and none of a class that holds other tensors."""
    try:
        return not is_fake(x) and (x.data_ptr() != 0 or x.numel() == 0)
    except RuntimeError:
        return False


def _symbol_values(signature: Signature, values: Sequence[Any]) -> dict[str, int]:
    """The value of each symbol from its binding, or, if that is an integer that was left out, from any tensor that has
    it as a size."""
    found = {}
    for symbol in signature.symbols:
        position, part, dim = _binding(symbol)
        value = values[position]
        if value is not None:
            rest, factor = parse_inverse(symbol.binding)
            found[symbol.name] = (_reading(value, part, dim) - rest) // factor
        else:
            shown = _shown(signature, values, symbol.name)
            if shown is None:
                _refuse(signature, position, f"{symbol.called} cannot be read from the tensors: give all arguments")
            found[symbol.name] = shown
    return found


def _shown(signature: Signature, values: Sequence[Any], name: str) -> int | None:
    wanted = Expr.symbol(name)
    for argument, value in zip(signature.arguments, values):
        if argument.layout is not None:
            pairs = (*zip(argument.layout.sizes, value.size()), *zip(argument.layout.strides, value.stride()))
            for expr, number in pairs:
                if expr == wanted:
                    return int(number)
    return None


def _binding(symbol: Symbol) -> tuple[int, str, int]:
    read = parse_binding(symbol.binding)
    assert read is not None, symbol.binding  # it was verified
    return read


def _reading(value: Any, part: str, dim: int) -> int:
    if part == "value":
        return int(value)
    return int(value.storage_offset() if part == "offset" else getattr(value, part)(dim))


def _integer(signature: Signature, position: int, symbols: Mapping[str, int]) -> int:
    """The value of an integer argument, from the symbol that is read there."""
    for symbol in signature.symbols:
        if _binding(symbol)[:2] == (position, "value"):
            rest, factor = parse_inverse(symbol.binding)
            return symbols[symbol.name] * factor + rest
    if signature.arguments[position].used:
        _refuse(signature, position, "its value cannot be read from the tensors: give all arguments")
    return 0  # nothing reads it


def _check_layout(
    signature: Signature, position: int, argument: Argument, value: torch.Tensor, symbols: Mapping[str, int]
) -> None:
    layout = argument.layout
    if layout is None:
        for dim, (wanted, size) in enumerate(zip(argument.shape or (), value.size())):
            if wanted is not None and wanted != size:
                _refuse(signature, position, f"its size {dim} is {size}, not {wanted}")
        return
    for dim, (expr, size) in enumerate(zip(layout.sizes, value.size())):
        if expr.evaluate(symbols) != size:
            _refuse(signature, position, f"its size {dim} is {size}, not {_wanted(symbols, expr)}")
    for dim, (expr, stride) in enumerate(zip(layout.strides, value.stride())):
        matters = value.size(dim) > 1 and value.numel() > 0
        if matters and expr.evaluate(symbols) != stride:
            _refuse(signature, position, f"its stride {dim} is {stride}, not {_wanted(symbols, expr)}")
    offset = layout.offset.evaluate(symbols)
    if value.storage_offset() != offset and (signature.reads_storage or layout.offset.as_int() is None):
        _refuse(signature, position, f"its storage offset is {value.storage_offset()}, not {offset}")


def _wanted(symbols: Mapping[str, int], expr: Expr) -> str:
    """``2 * s0 = 6 for s0 = 3``; ``s0 = 3``; ``6``."""
    value = expr.evaluate(symbols)
    if expr.as_int() is not None:
        return str(value)
    used = ", ".join(f"{name} = {symbols[name]}" for name in sorted(expr.symbols))
    return f"{expr} = {value}" + ("" if expr.as_symbol() else f" for {used}")


def _check_symbols(signature: Signature, values: Mapping[str, int]) -> None:
    for symbol in signature.symbols:
        value = values[symbol.name]
        if not symbol.minimum <= value <= symbol.maximum or value % symbol.divisor:
            raise ShapeConstraintError(
                f"{symbol.called} is {value}, and the graph is for {symbol.allowed}",
                next_step="pass inputs of such sizes",
            )
    for condition in signature.assumed:
        if condition.symbols <= set(values) and not condition.evaluate(values):
            shown = ", ".join(f"{name} = {values[name]}" for name in sorted(condition.symbols))
            raise ShapeConstraintError(
                f"the graph assumes {condition}, which does not hold for {shown}",
                next_step="pass inputs for which it holds",
            )


def _chosen(signature: Signature, sizes: Mapping[str, int]) -> dict[str, int]:
    known = ", ".join(symbol.called for symbol in signature.symbols) or "none"
    for name in sizes:
        if name not in {symbol.name for symbol in signature.symbols}:
            raise OptionError(f"the graph has no symbol {name!r}", next_step=f"symbols: {known}")
    values = {symbol.name: sizes.get(symbol.name, symbol.hint) for symbol in signature.symbols}
    missing = [s.called for s in signature.symbols if values[s.name] < 0 and s.hint < 0 and s.name not in sizes]
    if missing:
        raise OptionError(f"no size is known for {', '.join(missing)}", next_step="give it: --size NAME=NUMBER")
    try:
        _check_symbols(signature, values)
    except ShapeConstraintError as error:
        raise OptionError(error.what, next_step="choose other sizes") from None
    return values


def _random_tensor(
    position: int, argument: Argument, symbols: Mapping[str, int], generator: torch.Generator
) -> torch.Tensor:
    layout: Layout | None = argument.layout
    if layout is None:
        what = "the IR has no symshape.bind for a tensor argument"
        raise CompileError(what, where=f"argument {position}", next_step=_OWN_INPUTS)
    sizes, strides = ([expr.evaluate(symbols) for expr in part] for part in (layout.sizes, layout.strides))
    dtype = getattr(torch, TORCH_NAMES[argument.dtype])
    return strided_tensor(sizes, strides, layout.offset.evaluate(symbols), dtype, generator)
