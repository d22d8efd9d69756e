"""The signature of a graph: arguments and results, read from its IR in any stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch_mlir import ir

from symshape.artifact.constraint_checks import Origin
from symshape.dialects.accessors import (
    body_of,
    call_arguments,
    call_target,
    output_template,
    returned_relations,
    symbol_binding,
    symbol_name,
    symbol_range,
    symbol_source,
)
from symshape.dialects.conditions import read_condition
from symshape.dialects.foreign_tensors import Foreign
from symshape.dialects.function_facts import facts_of
from symshape.dialects.sizes import Layout, Sizes
from symshape.dialects.symbols import SYMBOLS
from symshape.ir_text import main_function
from symshape.prover.numbers.condition import Condition
from symshape.prover.numbers.decided import decided
from symshape.prover.numbers.facts import INT64_MAX, Facts


@dataclass(frozen=True)
class Argument:
    """``type``: MLIR's text for it; ``shape`` (None: a size that varies) and ``dtype`` of a tensor, else None and "".
    ``layout``: of a tensor with strides. ``used``: whether anything reads it. ``foreign``: why kernels cannot read it,
    if so."""

    type: str
    shape: tuple[int | None, ...] | None
    dtype: str
    layout: Layout | None
    used: bool
    foreign: Foreign | None = None

    @property
    def bound_device(self) -> str:
        """The tensor's device; "" for that of the kernels."""
        return self.foreign.device if self.foreign is not None else ""

    @property
    def is_negated(self) -> bool:
        """Whether it is a negative view."""
        return self.foreign is not None and self.foreign.negated

    @property
    def is_size(self) -> bool:
        """Whether it is an integer."""
        return self.type == "index"


@dataclass(frozen=True)
class Symbol:
    """A backed symbol: its binding, its range, and its hint (-1: unknown)."""

    name: str
    binding: str
    source: str
    minimum: int
    maximum: int
    divisor: int
    hint: int

    @property
    def called(self) -> str:
        """The user's name, if there is one."""
        own = Origin.parse(self.name, self.source).name if self.source else self.name
        return own if own == self.name else f"{self.name} ({own})"

    @property
    def allowed(self) -> str:
        """The allowed values, in words."""
        return range_text(self.minimum, self.maximum, self.divisor)


def range_text(low: int, high: int, divisor: int) -> str:
    """``3 or more``, ``3 to 64, divisible by 2``."""
    text = "any number" if low <= -INT64_MAX else f"{low} or more"
    text = text if high >= INT64_MAX else f"{low} to {high}"
    return text + (f", divisible by {divisor}" if divisor > 1 else "")


@dataclass(frozen=True)
class Signature:
    """Arguments and results of a main function. ``returned``: the text of what it returns, ``$i`` the i-th result;
    ``ranges``: minimum, maximum and divisor of every symbol, unbacked ones included; ``assumed``: further facts about
    symbols; ``constants``: position and `constant_text` of each tensor constant; ``reads_storage``: storage offsets
    matter."""

    arguments: tuple[Argument, ...]
    symbols: tuple[Symbol, ...]
    results: tuple[str, ...]
    returned: str
    ranges: Mapping[str, tuple[int, int, int]]
    assumed: tuple[Condition, ...]
    constants: tuple[tuple[int, str], ...]
    reads_storage: bool

    def __str__(self) -> str:
        arguments = [_shown(argument) for argument in self.arguments]
        symbols = [f"{s.name} = {s.binding}" for s in self.symbols]
        text = f"({', '.join(arguments)}) -> ({', '.join(self.results)})"
        return text + (f" with {', '.join(symbols)}" if symbols else "") + f", returning {self.returned}"


def _shown(argument: Argument) -> str:
    text, layout = argument.type, argument.layout
    if layout is not None:
        sizes, strides = (", ".join(map(str, part)) for part in (layout.sizes, layout.strides))
        text += f" of sizes [{sizes}], strides [{strides}]"
    return _marked(text, argument.foreign)


def _marked(text: str, foreign: Foreign | None) -> str:
    return text if foreign is None else f"{text}, {foreign}"


