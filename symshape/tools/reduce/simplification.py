"""Transformations that simplify sizes, numbers, types and names (`transformations.py` lists them)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from torch_mlir import ir
from torch_mlir.passmanager import PassManager

from symshape.dialects.accessors import body_of, symbol_binding
from symshape.dialects.symbols import SYMBOLS, parse_binding, parse_inverse
from symshape.ir_text import text_of
from symshape.prover.numbers.facts import INT64_MAX
from symshape.random_tensors import SIZE_WITHOUT_HINT
from symshape.tools.reduce.edits import (
    add_argument,
    block_of,
    functions_of,
    is_main,
    new_symbol,
    operations_in,
)
from symshape.tools.reduce.scalars import hint_of, sizes_at_hints

_SMALL: Final = 2
_NUMBER = re.compile(r"(?<![\w$.])-?\d+(?:\.\d*)?(?:e[+-]?\d+)?(?![\w.])")
_TENSOR = re.compile(r"(tensor<)((?:[\d?]+x)+)")
_FLOATS: Final = {"f64": "float64", "f16": "float16", "bf16": "bfloat16"}
_ATTRIBUTES: Final = ("draws", "checked", "fresh", "symshape.relations", "symshape.outputs", "symshape.status")


def sizes(module: ir.Module) -> list[tuple[ir.Value, Any]]:
    """Pairs (scalar, its value at the hints) of all non-constant sizes; operands come before the scalars using them."""
    found = []
    for function in functions_of(module):
        for value, known in sizes_at_hints(body_of(function)).items():
            if value.owner.name != "arith.constant" and isinstance(known, int):
                found.append((value, known))
    return found


def fix_sizes(module: ir.Module, sites: Sequence[tuple[ir.Value, Any]]) -> None:
    for value, known in reversed(sites):
        op = value.owner.operation
        with ir.InsertionPoint(op), op.location:
            attribute = ir.IntegerAttr.get(value.type, int(known))
            new = ir.Operation.create("arith.constant", [value.type], attributes={"value": attribute})
        value.replace_all_uses_with(new.result)
        op.erase()


def _symbols(module: ir.Module, kind: str = SYMBOLS[0]) -> list[ir.Operation]:
    return [op for function in functions_of(module) for op in body_of(function) if op.name == kind]


def mergeable(module: ir.Module) -> list[tuple[ir.Operation, ir.Operation]]:
    """Pairs (symbol, an earlier symbol of the same function with an equal hint)."""
    found = []
    for function in functions_of(module):
        first: dict[int, ir.Operation] = {}
        for op in body_of(function):
            if op.name == SYMBOLS[0] and first.setdefault(hint_of(op), op) != op:
                found.append((op, first[hint_of(op)]))
    return found


def merge_symbols(module: ir.Module, sites: Sequence[tuple[ir.Operation, ir.Operation]]) -> None:
    for symbol, earlier in sites:
        symbol.results[0].replace_all_uses_with(earlier.results[0])
        symbol.erase()


def unbacked(module: ir.Module) -> list[ir.Operation]:
    return [op for op in _symbols(module, SYMBOLS[1]) if is_main(op.parent)]


def make_backed(module: ir.Module, sites: Sequence[ir.Operation]) -> None:
    for symbol in sites:
        function = symbol.parent.operation
        add_argument(function, ir.IndexType.get(module.context))
        low, high = (ir.IntegerAttr(symbol.attributes[key]).value for key in ("min", "max"))
        with ir.InsertionPoint(symbol), symbol.location:
            binding = f"arg{len(block_of(function).arguments) - 1}"
            new = new_symbol(function, binding, min(max(low, SIZE_WITHOUT_HINT), high), low, high)
        symbol.results[0].replace_all_uses_with(new)
        symbol.erase()


def bound(module: ir.Module) -> list[ir.Operation]:
    """Symbols that are bound to a tensor's size, stride or offset, or computed from the integer they are bound to."""
    found = []
    for op in _symbols(module):
        position, part, _ = parse_binding(symbol_binding(op)) or (0, "", 0)
        if is_main(op.parent) and (part != "value" or parse_inverse(symbol_binding(op)) != (0, 1)):
            found.append(op)
    return found


def bind_to_integers(module: ir.Module, sites: Sequence[ir.Operation]) -> None:
    for symbol in sites:
        function = symbol.parent.operation
        add_argument(function, ir.IndexType.get(module.context))
        _set_text(symbol, "binding", f"arg{len(block_of(function).arguments) - 1}")


def _set_text(op: ir.Operation, key: str, text: str) -> None:
    with op.context:
        op.attributes[key] = ir.StringAttr.get(text)


def _set_number(op: ir.Operation, key: str, number: int) -> None:
    with op.context:
        op.attributes[key] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)


def _number(op: ir.Operation, key: str) -> int:
    number: int = ir.IntegerAttr(op.attributes[key]).value
    return number


_RANGE: Final = {"min": 0, "max": INT64_MAX, "divisor": 1}


def ranged(module: ir.Module) -> list[ir.Operation]:
    def is_plain(op: ir.Operation) -> bool:
        return ir.StringAttr(op.attributes["source"]).value == "" and all(
            _number(op, k) == v for k, v in _RANGE.items()
        )

    return [op for op in _symbols(module) if not is_plain(op)]


def forget_ranges(module: ir.Module, sites: Sequence[ir.Operation]) -> None:
    for op in sites:
        _set_text(op, "source", "")
        for key, value in _RANGE.items():
            _set_number(op, key, value)


