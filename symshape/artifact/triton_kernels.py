"""Triton kernels as plain data: made by the code generator, run by the launcher, kept by the cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

POINTERS = {
    "f32": "*fp32",
    "f64": "*fp64",
    "f16": "*fp16",
    "bf16": "*bf16",
    "i1": "*i1",
    "i8": "*i8",
    "i16": "*i16",
    "i32": "*i32",
    "i64": "*i64",
    "ui8": "*u8",
}
# Of a number that is passed by value. Half types are exact as 32 bits; 64 come as an integer of the same bits, since
# Triton takes a Python float for 32.
NUMBERS = {**dict.fromkeys(("f32", "f16", "bf16"), "fp32"), **dict.fromkeys(("f64", "i64"), "i64")}


@dataclass(frozen=True)
class TritonStage:
    """One launch: a function of the source, its constexpr arguments (without INDEX), and the grid's size.
    ``registers``: maximum per thread, 0 for no limit."""

    function: str
    constants: tuple[tuple[str, int], ...]
    num_warps: int
    programs: str  # Python over the symbols, xnumel, rnumel and splits
    registers: int = 0


@dataclass(frozen=True)
class TritonVariant:
    """One way to run a kernel: one launch, or several that share a workspace ("split"), or other kernels ("separate":
    no stages).

    ``aligned``: names of the arguments that are known to be multiples of 16 (pointers in bytes).
    """

    name: str
    form: str
    stages: tuple[TritonStage, ...]
    index_bits: int
    aligned: tuple[str, ...]
    condition: str  # Python over the symbols, processors and addresses; the first variant that holds is run
    splits: str = ""
    workspace: tuple[tuple[str, str], ...] = ()  # element types of partial results, and how many elements they take
    counters: str = ""  # how many 32-bit counters the launches share, which are zero before and after each of them

    @property
    def index_dtype(self) -> str:
        """The type of address arithmetic."""
        return f"int{self.index_bits}"


@dataclass(frozen=True)
class TritonKernel:
    """A kernel's source and how to launch it. Sizes are Python expressions over ``symbols``.

    Every function takes the tensors, the symbols, the int64 error slot if ``checks_index``, then its further arguments
    in ``functions`` ("workspace_f32", "splits"), then its constexprs, INDEX first. ``launcher`` is the source of the
    function ``launch``, see codegen/triton/launcher.py.
    """

    name: str
    source: str  # a Python module
    tensors: tuple[tuple[str, str], ...]  # name and MLIR element type
    symbols: tuple[str, ...]
    checks_index: bool
    xnumel: str  # points of the parallel dims
    rnumel: str  # points of the reduced dims; "1" without any
    variants: tuple[TritonVariant, ...]
    functions: Mapping[str, tuple[str, ...]]
    launcher: str
    by_value: tuple[str, ...] = ()  # tensors of one element that are passed as numbers
    data: tuple[str, ...] = ()  # symbols that are part of no address: 64 bits in every variant
    calls: tuple[str, ...] = ()  # other kernels that its launcher calls

    @property
    def placed(self) -> list[tuple[int, str]]:
        """Position and name of the tensors that are no numbers: the kernel's outputs at least."""
        return [(i, name) for i, (name, _) in enumerate(self.tensors) if name not in self.by_value]

    def arguments(self, function: str) -> tuple[tuple[str, str], ...]:
        """Name and Triton type of every argument of a function that is no constexpr ("*fp32"; "int" for a number that
        is as wide as addresses)."""
        tensors = [
            (name, NUMBERS.get(dtype, "i64") if name in self.by_value else POINTERS[dtype])
            for name, dtype in self.tensors
        ]
        slot = [("error_slot", "*i64")] if self.checks_index else []
        own = [(name, _own_type(name)) for name in self.functions[function]]
        symbols = [(name, "i64" if name in self.data else "int") for name in self.symbols]
        return (*tensors, *symbols, *slot, *own)


def _own_type(name: str) -> str:
    prefix, _, dtype = name.partition("_")
    return "*i32" if name == "counters" else POINTERS[dtype] if prefix == "workspace" else "int"
