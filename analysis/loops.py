"""The loop program of one kernel: what the CPU and the Triton emitter print from.

Plain, frozen data without IR handles. Names of scalar operations are MLIR's ("arith.addf", "math.exp").
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from symshape.prover.numbers.condition import Condition
from symshape.prover.numbers.expr import Expr


@dataclass(frozen=True)
class Dim:
    """One dim of the iteration space. ``name`` ("d0") is the symbol that stands for it in address expressions.

    ``origin``: the dim of the kernel's space that it is, or is the fast part of.
    """

    name: str
    size: Expr  # over the kernel's index symbols
    reduced: bool
    origin: str = ""


@dataclass(frozen=True)
class Arg:
    """A tensor argument: ``dtype`` is MLIR's element type as text ("f32", "bf16", "i1", "ui8", ...); ``by_value``: it
    has one element, and the kernel gets that instead of an address."""

    name: str
    dtype: str
    output: bool
    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    by_value: bool = False

    @property
    def bits(self) -> int:
        """Of an element in memory."""
        return element_bits(self.dtype)


def element_bits(dtype: str) -> int:
    """Bits of an element in memory: a bool has a byte, an index is as wide as an address."""
    number = re.search(r"\d+", dtype)
    bits = int(number[0]) if number else 64
    return max(8, 2 * bits if dtype.startswith("complex") else bits)


@dataclass(frozen=True)
class Instr:
    """One scalar instruction, evaluated at every point of its level.

    op          operands                      attributes used
    "load"      -                             arg, address, mask; the value is of the argument's dtype
    "store"     (value)                       arg, address (no result)
    "scatter"   (value, index values)         arg, combiner; value: the argument that ``arg`` is a copy of at the start;
                                              in order of the reduced dims (no result)
    "extract"   (index values, one per dim)   arg, mask; address = sum of index * stride of the argument
    "index"     -                             address: an index-typed Expr over dims and symbols (linalg.index,
                                              affine.apply, index args)
    "constant"  -                             value: int | float | bool
    "holds"     -                             mask: whether its one expression is >= 0, for code on CPUs
    "reduce"    (value)                       combiner; a full-level instruction whose results are row-level values
    "across"    (value)                       combiner; a reduction along the parallel dims, the points of which a
                                              program adds up: what it finds is a part of the result (`Mixed`)
    "carried"   -                             carry, value: what "carry" of this number was given at the point before,
                                              along the reduced dims in order; ``value`` at the first
    "carry"     (value)                       carry (no result); of an associative scan (value, element)
    "element"   (value)                       carry: what an associative scan combines with what "carried" of the same
                                              number is, which has no ``value`` then
    "scanned"   -                             carry: the result of an associative scan at the point
    "check_index" (index)                     address: the size (Expr); value: what the error slot gets where it is
                                              none (``INDEX_ERRORS``); result is the clamped index
    "arith.*", "math.*"  operands             predicate for cmpi/cmpf (MLIR's text: "slt", "olt", "une", ...)
    """

    op: str
    results: tuple[int, ...]
    operands: tuple[int, ...]
    dtype: str  # of the first result ("f32", "i1", "index", ...); of the stored value for "store"
    row: bool  # row level (parallel dims only) or full level
    arg: int = -1
    address: Expr | None = None  # elements, relative to the argument's data pointer
    mask: tuple[Expr, ...] = ()  # where every expression is >= 0 it is read; elsewhere the value is 0
    combiner: str = ""  # add mul max min or and argmax argmin; of a scatter also set
    value: int | float | bool | None = None
    carry: int = -1
    predicate: str = ""
    source_dtype: str = ""  # of the first operand, for casts and comparisons


EFFECTS = frozenset({"store", "scatter", "carry", "check_index"})  # what instructions are there for
INTEGER_DIVISIONS = frozenset(
    {
        "arith.divsi",
        "arith.divui",
        "arith.remsi",
        "arith.remui",
        "arith.floordivsi",
        "arith.ceildivsi",
        "arith.ceildivui",
    }
)


@dataclass(frozen=True)
class LoopKernel:
    """A kernel over one iteration space: ``code`` in dependence order, row-level and full-level instructions mixed."""

    name: str
    dims: tuple[Dim, ...]
    args: tuple[Arg, ...]
    symbols: tuple[str, ...]  # index arguments, in order, as named in the expressions ("s0", ...)
    code: tuple[Instr, ...]
    known: tuple[Condition, ...] = ()  # what its function assumes of the symbols
    mixed: Mixed | None = None

    @property
    def numbers(self) -> frozenset[str]:
        """The index arguments that are data alone, and part of no address."""
        of_dims = [dim.size for dim in self.dims]
        of_args = [e for arg in self.args for e in (*arg.sizes, *arg.strides)]
        of_code = [e for i in self.code for e in (*i.mask, i.address) if e is not None and i.op != "index"]
        return frozenset(self.symbols).difference(*(e.symbols for e in (*of_dims, *of_args, *of_code)))

    @property
    def scatter(self) -> Instr | None:
        """What a kernel does that writes at data-dependent indices: it does nothing else."""
        return next((i for i in self.code if i.op == "scatter"), None)

    @property
    def is_scan(self) -> bool:
        """Whether points are computed one after the other along the reduced dims."""
        return any(i.op == "carry" for i in self.code)

    @property
    def is_associative_scan(self) -> bool:
        """Whether what is between "carried" and "carry" may be computed in any order of brackets."""
        return any(i.op == "element" for i in self.code)

    @property
    def checks_index(self) -> bool:
        return any(i.op == "check_index" for i in self.code)

    @property
    def may_divide_by_zero(self) -> bool:
        """An integer division by anything but a constant other than 0."""
        constants = {i.results[0] for i in self.code if i.op == "constant" and i.value}
        return any(i.op in INTEGER_DIVISIONS and i.operands[1] not in constants for i in self.code)

    def has_error_slot(self, target: str) -> bool:
        """Whether the kernel may find an error. Division by zero is one on CPUs, and some number on GPUs: eager's."""
        return self.checks_index or target == "cpu" and self.may_divide_by_zero


@dataclass(frozen=True)
class Mixed:
    """Of a loop program that reduces its points along both kinds of dims; all parts have its arguments, and its numbers
    of values:

    ``rows``      the kernel that reduces the rows
    ``columns``   the kernels whose reductions the program finds part by part (op "across")
    ``epilogue``  what these compute once their reductions are known, over the dims of the program
    ``launches``  the kernels that compute the same one after the other, each with the names of its arguments
    """

    rows: LoopKernel
    columns: tuple[LoopKernel, ...]
    epilogue: tuple[Instr, ...]
    launches: tuple[tuple[str, tuple[str, ...]], ...]
