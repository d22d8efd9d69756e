"""Values during emission: uniform over the lanes, affine in the lane number, or one per lane."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from symshape.analysis.loops import Instr, LoopKernel
from symshape.codegen.cpu.emit import types
from symshape.codegen.cpu.emit.writer import Writer
from symshape.codegen.cpu.objects.target import Target
from symshape.codegen.cpu.schedule.interleave import Member
from symshape.codegen.cpu.schedule.packed_rows import lane_stride
from symshape.prover.numbers.expr import Expr


@dataclass(frozen=True)
class Value:
    """A value. ``name``: its SSA value: a scalar if uniform; if ``stride`` is not 0, the scalar of lane 0, to which
    lane i adds i*stride (only i64 registers); else a vector. ``bits``: for a float that bf16 represents exactly, a
    function that prints its bf16 bits (a scalar if uniform), so that narrowing it needs no rounding."""

    name: str
    dtype: str
    uniform: bool = True
    stride: int = 0
    literal: int | float | bool | None = None  # of a constant
    bits: Callable[[], str] | None = field(default=None, compare=False)

    @property
    def affine(self) -> bool:
        """Whether a scalar and a constant stride describe it."""
        return self.uniform or self.stride != 0


@dataclass(frozen=True)
class Packed:
    """Whole rows that share a vector. ``sizes``: of the inner dims, outermost first. ``indices``: for the lane
    dim, which runs over rows, and for each inner dim, what each lane adds to the index in lane 0 (vectors of i64).
    ``active``: the lanes of as many rows as fit; ``full``: an i1, whether there are as many."""

    sizes: dict[str, Expr]
    indices: dict[str, str]
    active: str
    full: str


@dataclass
class State:
    """The emitter's state inside one kernel body.

    ``symbols``: dims and index arguments -> i64 scalars. ``lane``: the dim along the lanes; None where one point is
    computed at a time. ``mask``: the active lanes, None if all are; ``whole``: an i1, whether all are;
    ``single``: there is but the first.
    ``uniform_depth``: the depth of the innermost region around the vector loop, where scalar loads go. ``error``: the
    address of the error slot, "" without one. ``safe``: memory that may always be read, for inactive lanes.
    ``workspace``: the address of the workspace of split reductions. ``packed``: see `Packed`.
    ``rows``: the dim of a loop inside of the vector loop, and the depth around it, where loads go that do not vary
    along it.
    """

    writer: Writer
    kernel: LoopKernel
    target: Target
    symbols: dict[str, str] = field(default_factory=dict)
    pointers: list[str] = field(default_factory=list)
    lane: str | None = None
    mask: str | None = None
    whole: str = ""
    single: bool = False
    uniform_depth: int = 0
    error: str = ""
    safe: str = ""
    workspace: str = ""
    shared: dict[str, str] = field(default_factory=dict)  # helper functions this kernel calls: name -> text
    groups: Mapping[Instr, Member] = field(default_factory=dict)  # accesses that are made together, see `interleave`
    packed: Packed | None = None
    rows: tuple[str, int] | None = None
    waiting: dict[int, dict[int, str]] = field(default_factory=dict)  # what is to be stored together: group -> values

    @property
    def width(self) -> int:
        """Lanes per vector."""
        return self.target.lanes

    def varies(self, expr: Expr) -> bool:
        """Whether the expression depends on the lane."""
        names = (self.lane,) if self.packed is None else self.packed.indices
        return not expr.symbols.isdisjoint(names)

    def lane_strides(self, expr: Expr) -> dict[str, Expr] | None:
        """The coefficients of the dims that run along the lanes; None if the expression is not affine in them."""
        names = ([] if self.lane is None else [self.lane]) if self.packed is None else self.packed.indices
        found = {name: expr.coefficient(name) for name in names}
        return None if None in found.values() else {name: one for name, one in found.items() if one is not None}

    def lane_index(self, name: str) -> str:
        """What each lane adds to the index of a dim that runs along the lanes."""
        return self.iota() if self.packed is None else self.packed.indices[name]

    def stride(self, expr: Expr) -> Expr | None:
        """What each lane adds to the expression's value in the lane before; None if that is not one number."""
        strides = self.lane_strides(expr)
        if strides is None or self.lane is None:
            return None if strides is None else Expr.const(0)
        return strides[self.lane] if self.packed is None else lane_stride(strides, self.packed.sizes, self.lane)

    def vector(self, type_: str) -> str:
        """The vector type of an element type."""
        return f"vector<{self.width}x{type_}>"

    def in_memory(self, name: str, dtype: str, *, uniform: bool) -> str:
        """A register as what memory holds of it: of a bool a byte, anything else as it is."""
        if dtype != "i1":
            return name
        bools, type_ = ("i1", "i8") if uniform else (self.vector("i1"), self.vector("i8"))
        return self.writer.pure(f"arith.extui {name} : {bools} to {type_}")

    def in_register(self, name: str, dtype: str, *, uniform: bool) -> str:
        """The inverse of `in_memory`: what was loaded, as a register."""
        if dtype != "i1":
            return name
        zero, type_ = (self.constant(0, "i8"), "i8") if uniform else (self.splat(0, "i8"), self.vector("i8"))
        return self.writer.pure(f"arith.cmpi ne, {name}, {zero} : {type_}")

    def stack_buffer(self, count: int, dtype: str) -> str:
        """The address of ``count`` elements on the stack of the kernel's function, allocated outside of all loops."""
        kind, many = types.memory(dtype), self.constant(count, "i64")
        with self.writer.within(0):
            return self.writer.emit(f"llvm.alloca {many} x {kind} {{alignment = 64 : i64}} : (i64) -> !llvm.ptr")

    def element(self, pointer: str, offset: str, dtype: str) -> str:
        """The address of an element, ``offset`` elements behind the pointer."""
        kind = types.memory(dtype)
        return self.writer.pure(f"llvm.getelementptr {pointer}[{offset}] : (!llvm.ptr, i64) -> !llvm.ptr, {kind}")

    def constant(self, value: float | int | bool, type_: str) -> str:
        """A scalar constant."""
        suffix = f" : {type_}" if type_ != "i1" else ""
        return self.writer.pure(f"arith.constant {types.literal(value, type_)}{suffix}")

    def splat(self, value: float | int | bool, type_: str) -> str:
        """A vector constant with the same value in all lanes."""
        return self.writer.pure(f"arith.constant dense<{types.literal(value, type_)}> : {self.vector(type_)}")

    def iota(self, type_: str = "i64") -> str:
        """The lane numbers."""
        lanes = ", ".join(map(str, range(self.width)))
        return self.writer.pure(f"arith.constant dense<[{lanes}]> : {self.vector(type_)}")

    def broadcast(self, name: str, type_: str) -> str:
        """A scalar in all lanes."""
        return self.writer.pure(f"vector.broadcast {name} : {type_} to {self.vector(type_)}")

    def lanes(self, value: Value) -> str:
        """The value as a vector."""
        type_ = types.register(value.dtype)
        if value.uniform:
            return self.broadcast(value.name, type_)
        if not value.stride:
            return value.name
        return self.along(value.name, self.constant(value.stride, type_), type_)

    def along(self, base: str, stride: str, type_: str) -> str:
        """base + lane number * stride, as a vector of integers."""
        vector = self.vector(type_)
        step = self.writer.pure(f"arith.muli {self.broadcast(stride, type_)}, {self.iota(type_)} : {vector}")
        return self.writer.pure(f"arith.addi {self.broadcast(base, type_)}, {step} : {vector}")

    def active(self) -> str:
        """The mask of active lanes, as a vector of i1."""
        return self.mask or self.splat(True, "i1")
