"""The ways to run a Triton kernel: block sizes and warps by size, addresses of 32 or 64 bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from symshape.codegen.loops import LoopKernel
from symshape.prover.expr import Expr
from symshape.runtime.triton_types import TritonVariant

MAX_PERSISTENT: Final = 4096
_MIN_RBLOCK: Final = 16
# Elements of a tile, and the warps that keep about 8 of them in a thread.
_TILE: Final = 1024
_MAX_WARPS: Final = 16
# Columns of a tile whose fast axis is parallel: full memory sectors per row of it.
_COLUMN_XBLOCK: Final = 64
_COLUMN_PERSISTENT: Final = 64
_SMALL: Final = 1 << 17  # below, larger blocks would leave processors idle


def pointwise_variants(name: str, xnumel: Expr) -> list[TritonVariant]:
    small = TritonVariant("block256", name, f"xnumel <= {_SMALL}", 256, 0, 2)
    large = TritonVariant("block1024", name, "True", 1024, 0, 4)
    size = xnumel.as_int()
    if size is not None:
        return [replace(small if size <= _SMALL else large, condition="True")]
    return [small, large]


def reduction_variants(name: str, rnumel: Expr, column: bool) -> list[TritonVariant]:
    """By the reduced size: persistent ones, each with all reduced points in a tile, then the looped one."""
    largest = _COLUMN_PERSISTENT if column else MAX_PERSISTENT
    sizes = [1 << i for i in range(_MIN_RBLOCK.bit_length() - 1, largest.bit_length())]
    variants = [_persistent(name, rblock, column) for rblock in sizes]
    block = (_COLUMN_XBLOCK, 32, 8) if column else (1, 2048, 8)
    variants.append(TritonVariant("looped", f"{name}_looped", "True", *block))
    size = rnumel.as_int()
    if size is not None:
        fits = [v for v in variants[:-1] if size <= v.rblock] or variants[-1:]
        return [replace(fits[0], condition="True")]
    return variants


def _persistent(name: str, rblock: int, column: bool) -> TritonVariant:
    xblock = _COLUMN_XBLOCK if column else max(1, _TILE // rblock)
    warps = min(_MAX_WARPS, max(1, xblock * rblock // 256))
    return TritonVariant(f"persistent{rblock}", f"{name}_persistent", f"rnumel <= {rblock}", xblock, rblock, warps)


def with_wide(variants: list[TritonVariant], extent: Expr) -> list[TritonVariant]:
    """The variants and, unless every size is a small constant, the same with 64-bit addresses.

    Few points among that many addresses are rare: blocks for few points have no wide form.
    """
    size = extent.as_int()
    if size is not None and size < 1 << 30:
        return variants
    forms = [v for v in variants if v.rblock] or [replace(variants[-1], condition="True")]
    return [*variants, *(replace(v, name=f"{v.name}_wide", index_dtype="int64") for v in forms)]


def is_column(kernel: LoopKernel) -> bool:
    """Whether the fast dim of what is reduced is parallel: neighbouring threads then take neighbouring rows."""
    parallel = [d for d in kernel.dims if not d.reduced]
    reduced = [d for d in kernel.dims if d.reduced]
    votes = 0
    for instr in kernel.code:
        if instr.op == "load" and instr.address is not None and parallel and reduced:
            along_x = instr.address.coefficient(parallel[-1].name) == 1
            along_r = instr.address.coefficient(reduced[-1].name) == 1
            both = any(d.name in instr.address.symbols for d in reduced)
            votes += (along_x - along_r) if both else 0
    return votes > 0
