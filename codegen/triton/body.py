"""Prints the statements of a Triton kernel: index recovery, instructions, reductions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from symshape.analysis.loops import Dim, Instr, LoopKernel
from symshape.artifact.element_types import HALF
from symshape.codegen.triton.index import IndexText
from symshape.codegen.triton.ops import TYPES, bare_operand, literal, op_text, typed
from symshape.codegen.triton.reduce import Block, reduce_tile
from symshape.errors import KernelError
from symshape.prover.numbers.expr import Expr, product

# The axes of a tile that a value varies along: "x" for parallel points ("y" and "x" in a tile of two dims), "r" for
# reduced points.
Axes = frozenset[str]
ROW: Final[Axes] = frozenset({"x"})
_MASKS: Final = {"x": "xmask", "y": "ymask"}
# Operations that yield an element count from one. Subtracting a constant (a variance's correction) gives no denormal.
_OF_COUNTS: Final = frozenset({"arith.index_cast", "arith.sitofp", "arith.subf", "arith.maximumf", "arith.maxnumf"})


@dataclass(frozen=True)
class Segment:
    """A block of reduced points that a program holds. ``suffix`` is appended to the names of values that vary along
    them; ``masked``: lanes may be beyond the last point; ``block``: the constexpr of its size."""

    suffix: str = ""
    masked: bool = True
    block: str = "RBLOCK"


ONE: Final = Segment()  # all reduced points, or those of one step of a loop


class TritonBody:
    """Prints instructions as statements into ``lines``. ``axis_of``: the axis of a dim; default "x", or "r" if reduced;
    "" for a dim with a single index per program. ``segments``: full-level instructions are printed once for each."""

    def __init__(
        self,
        kernel: LoopKernel,
        index: IndexText,
        axis_of: dict[str, str] | None = None,
        segments: Sequence[Segment] = (ONE,),
    ) -> None:
        self.kernel, self.index, self.segments = kernel, index, tuple(segments)
        self._segment = self.segments[0]
        self._rounds = rounds_to_halves(kernel)
        self.eviction = ""  # eviction policy of loads along reduced points; "" for the default
        self.lines: list[str] = []
        self.indent = "    "
        self._axis_of = {d.name: "r" if d.reduced else "x" for d in kernel.dims} | (axis_of or {})
        self._all: Axes = frozenset({"x", *self._axis_of.values()} - {""})
        self.row: Axes = self._all - {"r"}  # axes that row-level values may vary along
        self._text: dict[tuple[int, str], str] = {}  # by value and segment: text of values that have no variable
        self._axes: dict[int, Axes] = {}
        self._constants: dict[int, Instr] = {}
        self._counts: set[int] = set()  # values that are element counts, or counts minus a constant
        self._checked: set[int] = set()
        exprs = [e for i in kernel.code for e in (*i.mask, *(() if i.address is None else (self._address(i),)))]
        self._used = frozenset().union(*(e.symbols for e in exprs))

    def _address(self, instr: Instr) -> Expr:
        assert instr.address is not None
        return self.index.flat(instr.address) if instr.op in ("load", "store") else instr.address

    def line(self, text: str) -> None:
        self.lines.append(self.indent + text)

    # Indices.

    def recover(self, axis: str, dims: Sequence[Dim]) -> None:
        """Prints the indices of ``dims``, recovered from the row-major number of a point."""
        for i, dim in enumerate(dims):
            if dim.name not in self._used:
                continue
            inner = product(d.size for d in dims[i + 1 :])
            point = self.index.renamed.get(axis, axis)
            text = point if inner == 1 else f"{point} // ({self.index.expr(inner)})"
            name = self.index.renamed.get(dim.name, dim.name)
            self.line(f"{name} = {text}" + (f" % ({self.index.expr(dim.size)})" if i else ""))

    def _axes_of(self, *exprs: Expr) -> Axes:
        return frozenset(axis for e in exprs for name in e.symbols if (axis := self._axis_of.get(name)))

    def enter(self, segment: Segment) -> None:
        """Selects the segment that following statements are for."""
        self._segment = segment
        along = ["r", *(name for name, axis in self._axis_of.items() if axis == "r")]
        self.index.renamed = {name: name + segment.suffix for name in along} if segment.suffix else {}

    def _named(self, number: int) -> str:
        """The variable that holds a value."""
        return f"v{number}" + (self._segment.suffix if "r" in self._axes[number] else "")

    def _masks(self, axes: Axes) -> list[str]:
        """The masks of lanes that are within bounds, along these axes."""
        own = {**_MASKS, "r": f"rmask{self._segment.suffix}"} if self._segment.masked else _MASKS
        return [own[axis] for axis in sorted(axes, reverse=True) if axis in own]

    def _level(self, instr: Instr) -> Axes:
        return self.row if instr.row else self._all

    def _pointer(self, arg: int, address: str, has: Axes, needs: Axes) -> str:
        """A pointer broadcast to every axis in ``needs``, that is, of its mask or value, by adding zeros."""
        terms = ([] if address == "0" else [address]) + [self._nothing(axis) for axis in sorted(needs - has)]
        name = self.kernel.args[arg].name
        return f"{name} + ({' + '.join(terms)})" if terms else name

    def _nothing(self, axis: str) -> str:
        """A zero that has the shape of an axis."""
        return f"0 * {self.index.renamed.get(axis, axis)}"

    # Instructions.

    def emit(self, instr: Instr) -> None:
        """Prints one instruction."""
        handler = {
            "load": self._load,
            "store": self._store,
            "extract": self._extract,
            "index": self._index,
            "constant": self._constant,
            "reduce": self._reduce,
            "check_index": self._check_index,
        }.get(instr.op, self._scalar)
        full = not instr.row and instr.op not in ("constant", "reduce")
        for segment in self.segments if full else self.segments[:1]:
            self.enter(segment)
            handler(instr)

    def _define(self, instr: Instr, text: str, axes: Iterable[str], result: int = 0) -> None:
        number = instr.results[result]
        self._axes[number] = frozenset(axes)
        if "r" in self._axes[number] or self._segment is self.segments[0]:
            self.line(f"{self._named(number)} = {text}")

    def operand(self, number: int) -> str:
        """The text of a value as an operand."""
        constant = self._constants.get(number)
        if constant is None:
            return self._text.get((number, self._segment.suffix)) or self._named(number)
        assert constant.value is not None
        return typed(constant.value, constant.dtype)

    def _load(self, instr: Instr) -> None:
        assert instr.address is not None
        axes = self._axes_of(instr.address)
        needs = axes | self._axes_of(*instr.mask)
        masks = [*self._masks(needs), *self._conditions(instr)]
        self._read(instr, self.index.expr(self._address(instr)), axes, needs, masks)

    def _conditions(self, instr: Instr) -> list[str]:
        return [f"({self.index.holds(e)})" for e in instr.mask]

    def _read(self, instr: Instr, address: str, axes: Axes, needs: Axes, masks: list[str]) -> None:
        arg = self.kernel.args[instr.arg]
        if arg.by_value:
            self._define(instr, arg.name, ())
            return
        mask = f", mask={' & '.join(masks)}, other=0" if masks else ""
        if self.eviction and "r" in needs:
            mask += f', eviction_policy="{self.eviction if "x" in axes else "evict_last"}"'  # shared by all rows
        # Without an axis a mask may be a compile-time constant; pointer and mask then are both scalars.
        text = f"tl.load({self._pointer(instr.arg, address, axes, needs)}{mask})"
        self._define(instr, text + (".to(tl.int8, bitcast=True)" if instr.dtype == "ui8" else ""), needs)

    def _extract(self, instr: Instr) -> None:
        axes = frozenset().union(*(self._axes[number] for number in instr.operands))
        address, masks = self._address_of(instr.operands, self.kernel.args[instr.arg].strides, axes)
        self._read(instr, address, axes, axes, [*masks, *self._conditions(instr)])

    def address_of(self, indices: Sequence[int], strides: Sequence[Expr]) -> tuple[str, str]:
        """The address at these indices, and the mask of lanes that are within bounds and have valid indices."""
        address, masks = self._address_of(indices, strides, self._all - {"r"})
        return address, " & ".join(masks)

    def _address_of(self, indices: Sequence[int], strides: Sequence[Expr], axes: Axes) -> tuple[str, list[str]]:
        terms = []
        for number, stride in zip(indices, strides, strict=True):
            constant = self._constants.get(number)
            index = _literal(constant) if constant else f"{self.operand(number)}.to(INDEX)"
            terms.append(index if stride == 1 else f"{index} * ({self.index.expr(stride)})")
        masks = self._masks(axes) + [f"{self._named(number)}_ok" for number in indices if number in self._checked]
        return " + ".join(terms) or "0", masks

    def _store(self, instr: Instr) -> None:
        assert instr.address is not None
        axes, needs = self._axes_of(instr.address), self._level(instr)
        pointer = self._pointer(instr.arg, self.index.expr(self._address(instr)), axes, needs)
        self.line(f"tl.store({pointer}, {self.operand(instr.operands[0])}, mask={' & '.join(self._masks(needs))})")

    def _index(self, instr: Instr) -> None:
        """Defines an index value. A bare dim keeps the address type; arithmetic may exceed it and uses 64 bits."""
        assert instr.address is not None
        (number,) = instr.results
        value = instr.address.as_int()
        self._counts.add(number)
        self._axes[number] = self._axes_of(instr.address)
        if value is not None:
            self._constants[number] = Instr("constant", (number,), (), "index", instr.row, value=value)
            self._axes[number] = frozenset()
        elif instr.address in {Expr.symbol(name) for name in instr.address.symbols}:
            self._text[number, self._segment.suffix] = self.index.expr(instr.address)
        else:
            renamed = self.index.renamed
            wide = {name: f"{renamed.get(name, name)}.to(tl.int64)" for name in instr.address.symbols}
            self._define(instr, self.index.expr(instr.address, wide), self._axes[number])

    def _constant(self, instr: Instr) -> None:
        self._constants[instr.results[0]] = instr
        self._axes[instr.results[0]] = frozenset()

    def _scalar(self, instr: Instr) -> None:
        operands, constants = [], [number in self._constants for number in instr.operands]
        for position, number in enumerate(instr.operands):
            constant = self._constants.get(number)
            bare = constant is not None and bare_operand(instr, position, constants)
            operands.append(_literal(constant) if constant and bare else self.operand(number))
        axes = frozenset().union(*(self._axes[number] for number in instr.operands))
        if (instr.op, instr.source_dtype) == ("arith.divf", "f32") and self._divides_many(axes, instr.operands[-1]):
            x, y = operands[0], self.operand(instr.operands[-1])
            is_count = instr.operands[-1] in self._counts
            text = f"tm.over_count({x}, {y})" if is_count else f"tm.over({x}, {y}, {not self._rounds})"
        elif "r" in axes and self._rounds and (instr.op, instr.source_dtype) == ("math.exp", "f32"):
            text = f"tl.exp({operands[0]})"
        else:
            text = op_text(instr, operands, self.kernel.name)
        if not axes and self._counts_still(instr):
            self._counts.add(instr.results[0])
        self._define(instr, text, axes)

    def _counts_still(self, instr: Instr) -> bool:
        """Whether the result is an element count because the first operand is one."""
        first, *others = instr.operands
        constant = all(number in self._constants for number in others)
        return first in self._counts and instr.op in _OF_COUNTS and constant

    def _divides_many(self, axes: Axes, divisor: int) -> bool:
        """Whether a reduction kernel divides many elements by this one value: those of a row, or all. (A division of a
        row's result counts too: for short rows each thread holds it, so that it runs once per element.)"""
        return any(d.reduced for d in self.kernel.dims) and self._axes[divisor] < axes

    def _check_index(self, instr: Instr) -> None:
        """Stores an error code to the error slot for an index outside [0, size). The index is clamped; nothing is read
        through it."""
        assert instr.address is not None
        value, size = self.operand(instr.operands[0]), self.index.expr(instr.address)
        (number,) = instr.results
        self._axes[number] = self._axes[instr.operands[0]]
        lanes = " & ".join(self._masks(self._level(instr)))
        shape, inside = " + ".join(map(self._nothing, sorted(self._level(instr)))), f"{self._named(number)}_ok"
        self.line(f"{inside} = ({value} >= 0) & ({value} < {size})")
        self.line(f"tl.store(error_slot + ({shape}), {instr.value or 1}, mask=({inside} == 0) & {lanes})")
        self.line("if DEBUG:")
        self.line(f'    tl.device_assert({inside} | ~({lanes}), "index out of range")')
        self._define(instr, f"tl.maximum(tl.minimum({value}, {size} - 1), 0)", self._axes[number])
        self._checked.add(number)

    # Reductions.

    def _reduce(self, instr: Instr) -> None:
        """Prints a reduction over the segments, which hold all reduced points."""
        blocks = []
        for segment in self.segments:
            self.enter(segment)
            value, mask = self.operand(instr.operands[0]), f"rmask{segment.suffix}" if segment.masked else ""
            if not mask and "r" not in self._axes[instr.operands[0]]:  # a row value counts once for each point
                value = f"tl.broadcast_to({value}, [XBLOCK, {segment.block}])"
            blocks.append(Block(value, mask, f"r{segment.suffix}"))
        for line in reduce_tile(instr, blocks):
            self.line(line)
        self.known(instr.results, self._axes[instr.operands[0]] - {"r"})

    def known(self, values: Iterable[int], axes: Axes = ROW) -> None:
        """Declares that variables of these values exist."""
        for number in values:
            self._axes[number] = axes


def rounds_to_halves(kernel: LoopKernel) -> bool:
    """Whether all results are stored as half types, which hide the last bits of float32 values."""
    stored = [kernel.args[instr.arg].dtype for instr in kernel.code if instr.op == "store"]
    return bool(stored) and HALF.issuperset(stored)


def check_types(kernel: LoopKernel) -> None:
    """KernelError if a type has no Triton equivalent."""
    for dtype in [*(a.dtype for a in kernel.args), *(i.dtype for i in kernel.code)]:
        if dtype not in TYPES:
            raise KernelError(
                f"{kernel.name}: values of type {dtype} have no Triton code",
                where=kernel.name,
                next_step="leave operations on them to library calls",
            )


def _literal(constant: Instr) -> str:
    """The literal of a constant instruction; keeps the sign of zero."""
    assert constant.value is not None
    return literal(constant.value)
