"""Triton kernels as plain data: what the code generator makes, the launcher runs and a cache may keep."""

from __future__ import annotations

from dataclasses import dataclass

POINTERS = {
    "f32": "*fp32", "f64": "*fp64", "f16": "*fp16", "bf16": "*bf16", "i1": "*i1",
    "i8": "*i8", "i16": "*i16", "i32": "*i32", "i64": "*i64", "ui8": "*u8",
}  # fmt: skip


@dataclass(frozen=True)
class TritonVariant:
    """One way to run a kernel: a function of its source with its constexpr arguments."""

    name: str
    function: str
    condition: str  # Python over xnumel and rnumel; the first variant that holds is run
    xblock: int
    rblock: int  # 0: the function has no RBLOCK
    num_warps: int
    index_dtype: str = "int32"  # the type of address arithmetic


@dataclass(frozen=True)
class TritonKernel:
    """A kernel's source and how to launch it. Sizes are Python expressions over ``symbols``.

    Arguments of each function: a pointer per tensor, the symbols, the int64 error slot if ``checks_index``, then the
    constexprs INDEX, XBLOCK and, in reductions, RBLOCK. The grid is (ceil(xnumel / XBLOCK),).
    """

    name: str
    source: str  # a Python module
    tensors: tuple[tuple[str, str], ...]  # name and MLIR element type
    symbols: tuple[str, ...]
    checks_index: bool
    xnumel: str  # points of the parallel dims
    rnumel: str  # points of the reduced dims; "1" without any
    extent: str  # no address, size or symbol is beyond it: decides about 32-bit addresses
    variants: tuple[TritonVariant, ...]  # the 32-bit ones, then the same with 64 bits

    @property
    def arguments(self) -> tuple[tuple[str, str], ...]:
        """Name and Triton type ("*fp32"; "int" for a symbol) of every argument that is no constexpr."""
        tensors = [(name, POINTERS[dtype]) for name, dtype in self.tensors]
        slot = [("error_slot", "*i64")] if self.checks_index else []
        return (*tensors, *((name, "int") for name in self.symbols), *slot)