def read_signature(module: ir.Module, name: str) -> Signature:
    """The signature of a module with one main function. CompileError for any other; ``name`` is its name in the
    error."""
    function = main_function(module, name)
    operations = body_of(function)
    block = function.regions[0].blocks[0]
    sizes = Sizes(block)
    sizes.learn(operations)
    arguments = tuple(_argument(a, sizes) for a in block.arguments)
    symbols = tuple(_symbol(op) for op in operations if op.name == "symshape.symbol")
    returned = operations[-1]
    template = output_template(returned)
    relations = [str(one) for one in returned_relations(returned)]
    shown = template if template is not None else f"({', '.join(f'${i}' for i in range(len(returned.operands)))},)"
    targets = {call_target(op) for op in operations if op.name == "host.call"}
    return Signature(
        arguments,
        symbols,
        tuple(_marked(f"{v.type} {one}", sizes.foreign.get(v)) for v, one in zip(returned.operands, relations)),
        shown,
        {symbol_name(op): symbol_range(op) for op in operations if op.name in SYMBOLS},
        tuple(_assumed(operations, sizes)),
        tuple(sorted(_constants(operations, sizes))),
        "symshape.storage" in targets,
    )


def _argument(value: ir.Value, sizes: Sizes) -> Argument:
    type_ = value.type
    used = any(use.owner.operation.name != "symshape.bind" for use in value.uses)
    if not isinstance(type_, ir.RankedTensorType):
        return Argument(str(type_), None, "", None, used)
    shape = tuple(None if type_.is_dynamic_dim(d) else type_.get_dim_size(d) for d in range(type_.rank))
    layout, foreign = sizes.layouts.get(value), sizes.foreign.get(value)
    return Argument(str(type_), shape, str(type_.element_type), layout, used, foreign)


def _symbol(op: ir.Operation) -> Symbol:
    hint = ir.IntegerAttr(op.attributes["hint"]).value
    return Symbol(symbol_name(op), symbol_binding(op), symbol_source(op), *symbol_range(op), hint)


def _assumed(operations: Sequence[ir.Operation], sizes: Sizes) -> list[Condition]:
    stated = [op.operands[0] for op in operations if op.name in ("symshape.assume", "symshape.guard")]
    return [condition for value in stated if (condition := read_condition(sizes, value)) is not None]


def _constants(operations: Sequence[ir.Operation], sizes: Sizes) -> set[tuple[int, str]]:
    calls = [op for op in operations if op.name == "host.call" and call_target(op) == "symshape.constant"]
    return {(int(call_arguments(op).strip("(),")), _constant(op.results[0], sizes)) for op in calls}


def _constant(value: ir.Value, sizes: Sizes) -> str:
    layout = sizes.layouts.get(value)
    if layout is None:
        return str(value.type)
    numbers, steps = ([str(expr) for expr in exprs] for exprs in (layout.sizes, layout.strides))
    return constant_text(str(value.type), numbers, steps, sizes.foreign.get(value))


def constant_text(type_: str, sizes: Sequence[str], strides: Sequence[str], foreign: Foreign | None) -> str:
    """The type and strides of a tensor constant, without the strides of dims of one element, which may be any."""
    steps = ", ".join("-" if size == "1" else step for size, step in zip(sizes, strides))
    return _marked(f"{type_}, strides [{steps}]", foreign)


def difference(file: ir.Module, graph: ir.Module, name: str) -> str:
    """Why a file's IR cannot take the place of a graph's, with both signatures; "" where it can.

    It can where arguments, results and symbols are the same, and the graph guarantees all that the file takes for
    granted of sizes.
    """
    theirs, ours = read_signature(file, name), read_signature(graph, "the graph")
    both = f"\n    {name}: {theirs}\n    the graph: {ours}"
    if _compared(theirs) != _compared(ours):
        return f"the signature differs{both}"
    if not set(theirs.constants) <= set(ours.constants):
        return f"it has other constants: {dict(theirs.constants)}; the graph: {dict(ours.constants)}"
    unknown = _unknown(theirs, facts_of(main_function(graph, "the graph")), ours)
    return f"it assumes what the graph does not guarantee: {', '.join(unknown)}{both}" if unknown else ""


def _compared(signature: Signature) -> tuple[object, ...]:
    arguments = [(argument.type, argument.layout, argument.foreign) for argument in signature.arguments]
    symbols = sorted((symbol.name, symbol.binding) for symbol in signature.symbols)
    return arguments, symbols, signature.results, signature.returned


def _unknown(theirs: Signature, facts: Facts, ours: Signature) -> list[str]:
    found = []
    for name, (low, high, divisor) in theirs.ranges.items():
        own = ours.ranges.get(name)
        if own is None or low > own[0] or high < own[1] or own[2] % divisor:
            found.append(f"{name} is {range_text(low, high, divisor)}")
    known = frozenset(ours.assumed)
    return found + [str(one) for one in theirs.assumed if one not in known and decided(facts, one) is not True]
