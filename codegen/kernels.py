"""All kernels of a module, from functions in the normal form to something that can be called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch_mlir import ir

from symshape.codegen.loops import LoopKernel
from symshape.codegen.normalise_loops import normalise
from symshape.codegen.read_kernel import read_kernel


@dataclass(frozen=True)
class KernelCode:
    """One kernel: its loop program and the source made from it."""

    name: str
    kind: str
    loops: LoopKernel
    source: str


@dataclass(frozen=True)
class KernelSet:
    """All kernels of a graph for one target; ``checking`` are those that take an error slot."""

    target: str
    kernels: list[KernelCode]
    checking: frozenset[str]
    object_code: bytes = b""

    def load(self) -> dict[str, Callable[..., Any]]:
        """Name -> callable, in the launch convention of the target."""
        if not self.kernels:
            return {}
        if self.target == "cpu":
            from symshape.runtime.cpu_kernels import load_object

            counts = {
                k.name: len(k.loops.args) + len(k.loops.symbols) + (k.name in self.checking) for k in self.kernels
            }
            return load_object(self.object_code, counts)
        from symshape.codegen.triton_kernel import emit_triton
        from symshape.runtime.triton_launch import load_triton

        return {k.name: load_triton(emit_triton(k.loops)) for k in self.kernels}


def build_kernels(module: ir.Module, target: str, opt_level: int) -> KernelSet:
    """Reads, normalises and prints every kernel; CPU kernels of a graph are compiled together into one object."""
    functions = [op for op in module.body.operations if "symshape.kernel" in op.operation.attributes]
    loops = [normalise(read_kernel(f)) for f in functions]
    kinds = [ir.StringAttr(f.operation.attributes["symshape.kind"]).value for f in functions]
    checking = frozenset(k.name for k in loops if k.has_error_slot(target))
    if target == "cpu":
        from symshape.codegen.cpu.emit import emit_cpu
        from symshape.codegen.cpu.jit import compile_objects

        sources = [emit_cpu(k) for k in loops]
        data = compile_objects(sources, opt_level)[0] if sources else b""
    else:
        from symshape.codegen.triton_kernel import emit_triton

        sources, data = [emit_triton(k).source for k in loops], b""
    kernels = [KernelCode(k.name, kind, k, source) for k, kind, source in zip(loops, kinds, sources)]
    return KernelSet(target, kernels, checking, data)
