"""The loop program of a kernel: the data structure that the CPU and Triton emitters print from.

Plain, frozen data without IR handles. Scalar operations have MLIR's names ("arith.addf", "math.exp").
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from symshape.prover.numbers.condition import Condition
from symshape.prover.numbers.expr import Expr


@dataclass(frozen=True)
class Dim:
    """One dim of the iteration space. ``name`` ("d0") is its index's symbol in address expressions.

    ``origin``: the dim of the kernel's original space that this is, or is the inner part of after a split.
    """

    name: str
    size: Expr  # over the kernel's index symbols
    reduced: bool
    origin: str = ""


@dataclass(frozen=True)
class Arg:
    """A tensor argument. ``dtype`` is MLIR's element type as text ("f32", "bf16", "i1", "ui8", ...); ``sizes`` and
    ``strides`` are in elements. ``by_value``: the kernel takes the value of its only element instead of an address."""

    name: str
    dtype: str
    output: bool
    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    by_value: bool = False

    @property
    def bits(self) -> int:
        """Bits of an element in memory."""
        return element_bits(self.dtype)


def element_bits(dtype: str) -> int:
    """Bits of an element in memory: a bool takes a byte, an index 64 bits, a complex number both of its parts."""
    number = re.search(r"\d+", dtype)
    bits = int(number[0]) if number else 64
    return max(8, 2 * bits if dtype.startswith("complex") else bits)


@dataclass(frozen=True)
class Instr:
    """One scalar instruction, evaluated at each point of its level (row level or full level).

    op          operands                      attributes used
    "load"      -                             arg, address, mask; the value is of the argument's dtype
    "store"     (value)                       arg, address (no result)
    "scatter"   (value, index values)         arg, combiner (no result); value: the argument whose contents ``arg`` has
                                              initially; runs in order of the reduced dims
    "extract"   (index values, one per dim)   arg, mask; address = sum of index * stride of the argument
    "index"     -                             address: an index-typed Expr over dims and symbols (linalg.index,
                                              affine.apply, index args)
    "constant"  -                             value: int | float | bool
    "holds"     -                             mask: whether its one expression is >= 0, for code on CPUs
    "reduce"    (value)                       combiner; a full-level instruction whose results are row-level values
    "across"    (value)                       combiner; a reduction along the parallel dims over the points of one
                                              program; its result is a partial result (`Mixed`)
    "carried"   -                             carry, value: the operand of the "carry" with this number at the previous
                                              point along the reduced dims; ``value`` at the first point
    "carry"     (value)                       carry (no result); for an associative scan (value, element)
    "element"   (value)                       carry: of an associative scan, the element that is combined with the
                                              "carried" of this number, which then has no ``value``
    "scanned"   -                             carry: the result of an associative scan at the point
    "check_index" (index)                     address: the size (Expr); value: the error code for an index out of range
                                              (``INDEX_ERRORS``); the result is the clamped index
    "arith.*", "math.*"  operands             predicate for cmpi/cmpf (MLIR's text: "slt", "olt", "une", ...)
    """

    op: str
    results: tuple[int, ...]
    operands: tuple[int, ...]
    dtype: str  # of the first result ("f32", "i1", "index", ...); of the stored value for "store"
    row: bool  # row level (parallel dims only) or full level
    arg: int = -1
    address: Expr | None = None  # elements, relative to the argument's data pointer
    mask: tuple[Expr, ...] = ()  # the element is read if every expression is >= 0; otherwise the value is 0
    combiner: str = ""  # add mul max min or and argmax argmin; a scatter may also have "set"
    value: int | float | bool | None = None
    carry: int = -1
    predicate: str = ""
    source_dtype: str = ""  # of the first operand, for casts and comparisons


EFFECTS = frozenset({"store", "scatter", "carry", "check_index"})  # instructions that are never dead
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
    """A kernel over one iteration space. ``code`` has row-level and full-level instructions in dependence order."""

    name: str
    dims: tuple[Dim, ...]
    args: tuple[Arg, ...]
    symbols: tuple[str, ...]  # index arguments, in order, as named in the expressions ("s0", ...)
    code: tuple[Instr, ...]
    known: tuple[Condition, ...] = ()  # conditions on symbols that the kernel's function assumes
    mixed: Mixed | None = None

    @property
    def numbers(self) -> frozenset[str]:
        """The index arguments that are used as data only, in no size, address or mask."""
        of_dims = [dim.size for dim in self.dims]
        of_args = [e for arg in self.args for e in (*arg.sizes, *arg.strides)]
        of_code = [e for i in self.code for e in (*i.mask, i.address) if e is not None and i.op != "index"]
        return frozenset(self.symbols).difference(*(e.symbols for e in (*of_dims, *of_args, *of_code)))

    @property
    def scatter(self) -> Instr | None:
        """The scatter of a kernel that writes at data-dependent indices, which has no other effects; else None."""
        return next((i for i in self.code if i.op == "scatter"), None)

    @property
    def is_scan(self) -> bool:
        """Whether points along the reduced dims must be computed one after the other."""
        return any(i.op == "carry" for i in self.code)

    @property
    def is_associative_scan(self) -> bool:
        """Whether the scan's function, the code between "carried" and "carry", is associative."""
        return any(i.op == "element" for i in self.code)

    @property
    def checks_index(self) -> bool:
        return any(i.op == "check_index" for i in self.code)

    @property
    def may_divide_by_zero(self) -> bool:
        """Whether an integer division has a divisor other than a nonzero constant."""
        constants = {i.results[0] for i in self.code if i.op == "constant" and i.value}
        return any(i.op in INTEGER_DIVISIONS and i.operands[1] not in constants for i in self.code)

    def has_error_slot(self, target: str) -> bool:
        """Whether the kernel may report an error. Integer division by zero is an error on CPUs only; on GPUs its result
        is some number, as in eager mode."""
        return self.checks_index or target == "cpu" and self.may_divide_by_zero


@dataclass(frozen=True)
class Mixed:
    """The parts of a loop program that reduces its points along rows and along columns (`mixed_reductions`). All parts
    share its arguments and its numbering of values.

    ``rows``      the kernel that reduces rows
    ``columns``   the kernels whose reductions each program computes as partial results (op "across")
    ``epilogue``  what the column kernels compute after their reductions, over the dims of the program
    ``launches``  the separate kernels that compute the same, in order, each with the names of its arguments
    """

    rows: LoopKernel
    columns: tuple[LoopKernel, ...]
    epilogue: tuple[Instr, ...]
    launches: tuple[tuple[str, tuple[str, ...]], ...]
