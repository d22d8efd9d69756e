"""`emit_triton`: prints a loop program and its variants as readable Triton source with a launcher."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from symshape.analysis.loops import LoopKernel
from symshape.artifact.triton_kernels import TritonKernel, TritonStage, TritonVariant
from symshape.codegen.triton.body import check_types
from symshape.codegen.triton.forms import function_of, groups_text, stage_of
from symshape.codegen.triton.function import ALIGNED, WHOLE, FunctionText
from symshape.codegen.triton.launcher import by_value, launcher_text
from symshape.codegen.triton.mixed import MixedWriter, call_lines, callees
from symshape.codegen.triton.register_pressure import fit
from symshape.codegen.triton.scatter import emit_scatter
from symshape.codegen.triton.split import SplitWriter
from symshape.codegen.variants import Variant, general
from symshape.dialects.accessors import MIXED
from symshape.dialects.plans import MIXED_SPLIT, SEPARATE, SPLIT
from symshape.errors import KernelError
from symshape.prover.numbers.expr import ceildiv, maximum, product

_HEADER = '''"""{title}"""

import triton
import triton.language as tl

from symshape.runtime.triton.lib import math as tm
from symshape.runtime.triton.lib import rows as tr
'''
_DEBUG = """
# True: an index out of range stops the kernel where it is found, besides being reported.
DEBUG = tl.constexpr(False)
"""


def emit_triton(kernel: LoopKernel, variants: Sequence[Variant] = ()) -> TritonKernel:
    """The Triton kernel of a normalised loop program. Without ``variants`` it gets one that is valid at every size.

    KernelError if an operation or type has no Triton code.
    """
    name = kernel.name
    if kernel.scatter is not None:
        return emit_scatter(kernel, name)
    if kernel.is_scan:
        raise KernelError("there is no Triton code for scans", where=name, next_step="compile it for target cpu")
    check_types(kernel)
    reduces = any(d.reduced for d in kernel.dims)
    planned = [fit(variant, kernel) for variant in variants or [general(reduces)]]
    bounds = frozenset(set(ALIGNED) & {each for variant in planned for each in variant.aligned})
    emitter = _Emitter(kernel, name, bounds)
    emitted = [(variant, emitter.variant(variant)) for variant in planned]
    sizes = {
        axis: product(d.size for d in kernel.dims if d.reduced == reduced).python()
        for axis, reduced in (("xnumel", False), ("rnumel", True))
    }
    separate = call_lines(kernel) if kernel.mixed is not None else ()
    functions = {f.name: f.own for f in emitter.functions.values()}
    return TritonKernel(
        name=name,
        source=_source(kernel, name, emitter.functions, sizes),
        tensors=tuple((a.name, a.dtype) for a in kernel.args),
        symbols=kernel.symbols,
        checks_index=kernel.checks_index,
        **sizes,
        variants=tuple(variant for _, variant in emitted),
        functions=functions,
        launcher=launcher_text(kernel.args, kernel.symbols, kernel.checks_index, sizes, emitted, functions, separate),
        by_value=by_value(kernel.args),
        data=tuple(s for s in kernel.symbols if s in kernel.numbers),
        calls=callees(kernel),
    )


class _Emitter:
    """Prints the functions of all variants; functions that variants share are printed once."""

    def __init__(self, kernel: LoopKernel, name: str, bounds: frozenset[str]) -> None:
        self.kernel, self.name, self.bounds = kernel, name, bounds
        self.functions: dict[str, FunctionText] = {}

    @cached_property
    def split(self) -> SplitWriter:
        return SplitWriter(self.kernel, self.name, self.bounds)

    @cached_property
    def mixed(self) -> MixedWriter:
        return MixedWriter(self.kernel, self.name, self.bounds)

    def variant(self, variant: Variant) -> TritonVariant:
        kernel = self.kernel
        workspace: tuple[tuple[str, str], ...] = ()
        if variant.form in SPLIT:
            functions, stages = self.split.functions(variant.form, variant.one_launch), self.split.stages(variant)
            workspace = self.split.workspace.sizes()
        elif variant.form in (MIXED, MIXED_SPLIT):
            functions, stages = self.mixed.functions(variant.form), self.mixed.stages(variant)
            workspace = self.mixed.workspace_sizes(variant.form)
        elif variant.form == SEPARATE:
            functions, stages = [], []
        else:
            own = _function_name(kernel, self.name, variant)
            functions = [self.functions.get(own) or function_of(kernel, own, self.bounds, variant)]
            stages = [stage_of(kernel, own, variant)]
        for function in functions:
            self.functions.setdefault(function.name, function)
        bound = [_with_bounds(kernel, stage, self.functions, variant) for stage in stages]
        return _emitted(kernel, variant, bound, workspace)


def _source(kernel: LoopKernel, name: str, functions: dict[str, FunctionText], sizes: dict[str, str]) -> str:
    reduces = any(d.reduced for d in kernel.dims)
    title = f"{name}: {sizes['xnumel']} points" + (f", each of {sizes['rnumel']} reduced" if reduces else "") + "."
    header = _HEADER.format(title=title) + (_DEBUG if kernel.checks_index else "")
    return "\n\n".join([header, *(f.text() for f in functions.values())])


def _function_name(kernel: LoopKernel, name: str, variant: Variant) -> str:
    """The name of a variant's function: one per form, and for tiles one per pair of dims."""
    if variant.form == "pointwise":
        return name
    return f"{name}_{variant.form}" + ("_".join(("", *variant.dims)) if len(kernel.dims) > 2 else "")


def _with_bounds(
    kernel: LoopKernel, stage: TritonStage, functions: dict[str, FunctionText], variant: Variant
) -> TritonStage:
    """The launch with constexpr flags: which bounds are multiples of 16, and whether full blocks need a mask."""
    flags = {flag: axis for axis, flag in ALIGNED.items()}
    names = functions[stage.function].constants
    own = [(name, int(flags[name] in variant.aligned)) for name in names if name in flags]
    own += [(WHOLE, int(_has_whole_blocks(kernel, variant)))] if WHOLE in names else []
    return replace(stage, constants=(*stage.constants, *own))


def _has_whole_blocks(kernel: LoopKernel, variant: Variant) -> bool:
    """Whether computing full blocks without a mask is faster, since its bound is not known to be a multiple of 16."""
    if variant.form not in (*SPLIT, MIXED_SPLIT):
        return bool(variant.aligned)
    bound = product(d.size for d in kernel.dims if d.reduced)
    one_row = variant.xblock == 1 or variant.form == MIXED_SPLIT
    return one_row and {"rnumel", *bound.symbols}.isdisjoint(variant.aligned)


def _emitted(
    kernel: LoopKernel, variant: Variant, stages: Sequence[TritonStage], workspace: Sequence[tuple[str, str]]
) -> TritonVariant:
    known = {a.name for a in kernel.args} | set(kernel.symbols)
    aligned = tuple(name for name in variant.aligned if name in known)
    return TritonVariant(
        variant.name,
        variant.form,
        tuple(stages),
        variant.index_bits,
        aligned,
        variant.condition.python(),
        _splits(kernel, variant),
        tuple(workspace),
        groups_text(variant.xblock) if variant.one_launch else "",
    )


def _splits(kernel: LoopKernel, variant: Variant) -> str:
    """Python for the number of programs that share a row; "" if none do."""
    if variant.form in ("split_persistent", MIXED_SPLIT):
        parts = ceildiv(product(d.size for d in kernel.dims if d.reduced), variant.rblock)
        return (maximum(parts, 1) if variant.one_launch else parts).python()  # none would combine
    return "" if variant.splits is None else variant.splits.python()
