"""`emit_triton`: a loop program as readable Triton source with its launch rule."""

from __future__ import annotations

from symshape.codegen.loops import LoopKernel
from symshape.codegen.triton_body import TritonBody, check_types
from symshape.codegen.triton_index import IndexText
from symshape.codegen.triton_pressure import fit
from symshape.codegen.triton_variants import (
    MAX_PERSISTENT,
    is_column,
    pointwise_variants,
    reduction_variants,
    with_wide,
)
from symshape.prover.expr import Expr, maximum, product
from symshape.runtime.triton_types import TritonKernel, TritonVariant

__all__ = ["MAX_PERSISTENT", "TritonKernel", "TritonVariant", "emit_triton"]

_HEADER = '''"""{title}"""

import triton
import triton.language as tl

from symshape.runtime import triton_math as tm
'''
_DEBUG = """
# True: an index out of range stops the kernel where it is found, besides being reported.
DEBUG = tl.constexpr(False)
"""


def emit_triton(kernel: LoopKernel, name: str | None = None) -> TritonKernel:
    """The Triton kernel of a normalised loop program. KernelError for what has no Triton code."""
    check_types(kernel)
    name = name or kernel.name
    index = IndexText(kernel)
    xnumel = product(d.size for d in kernel.dims if not d.reduced)
    rnumel = product(d.size for d in kernel.dims if d.reduced)
    reduction = any(d.reduced for d in kernel.dims)
    if reduction:
        variants = reduction_variants(name, rnumel, is_column(kernel))
    else:
        variants = pointwise_variants(name, xnumel)
    functions = [_function(kernel, index, f) for f in dict.fromkeys(v.function for v in variants)]
    title = f"{name}: {xnumel} points" + (f", each of {rnumel} reduced" if reduction else "") + "."
    header = _HEADER.format(title=title) + (_DEBUG if kernel.checks_index else "")
    extent = _extent(kernel, xnumel, rnumel)
    return TritonKernel(
        name=name,
        source="\n\n".join([header, *functions]),
        tensors=tuple((a.name, a.dtype) for a in kernel.args),
        symbols=kernel.symbols,
        checks_index=kernel.checks_index,
        xnumel=xnumel.python(),
        rnumel=rnumel.python(),
        extent=extent.python(),
        variants=tuple(fit(variant, kernel) for variant in with_wide(variants, extent)),
    )


def _extent(kernel: LoopKernel, xnumel: Expr, rnumel: Expr) -> Expr:
    """An upper bound of all addresses, counts and symbols, for sizes that are not 0."""
    bounds = [xnumel, rnumel, *(Expr.symbol(name) for name in kernel.symbols)]
    for arg in kernel.args:
        zero = Expr.const(0)
        bounds.append(sum(((n - 1) * s for n, s in zip(arg.sizes, arg.strides, strict=True)), zero))
    return maximum(*dict.fromkeys(bounds))


def _function(kernel: LoopKernel, index: IndexText, name: str) -> str:
    """One jit function; its name says which form of a reduction it has."""
    parallel = [d for d in kernel.dims if not d.reduced]
    reduced = [d for d in kernel.dims if d.reduced]
    looped = name.endswith("_looped")
    slot = ["error_slot"] if kernel.checks_index else []
    constants = [f"{c}: tl.constexpr" for c in ("INDEX", "XBLOCK", *(("RBLOCK",) if reduced else ()))]
    body = TritonBody(kernel, index)
    for symbol in kernel.symbols:
        body.line(f"{symbol} = tl.cast({symbol}, INDEX)")
    body.line(f"xnumel = {index.expr(product(d.size for d in parallel))}")
    lanes = "tl.arange(0, XBLOCK)" + ("[:, None]" if reduced else "")
    body.line(f"x = tl.program_id(0).to(INDEX) * XBLOCK + {lanes}")
    body.line("xmask = x < xnumel")
    body.recover("x", parallel)
    if reduced:
        body.line(f"rnumel = {index.expr(product(d.size for d in reduced))}")
    if looped:
        body.emit_passes()
    else:
        if reduced:
            body.line("r = tl.arange(0, RBLOCK)[None, :].to(INDEX)")
            body.line("rmask = r < rnumel")
            body.recover("r", reduced)
        for instr in kernel.code:
            body.emit(instr)
    arguments = ", ".join([*(a.name for a in kernel.args), *kernel.symbols, *slot, *constants])
    return "\n".join(["@triton.jit", f"def {name}({arguments}):", *body.lines, ""])
