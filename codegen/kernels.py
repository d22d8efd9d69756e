"""All kernels of a module, from functions in the normal form to something that can be called."""

from __future__ import annotations

from dataclasses import dataclass

from torch_mlir import ir

from symshape.codegen.empty_tensors import guard_empty_tensors
from symshape.codegen.fold_loops import fold
from symshape.codegen.loops import LoopKernel
from symshape.codegen.normalise_loops import normalise
from symshape.codegen.read_kernel import read_kernel
from symshape.codegen.variants import Variant, for_loops, read_variants
from symshape.runtime.cpu_level import NATIVE
from symshape.runtime.kernel_image import KernelImage


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
    return normalise(guard_empty_tensors(fold(read_kernel(function))))


def build_kernels(module: ir.Module, target: str, opt_level: int, cpu: str = NATIVE) -> KernelSet:
    """Reads and prints every kernel; CPU kernels of a graph are compiled into one object. ``cpu``: see `cpu_level`."""
    functions = [op for op in module.body.operations if "symshape.kernel" in op.operation.attributes]
    loops = [read_loops(function) for function in functions]
    kinds = [ir.StringAttr(f.operation.attributes["symshape.kind"]).value for f in functions]
    checking = frozenset(k.name for k in loops if k.has_error_slot(target))
    variants: list[tuple[Variant, ...]] = [()] * len(loops)
    if target == "cpu":
        from symshape.codegen.cpu.emit import emit_cpu
        from symshape.codegen.cpu.jit import compile_objects
        from symshape.codegen.cpu.target import target_of

        machine = target_of(cpu)
        sources = [emit_cpu(k, machine) for k in loops]
        counts = {k.name: len(k.args) + len(k.symbols) + (k.name in checking) for k in loops}
        image = KernelImage(compile_objects(sources, opt_level, machine)[0] if sources else b"", counts)
    else:
        from symshape.codegen.triton_kernel import emit_triton

        variants = [for_loops(read_variants(f), k) for f, k in zip(functions, loops)]
        image = KernelImage(triton=tuple(emit_triton(k, planned) for k, planned in zip(loops, variants)))
        sources = [k.source for k in image.triton]
    rows = zip(kinds, loops, sources, variants, strict=True)
    kernels = [KernelCode(k.name, kind, k, source, own) for kind, k, source, own in rows]
    return KernelSet(target, kernels, checking, image)
