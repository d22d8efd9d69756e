"""Prints reductions: of blocks that hold all reduced points, or chunk by chunk with accumulators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

from symshape.analysis.loops import Instr
from symshape.analysis.read_body import ARG_COMBINERS
from symshape.artifact.element_types import FLOATS
from symshape.codegen.triton.ops import TYPES
from symshape.errors import KernelError


@dataclass(frozen=True)
class Combiner:
    """A reduction: the identity element for floats, ints and bools (None: not supported), the expression that updates a
    lane's accumulator, and the one that reduces a row."""

    float_: str | None
    int_: str | None
    bool_: str | None
    step: str
    row: str


COMBINERS: Final = {
    "add": Combiner("0.0", "0", None, "{acc} + {v}", "tr.row_sum({v})"),
    "mul": Combiner("1.0", "1", None, "{acc} * {v}", "tr.row_product({v})"),
    "max": Combiner('float("-inf")', "{least}", None, "tm.maximum({acc}, {v})", "tr.row_max({v})"),
    "min": Combiner('float("inf")', "{greatest}", None, "tm.minimum({acc}, {v})", "tr.row_min({v})"),
    "or": Combiner(None, None, "False", "{acc} | {v}", "tr.row_any({v})"),
    "and": Combiner(None, None, "True", "{acc} & {v}", "tr.row_all({v})"),
    "argmax": Combiner('float("-inf")', "{least}", None, "tr.keep_max", "tr.row_argmax"),
    "argmin": Combiner('float("inf")', "{greatest}", None, "tr.keep_min", "tr.row_argmin"),
}
# Extrema of bools are logical operations.
_ON_BOOLS: Final = {"max": "or", "min": "and"}


@dataclass(frozen=True)
class Block:
    """Values of a block of reduced points. ``mask``: lanes within bounds, "" if all are; ``points``: their indices."""

    value: str
    mask: str
    points: str

    def kept(self, value: str, neutral: str) -> str:
        """The value, with ``neutral`` in lanes that are out of bounds."""
        return f"tl.where({self.mask}, {value}, {neutral})" if self.mask else value


def reduce_tile(instr: Instr, blocks: Sequence[Block]) -> list[str]:
    """Statements that define the results of a reduction over blocks that together hold all reduced points."""
    combiner, _ = _combined(instr)
    kept = [block.kept(_value(instr, block.value), _neutral(instr)) for block in blocks]
    if instr.combiner not in ARG_COMBINERS:
        found = [combiner.row.format(v=value) for value in kept]
        return [f"v{instr.results[0]} = {reduce(lambda acc, v: combiner.step.format(acc=acc, v=v), found)}"]
    found = []
    for block, value in zip(blocks, kept, strict=True):
        at = block.kept(block.points, f"tr.no_index({block.points})")
        found.append(f"{combiner.row}({value}, {at})")
    best, at = (f"v{number}" for number in instr.results)
    lines = [f"{best}, {at} = {found[0]}"]
    for i, text in enumerate(found[1:]):
        own = f"{best}_{i}, {at}_{i}"
        lines += [f"{own} = {text}", f"{best}, {at} = {combiner.step}({best}, {at}, {own})"]
    return [*lines, *_as_results(instr)]


def start(instr: Instr, index: str = "INDEX") -> list[str]:
    """Statements that initialise the accumulators, one per lane. ``index``: type of the indices of an arg-reduction."""
    _, neutral = _combined(instr)
    first = f"acc{instr.results[0]} = tl.full([XBLOCK, RBLOCK], {neutral}, {_type(instr)})"
    if instr.combiner in ARG_COMBINERS:
        return [first, f"acc{instr.results[1]} = tr.no_indices(XBLOCK, RBLOCK, {index})"]
    return [first]


def accumulate(instr: Instr, value: str, at: str = "r", mask: str = "rmask") -> list[str]:
    """Statements that accumulate one chunk. ``at``: indices of an arg-reduction; ``mask``: lanes within bounds."""
    combiner, _ = _combined(instr)
    neutral = _neutral(instr)
    acc, value = f"acc{instr.results[0]}", _value(instr, value)
    if instr.combiner in ARG_COMBINERS:
        best = f"acc{instr.results[1]}"
        kept = f"tl.where({mask}, {value}, {neutral})"
        return [f"{acc}, {best} = {combiner.step}({acc}, {best}, {kept}, tl.where({mask}, {at}, tr.no_index({at})))"]
    return [f"{acc} = tl.where({mask}, {combiner.step.format(acc=acc, v=value)}, {acc})"]


def finish(instr: Instr) -> list[str]:
    """Statements that compute the results from the accumulators."""
    combiner, _ = _combined(instr)
    acc = f"acc{instr.results[0]}"
    if instr.combiner in ARG_COMBINERS:
        best, at = instr.results
        return [f"v{best}, v{at} = {combiner.row}({acc}, acc{at})", *_as_results(instr)]
    return [f"v{instr.results[0]} = {combiner.row.format(v=acc)}"]


def is_arg(instr: Instr) -> bool:
    """Whether a reduction returns an index besides its value."""
    return instr.combiner in ARG_COMBINERS


def _as_results(instr: Instr) -> list[str]:
    """Statements that convert both results of an arg-reduction to their types."""
    best, at = instr.results
    lines = [f"v{at} = v{at}.to(tl.int64)"]
    return [*lines, f"v{best} = v{best} != 0"] if instr.dtype == "i1" else lines


def _value(instr: Instr, value: str) -> str:
    """The value to compare. Arg-reductions compare bools as int8: Triton's interpreter orders bools differently."""
    return f"{value}.to(tl.int8)" if instr.dtype == "i1" and instr.combiner in ARG_COMBINERS else value


def _type(instr: Instr) -> str:
    return "tl.int8" if instr.dtype == "i1" and instr.combiner in ARG_COMBINERS else TYPES[instr.dtype]


def _neutral(instr: Instr) -> str:
    """The identity element for a tl.where. A bare number adopts the other operand's type for these types only."""
    _, text = _combined(instr)
    bare = instr.dtype in ("f32", "f64", "i32", "i64")
    return text if bare else f"tl.full((), {text}, {_type(instr)})"


def _combined(instr: Instr) -> tuple[Combiner, str]:
    """The combiner and its identity element. KernelError if the type is not supported."""
    name = _ON_BOOLS.get(instr.combiner, instr.combiner) if instr.dtype == "i1" else instr.combiner
    combiner = COMBINERS.get(name)
    text = None
    if combiner is not None and instr.dtype in FLOATS:
        text = combiner.float_
    elif combiner is not None:
        bits = 8 if instr.dtype == "i1" else int(instr.dtype.removeprefix("u").removeprefix("i"))
        text = combiner.bool_ if instr.dtype == "i1" and name not in ARG_COMBINERS else combiner.int_
        text = text and text.format(least=-(1 << (bits - 1)), greatest=(1 << (bits - 1)) - 1)
    if combiner is None or text is None or instr.dtype == "ui8":
        raise KernelError(
            f"reduction '{instr.combiner}' of {instr.dtype} has no Triton code",
            next_step="widen the values first, or leave the op to a library call",
        )
    return combiner, text