def hinted(module: ir.Module) -> list[ir.Operation]:
    return [op for op in _symbols(module) if _number(op, "hint") != _SMALL]


def simplify_hints(module: ir.Module, sites: Sequence[ir.Operation]) -> None:
    for op in sites:
        _set_number(op, "hint", _SMALL)


# --- numbers in the text of calls, and constants ------------------------------------------------------------------


def not_one(module: ir.Module) -> list[tuple[ir.Operation, int]]:
    """Pairs (operation, index of a number in it): numbers other than 0 and 1 in arguments of calls and constants."""
    return _numbers(module, lambda number: number not in (0, 1))


def make_one(module: ir.Module, sites: Sequence[tuple[ir.Operation, int]]) -> None:
    _replace(sites, "1")


def not_zero(module: ir.Module) -> list[tuple[ir.Operation, int]]:
    return _numbers(module, lambda number: number != 0)


def make_zero(module: ir.Module, sites: Sequence[tuple[ir.Operation, int]]) -> None:
    _replace(sites, "0")


def _numbers(module: ir.Module, wanted: Callable[[float], bool]) -> list[tuple[ir.Operation, int]]:
    found = []
    for op in _with_numbers(module):
        texts = _NUMBER.findall(_text_of(op))
        found += [(op, i) for i, text in enumerate(texts) if wanted(float(text))]
    return found


def _with_numbers(module: ir.Module) -> list[ir.Operation]:
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if "arguments" in op.attributes and op.name == "host.call":
            found.append(op)
        if op.name == "arith.constant" and isinstance(op.attributes["value"], ir.FloatAttr):
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found


def _text_of(op: ir.Operation) -> str:
    if op.name == "host.call":
        text: str = ir.StringAttr(op.attributes["arguments"]).value
        return text
    return repr(ir.FloatAttr(op.attributes["value"]).value)


def _replace(sites: Sequence[tuple[ir.Operation, int]], number: str) -> None:
    for op in dict.fromkeys(op for op, _ in sites):
        chosen = {i for owner, i in sites if owner == op}
        if op.name == "arith.constant":
            type_ = ir.FloatAttr(op.attributes["value"]).type
            with op.location:
                op.attributes["value"] = ir.FloatAttr.get(type_, float(number))
            continue
        count = iter(range(len(_text_of(op))))

        def one(match: re.Match[str], count: Any = count, chosen: set[int] = chosen) -> str:
            simple = number + ".0" if "." in match[0] or "e" in match[0] else number
            return simple if next(count) in chosen else match[0]

        _set_text(op, "arguments", _NUMBER.sub(one, _text_of(op)))


# --- of the module's text -----------------------------------------------------------------------------------------


def float_types(module: ir.Module) -> list[str]:
    text = text_of(module, locations=False)
    return [name for name in _FLOATS if re.search(rf"(?<![a-z]){name}\b", text)]


def to_f32(module: ir.Module, sites: Sequence[str]) -> ir.Module:
    text = text_of(module)
    for name in sites:
        text = re.sub(rf"(?<![a-z]){name}\b", "f32", text)
        text = re.sub(rf"torch\.{_FLOATS[name]}\b", "torch.float32", text)
    return _parsed(module, text)


def static_sizes(module: ir.Module) -> list[int]:
    """Static sizes in tensor types that are not small, largest first."""
    found = {int(n) for dims in _TENSOR.findall(text_of(module, locations=False)) for n in re.findall(r"\d+", dims[1])}
    return sorted((n for n in found if n > 2 * _SMALL), reverse=True)


def shrink_sizes(module: ir.Module, sites: Sequence[int]) -> ir.Module:
    """Replaces a size in types, index constants and arguments of calls alike, so that equal sizes stay equal."""
    text = text_of(module)
    for size in sites:
        text = re.sub(rf"(?<![\w$.%:]){size}(?=x|\b)(?! :)(?!\.)", str(_SMALL), text)
        text = re.sub(rf"(arith\.constant ){size} : index", rf"\g<1>{_SMALL} : index", text)
        text = re.sub(_dim_of_type(size), f"{_SMALL}x", text)
    return _parsed(module, text)


def _dim_of_type(size: int) -> str:
    return rf"(?<=[x<]){size}x(?=[\d?a-z])"


def attributed(module: ir.Module) -> list[tuple[ir.Operation, str]]:
    """Pairs (operation, attribute) of optional attributes that the pass manager and the host program read."""
    found = []
    for function in functions_of(module):
        for op in body_of(function):
            names = op.attributes
            found += [(op, name) for name in _ATTRIBUTES if name in names]
    return found


def forget_attributes(module: ir.Module, sites: Sequence[tuple[ir.Operation, str]]) -> None:
    for op, name in sites:
        del op.attributes[name]


def located(module: ir.Module) -> list[ir.Module]:
    """The module, if any operation has a location; else nothing."""
    unknown = ir.Location.unknown(module.context)
    operations = [*functions_of(module), *operations_in(module)]
    return [module] if any(op.location != unknown for op in operations) else []


def forget_locations(module: ir.Module, sites: Sequence[ir.Module]) -> None:
    PassManager.parse("builtin.module(strip-debuginfo)", module.context).run(module.operation)


def _parsed(module: ir.Module, text: str) -> ir.Module:
    """A module parsed from text, in the context of ``module``. MLIRError if it does not parse."""
    return ir.Module.parse(text, module.context)
