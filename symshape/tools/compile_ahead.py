"""Compiles Triton kernels to PTX and machine code without a GPU, and reads their register and memory usage."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from symshape.artifact.triton_kernels import TritonKernel, TritonStage, TritonVariant
from symshape.errors import KernelError
from symshape.runtime.triton.binary import compile_stage
from symshape.runtime.triton.launch import interpreting, load_source

_WARP_SIZE: Final = 32
_USAGE: Final = {"registers": r"REG:(\d+)", "stack": r"STACK:(\d+)", "shared": r"SHARED:(\d+)", "local": r"LOCAL:(\d+)"}


@dataclass(frozen=True)
class CompiledVariant:
    """Machine code of one variant for architecture sm_``arch``, and its resource usage.

    ``registers`` is per thread; ``stack`` is bytes per thread; ``shared`` is bytes of shared memory per program;
    ``spills`` is the number of bytes stored and loaded per thread because registers did not suffice."""

    kernel: str
    variant: str
    arch: int
    ptx: str
    cubin: bytes
    registers: int
    stack: int
    shared: int
    spills: int


def compile_variant(kernel: TritonKernel, variant: TritonVariant, arch: int = 90) -> CompiledVariant:
    """Compiles all launches of one variant for sm_``arch``. With several launches, their PTX is concatenated, spills
    are added, and the other figures are the maximum; ``cubin`` is the first launch's."""
    stages = [compile_for(kernel, variant, stage, arch) for stage in variant.stages]
    costs = {name: max(getattr(one, name) for one in stages) for name in ("registers", "stack", "shared")}
    return CompiledVariant(
        kernel.name,
        variant.name,
        arch,
        "\n".join(one.ptx for one in stages),
        stages[0].cubin,
        spills=sum(one.spills for one in stages),
        **costs,
    )


def compile_for(kernel: TritonKernel, variant: TritonVariant, stage: TritonStage, arch: int) -> CompiledVariant:
    """Compiles one launch of a variant for sm_``arch``. KernelError if Triton is in interpreter mode."""
    if interpreting():
        raise KernelError(
            "the Triton compiler is not available under TRITON_INTERPRET=1",
            where=kernel.name,
            next_step="unset the variable and start again",
        )
    from triton.backends.compiler import GPUTarget

    function = load_source(kernel)[stage.function]
    compiled = compile_stage(kernel, variant, stage, function, GPUTarget("cuda", arch, _WARP_SIZE))
    ptx, cubin = compiled.asm["ptx"], compiled.asm["cubin"]
    usage = _resource_usage(cubin)
    return CompiledVariant(
        kernel.name,
        variant.name,
        arch,
        ptx,
        cubin,
        usage["registers"],
        usage["stack"],
        usage["shared"],
        _spills(ptx) + usage["local"],
    )


def _tool(name: str) -> str:
    """Path of a CUDA tool in the triton wheel."""
    from triton import knobs

    return str(getattr(knobs.nvidia, name, knobs.nvidia.ptxas).path)


def _resource_usage(cubin: bytes) -> dict[str, int]:
    """Registers and bytes of memory per thread, as ``cuobjdump --dump-resource-usage`` prints them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        command = [_tool("cuobjdump"), "--dump-resource-usage", str(path)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = {name: re.search(pattern, text) for name, pattern in _USAGE.items()}
    return {name: int(match.group(1)) if match else 0 for name, match in found.items()}


def _spills(ptx: str) -> int:
    """Bytes spilled, as ``ptxas -v`` prints them. Stack size is no measure of spills: slow paths of math functions keep
    arrays there (sin of large arguments)."""
    target = re.search(r"\.target (sm_\w+)", ptx)
    if target is None:
        raise KernelError("PTX without a .target line", next_step="this is a bug of triton_compile")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.ptx"
        path.write_text(ptx)
        modern = int(re.sub(r"\D", "", target.group(1))) >= 90
        assembler = _tool("ptxas_blackwell" if modern else "ptxas")
        command = [assembler, "-v", f"--gpu-name={target.group(1)}", str(path), "-o", str(Path(folder) / "out")]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
    text = result.stderr + result.stdout
    return sum(int(number) for number in re.findall(r"(\d+) bytes spill", text))
