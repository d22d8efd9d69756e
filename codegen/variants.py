"""Reads the table of variants that the stage ``planned`` has written into a kernel's function."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from torch_mlir import ir

from symshape.analysis.loops import LoopKernel
from symshape.dialects.accessors import function_name, iterators
from symshape.dialects.plans import ALIGNMENT, VARIANT_FIELDS, PlanSizes, multiple_of
from symshape.errors import KernelError
from symshape.prover.numbers.condition import TRUE, Condition
from symshape.prover.numbers.expr import Expr


@dataclass(frozen=True)
class Variant:
    """One way to run a kernel: a form (``FORMS``), its blocks, and when it is taken.

    Expressions are over the kernel's index symbols ("s0", ...), "processors" (multiprocessors of the GPU) and
    "addressK" (data address of argument K in bytes), read at each launch. The first variant of a kernel whose
    ``condition`` holds is run; the last one's is TRUE. A condition implies everything that the variant relies on: that
    the reduced points fit into ``rblock`` ("persistent"), or fill it and the rest fits into ``yblock`` ("headed"), that
    addresses fit into ``index_bits``, that ``aligned`` holds.

    ``xblock``      points of the parallel dims per program; in a "tile" points of its second dim
    ``yblock``      "tile": points of its first dim; "headed": maximum reduced points after the first ``rblock``;
                    "split", "split_persistent", "mixed", "mixed_split": partial results of a row (or column) that the
                    second launch takes at a time
    ``rblock``      reduced points per step ("persistent": all of them; "headed": those that always exist;
                    "split_persistent", "mixed_split": those of a program; "mixed": all of them)
    ``num_stages``  "mixed": groups of rows whose reads are in flight together
    ``one_launch``  "split", "split_persistent": the program of a group of rows that ends last combines their partial
                    results; there is no second launch
    ``index_bits``  of address arithmetic: 32 or 64
    ``aligned``     multiples of 16: names of arguments ("in0": its address in bytes), of symbols ("s1": elements),
                    and, except in a "tile", of mask bounds: "xnumel" and "rnumel", the numbers of parallel and of
                    reduced points
    ``splits``      "split": programs for each group of ``xblock`` rows, at least 1. Each takes
                    ceildiv(rnumel, splits) reduced points, rounded up to a multiple of ``rblock``. In the form
                    "split_persistent" as many programs as needed. "mixed": programs that share the rows
    ``dims``        "tile": names of two dims of the normalised kernel; the second is the fast one of the stores, the
                    first that of the loads that are not along it
    """

    name: str
    form: str
    condition: Condition
    xblock: int
    yblock: int = 0
    rblock: int = 0
    num_warps: int = 4
    num_stages: int = 1
    one_launch: bool = False
    index_bits: int = 32
    aligned: tuple[str, ...] = ()
    splits: Expr | None = None
    dims: tuple[str, ...] = ()


def read_variants(func_op: Any) -> tuple[Variant, ...]:
    """The variants of a kernel function, in the order in which they are tried.

    One that is right for every size where no pass has planned any. ``dims`` are named as in the function's space.
    """
    block = func_op.operation.regions[0].blocks[0]
    sizes = PlanSizes(block)
    variants: list[Variant] = []
    reduces = False
    for view in block.operations:
        op = view.operation
        if op.name == "symshape.variant":
            variants.append(_read(op, sizes))
        elif op.name == "symshape.space":
            reduces = "reduction" in iterators(op)
        else:
            sizes.read(op)
    if not variants:
        return (general(reduces),)
    if variants[-1].condition != TRUE:
        raise KernelError(
            f"no variant of {function_name(func_op)} is left where none of the conditions holds",
            next_step="the condition of the last symshape.variant has to be true",
        )
    return tuple(variants)


def general(reduces: bool) -> Variant:
    """Right at every size: 64-bit addresses, nothing taken to be aligned."""
    if reduces:
        return Variant("looped_wide", "looped", TRUE, 1, rblock=1024, num_warps=8, index_bits=64)
    return Variant("block_wide", "pointwise", TRUE, 512, index_bits=64)


def for_loops(variants: Iterable[Variant], kernel: LoopKernel) -> tuple[Variant, ...]:
    """The variants with the dims of tiles named as in the normalised kernel; without tiles whose dims do not exist any
    more."""
    names = {dim.origin: dim.name for dim in kernel.dims}
    result = []
    for variant in variants:
        if all(dim in names for dim in variant.dims):
            dims = tuple(names[dim] for dim in variant.dims)
            result.append(variant if dims == variant.dims else replace(variant, dims=dims))
    return tuple(result)


def _read(op: Any, sizes: PlanSizes) -> Variant:
    fields: dict[str, Any] = {}
    for key in VARIANT_FIELDS:
        value = op.attributes[key]
        fields[key] = tuple(ir.StringAttr(a).value for a in value) if isinstance(value, ir.ArrayAttr) else value.value
    condition, *splits = op.operands
    fields["splits"] = sizes.expr(splits[0]) if splits else None
    return Variant(condition=sizes.condition(condition), **fields)


def condition_text(condition: Condition) -> str:
    """A condition as Python source; all tests for multiples of 16 are one: ``(a | b | c) & 15 == 0``."""
    parts = condition.operands if condition.kind == "and" else (condition,)
    multiples = [base for part in parts if (base := multiple_of(part)) is not None]
    if len(multiples) < 2:
        return condition.python()
    texts = [f"({part})" if part.kind == "or" else part.python() for part in parts if multiple_of(part) is None]
    joined = " | ".join(f"({base})" if len(base.terms) > 1 else base.python() for base in multiples)
    return " and ".join([*texts, f"({joined}) & {ALIGNMENT - 1} == 0"])
