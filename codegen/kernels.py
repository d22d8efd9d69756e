"""All kernels of a module, from functions in the normal form to something that can be called.

``LOOP_STEPS`` are the steps that every kernel goes through; "plan", "emit" and "compile" depend on the target. A step
that fails says which one it is and which graph nodes the kernel computes (``KernelFailure``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch_mlir import ir

from symshape.analysis.empty_tensors import guard_empty_tensors
from symshape.analysis.fold_loops import fold
from symshape.analysis.loops import LoopKernel
from symshape.analysis.normalise_loops import normalise
from symshape.analysis.read_kernel import read_kernel
from symshape.artifact.kernel_image import KernelImage
from symshape.codegen.variants import Variant, for_loops, read_variants
from symshape.dialects.accessors import kernel_functions, kernel_kind
from symshape.dialects.locations import node_names
from symshape.errors import KernelError, KernelFailure, SymshapeError
from symshape.machine.instruction_sets import NATIVE

# From a kernel function to the loop program that code is printed from: each takes what the one before it returned.
LOOP_STEPS: dict[str, Callable[[Any], Any]] = {
    "read-kernel": read_kernel,
    "fold-loops": fold,
    "guard-empty-tensors": guard_empty_tensors,
    "normalise-loops": normalise,
}


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
    """All kernels of a graph for one target; ``checking`` are those that take an error slot."""

    target: str
    kernels: list[KernelCode]
    checking: frozenset[str]
    image: KernelImage


def read_loops(function: ir.Operation) -> LoopKernel:
    """The loop program that code is generated from."""
    value: Any = function
    for name, step in LOOP_STEPS.items():
        with _step(name, [function]):
            value = step(value)
    loops: LoopKernel = value
    return loops


def build_kernels(module: ir.Module, target: str, opt_level: int, cpu: str = NATIVE) -> KernelSet:
    """Reads and prints every kernel; CPU kernels of a graph are compiled into one object. ``cpu``: see `cpu_level`.

    KernelFailure where a step fails.
    """
    functions = kernel_functions(module)
    loops = [read_loops(function) for function in functions]
    kinds = [kernel_kind(f) for f in functions]
    checking = frozenset(k.name for k in loops if k.has_error_slot(target))
    variants: list[tuple[Variant, ...]] = [()] * len(loops)
    if target == "cpu":
        from symshape.codegen.cpu.objects.target import target_of

        machine = target_of(cpu)
        sources = _print_cpu(functions, loops, machine)
        counts = {k.name: len(k.args) + len(k.symbols) + (k.name in checking) for k in loops}
        image = KernelImage(_compile(functions, sources, opt_level, machine), counts)
    else:
        variants, image = _print_triton(functions, loops)
        sources = [k.source for k in image.triton]
    rows = zip(kinds, loops, sources, variants, strict=True)
    kernels = [KernelCode(k.name, kind, k, source, own) for kind, k, source, own in rows]
    return KernelSet(target, kernels, checking, image)


def _print_cpu(functions: Sequence[Any], loops: Sequence[LoopKernel], machine: Any) -> list[str]:
    from symshape.codegen.cpu.emit.kernel import emit_cpu

    sources = []
    for function, kernel in zip(functions, loops, strict=True):
        with _step("emit-cpu", [function]):
            sources.append(emit_cpu(kernel, machine))
    return sources


def _print_triton(
    functions: Sequence[Any], loops: Sequence[LoopKernel]
) -> tuple[list[tuple[Variant, ...]], KernelImage]:
    from symshape.codegen.triton.kernel import emit_triton

    variants, printed = [], []
    for function, kernel in zip(functions, loops, strict=True):
        with _step("read-variants", [function]):
            variants.append(for_loops(read_variants(function), kernel))
        with _step("emit-triton", [function]):
            printed.append(emit_triton(kernel, variants[-1]))
    return variants, KernelImage(triton=tuple(printed))


def _compile(functions: Sequence[Any], sources: Sequence[str], opt_level: int, machine: Any) -> bytes:
    """One object of all kernels. Where it does not compile, the kernels at fault are those that do not alone."""
    from symshape.codegen.cpu.objects.compile_objects import compile_objects

    if not sources:
        return b""
    try:
        return compile_objects(sources, opt_level, machine)[0]
    except Exception:
        for function, source in zip(functions, sources, strict=True):
            with _step("compile-cpu", [function]):
                compile_objects([source], opt_level, machine)
        with _step("compile-cpu", functions):
            raise
    raise AssertionError("unreachable")


@contextmanager
def _step(name: str, functions: Sequence[Any]) -> Iterator[None]:
    """An error in here is the failure of a step for these kernels."""
    try:
        yield
    except Exception as error:
        cause = error if isinstance(error, SymshapeError) else KernelError(f"{type(error).__name__}: {error}")
        raise KernelFailure(
            cause.what,
            step=name,
            operations=[n for function in functions for n in _nodes(function)],
            where=cause.where,
            next_step=cause.next_step,
        ) from error


def _nodes(function: Any) -> list[str]:
    """The graph nodes that a kernel computes."""
    found: dict[str, None] = {}

    def visit(op: Any) -> ir.WalkResult:
        found.update(dict.fromkeys(node_names(op.location)))
        return ir.WalkResult.ADVANCE

    function.operation.walk(visit)
    return list(found)
