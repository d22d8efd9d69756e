"""Builds all kernels of a module: from functions in the normal form to kernels that can be called.

The steps up to the loop form are those of ``analysis/loop_form.py``; those after it depend on the target. A failing
step raises KernelFailure with its name and the graph nodes that the kernel computes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from torch_mlir import ir

from symshape.activity import note
from symshape.analysis.loop_form import LoopSteps, finish_loops, kernel_step, read_loops
from symshape.analysis.loops import LoopKernel
from symshape.artifact.kernel_image import KernelImage
from symshape.artifact.triton_kernels import TritonKernel
from symshape.codegen.host.host_program import Callees
from symshape.codegen.variants import Variant, for_loops, read_variants
from symshape.dialects.accessors import function_name, kernel_functions, kernel_kind
from symshape.machine.instruction_sets import NATIVE

_NONE: Final[Mapping[str, LoopKernel]] = MappingProxyType({})


@dataclass(frozen=True)
class KernelCode:
    """One kernel: its loop program, the ways to run it, the source made from both. A CPU kernel has no variants."""

    name: str
    kind: str
    loops: LoopKernel
    source: str
    variants: tuple[Variant, ...] = ()


@dataclass(frozen=True)
class KernelSet:
    """All kernels of a graph for one target; ``callees``: how they are launched."""

    target: str
    kernels: list[KernelCode]
    callees: Callees
    image: KernelImage


def build_kernels(
    module: ir.Module,
    target: str,
    opt_level: int,
    cpu: str = NATIVE,
    read: Mapping[str, LoopKernel] = _NONE,
    steps: LoopSteps | None = None,
) -> KernelSet:
    """Reads and prints every kernel; CPU kernels of a graph are compiled into one object. ``cpu``: see `cpu_level`;
    ``read``: by function, what ``read_loops`` gave where that is known; ``steps`` takes the time of each step.

    KernelFailure where a step fails.
    """
    functions = kernel_functions(module)
    steps = steps or LoopSteps()
    loops = []
    for function in functions:
        own = read.get(function_name(function)) or read_loops(function, steps)
        loops.append(finish_loops(function, own, steps))
    kinds = [kernel_kind(f) for f in functions]
    checking = frozenset(k.name for k in loops if k.has_error_slot(target))
    numbers = {k.name: frozenset(i for i, arg in enumerate(k.args) if arg.by_value) for k in loops}
    by_value = {} if target == "cpu" else numbers  # kernels on the CPU read the tensor itself
    variants: list[tuple[Variant, ...]] = [()] * len(loops)
    if target == "cpu":
        from symshape.codegen.cpu.objects.target import target_of

        machine = target_of(cpu)
        sources = _print_cpu(functions, loops, machine, steps)
        equal = _equal({k.name: source for k, source in zip(loops, sources, strict=True)})
        rows = [row for row in zip(functions, loops, sources, strict=True) if row[1].name not in equal]
        counts = {k.name: len(k.args) + len(k.symbols) + (k.name in checking) for _, k, _ in rows}
        code = _compile([row[0] for row in rows], [row[2] for row in rows], opt_level, machine, steps)
        image = KernelImage(code, counts, equal=equal)
    else:
        variants, printed = _print_triton(functions, loops, steps)
        sources = [k.source for k in printed]
        equal = _equal({k.name: repr(k) for k in printed})
        image = KernelImage(triton=tuple(k for k in printed if k.name not in equal), equal=equal)
    columns = zip(kinds, loops, sources, variants, strict=True)
    kernels = [KernelCode(k.name, kind, k, source, own) for kind, k, source, own in columns]
    return KernelSet(target, kernels, Callees(target == "cpu", checking, by_value), image)


def _equal(texts: Mapping[str, str]) -> dict[str, str]:
    """For each kernel whose text equals an earlier one's, except for the name, the earlier one's name: functions of
    different rank may have the same loop form."""
    first: dict[str, str] = {}
    found = {}
    for name, text in texts.items():
        other = first.setdefault(re.sub(rf"(?<![A-Za-z0-9.]){re.escape(name)}(?![A-Za-z0-9])", "", text), name)
        if other != name:
            found[name] = other
    return found


def _print_cpu(functions: Sequence[Any], loops: Sequence[LoopKernel], machine: Any, steps: LoopSteps) -> list[str]:
    from symshape.codegen.cpu.emit.kernel import emit_cpu

    sources = []
    for function, kernel in zip(functions, loops, strict=True):
        with kernel_step("emit-cpu", [function], steps):
            sources.append(emit_cpu(kernel, machine))
    return sources


def _print_triton(
    functions: Sequence[Any], loops: Sequence[LoopKernel], steps: LoopSteps
) -> tuple[list[tuple[Variant, ...]], list[TritonKernel]]:
    from symshape.codegen.triton.kernel import emit_triton

    variants, printed = [], []
    for function, kernel in zip(functions, loops, strict=True):
        with kernel_step("read-variants", [function], steps):
            variants.append(for_loops(read_variants(function), kernel))
        with kernel_step("emit-triton", [function], steps):
            printed.append(emit_triton(kernel, variants[-1]))
    return variants, printed


def _compile(functions: Sequence[Any], sources: Sequence[str], opt_level: int, machine: Any, steps: LoopSteps) -> bytes:
    """One object of all kernels. If it does not compile, each kernel is compiled alone to find those at fault."""
    from symshape.codegen.cpu.objects.compile_objects import compile_objects

    if not sources:
        return b""
    note("compile-cpu")
    start = time.perf_counter()
    try:
        made = compile_objects(sources, opt_level, machine, functions[0].context)[0]
    except Exception:
        for function, source in zip(functions, sources, strict=True):
            with kernel_step("compile-cpu", [function], steps):
                compile_objects([source], opt_level, machine)
        with kernel_step("compile-cpu", functions, steps):
            raise
    steps.timings["compile-cpu"] = time.perf_counter() - start
    return made
