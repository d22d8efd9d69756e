"""The ways to run a Triton kernel for which nothing has been planned: by size, 32 or 64-bit addresses, unaligned."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from symshape.codegen.loops import LoopKernel
from symshape.codegen.triton_split import is_column
from symshape.codegen.variants import Variant
from symshape.prover.condition import TRUE, all_of, at_least
from symshape.prover.expr import Expr, maximum, product

MAX_PERSISTENT: Final = 4096
_MIN_RBLOCK: Final = 16
# Elements of a tile, and the warps that keep about 8 of them in a thread.
_TILE: Final = 1024
_MAX_WARPS: Final = 16
# Columns of a tile whose fast axis is parallel: full memory sectors per row of it.
_COLUMN_XBLOCK: Final = 64
_COLUMN_PERSISTENT: Final = 64
_SMALL: Final = 1 << 17  # below, larger blocks would leave processors idle
# Beyond, addresses have 64 bits; the rest up to 2**31 is for the lanes of the last block.
_NARROW_LIMIT: Final = 2**31 - 2**17


def default_variants(kernel: LoopKernel) -> list[Variant]:
    """The variants, the last of which is right at every size."""
    xnumel = product(d.size for d in kernel.dims if not d.reduced)
    rnumel = product(d.size for d in kernel.dims if d.reduced)
    if any(d.reduced for d in kernel.dims):
        variants = _reduction(rnumel, is_column(kernel))
    else:
        variants = _pointwise(xnumel)
    return _with_wide(variants, _extent(kernel, xnumel, rnumel))


def _pointwise(xnumel: Expr) -> list[Variant]:
    small = Variant("block256", "pointwise", at_least(_SMALL, xnumel), 256, num_warps=2)
    large = Variant("block1024", "pointwise", TRUE, 1024)
    size = xnumel.as_int()
    if size is not None:
        return [replace(small if size <= _SMALL else large, condition=TRUE)]
    return [small, large]


def _reduction(rnumel: Expr, column: bool) -> list[Variant]:
    """By the reduced size: persistent ones, each with all reduced points in a tile, then the looped one."""
    largest = _COLUMN_PERSISTENT if column else MAX_PERSISTENT
    sizes = [1 << i for i in range(_MIN_RBLOCK.bit_length() - 1, largest.bit_length())]
    variants = [_persistent(rnumel, rblock, column) for rblock in sizes]
    xblock, rblock = (_COLUMN_XBLOCK, 32) if column else (1, 2048)
    variants.append(Variant("looped", "looped", TRUE, xblock, rblock=rblock, num_warps=8))
    size = rnumel.as_int()
    if size is not None:
        fits = [v for v in variants[:-1] if size <= v.rblock] or variants[-1:]
        return [replace(fits[0], condition=TRUE)]
    return variants


def _persistent(rnumel: Expr, rblock: int, column: bool) -> Variant:
    xblock = _COLUMN_XBLOCK if column else max(1, _TILE // rblock)
    warps = min(_MAX_WARPS, max(1, xblock * rblock // 256))
    condition = at_least(rblock, rnumel)
    return Variant(f"persistent{rblock}", "persistent", condition, xblock, rblock=rblock, num_warps=warps)


def _extent(kernel: LoopKernel, xnumel: Expr, rnumel: Expr) -> Expr:
    """An upper bound of all addresses, counts and symbols, for sizes that are not 0."""
    bounds = [xnumel, rnumel, *(Expr.symbol(name) for name in kernel.symbols)]
    for arg in kernel.args:
        zero = Expr.const(0)
        bounds.append(sum(((n - 1) * s for n, s in zip(arg.sizes, arg.strides, strict=True)), zero))
    return maximum(*dict.fromkeys(bounds))


def _with_wide(variants: list[Variant], extent: Expr) -> list[Variant]:
    """The variants and, unless every size is a small constant, the same with 64-bit addresses.

    Few points among that many addresses are rare: blocks for few points have no wide form.
    """
    narrow = at_least(_NARROW_LIMIT, extent)
    if narrow == TRUE:
        return variants
    forms = [v for v in variants if v.rblock] or [replace(variants[-1], condition=TRUE)]
    wide = [replace(v, name=f"{v.name}_wide", index_bits=64) for v in forms]
    return [*(replace(v, condition=all_of(v.condition, narrow)) for v in variants), *wide]
