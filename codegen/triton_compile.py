"""Compiles a Triton kernel ahead of time to PTX and machine code, without a GPU, and reads what it costs."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from symshape.errors import KernelError
from symshape.runtime.triton_launch import interpreting, load_source
from symshape.runtime.triton_types import TritonKernel, TritonVariant

_WARP_SIZE: Final = 32
# What Triton assumes of an argument that divides by 16; without it no access is wider than an element.
_ALIGNED: Final = [["tt.divisibility", 16]]
_USAGE: Final = {"registers": r"REG:(\d+)", "stack": r"STACK:(\d+)", "shared": r"SHARED:(\d+)", "local": r"LOCAL:(\d+)"}


@dataclass(frozen=True)
class CompiledVariant:
    """Machine code of one variant. ``spills`` are bytes stored and loaded because registers did not suffice."""

    kernel: str
    variant: str
    arch: int
    ptx: str
    cubin: bytes
    registers: int
    stack: int
    shared: int
    spills: int


def compile_variant(
    kernel: TritonKernel, variant: TritonVariant, arch: int = 90, aligned: bool = True
) -> CompiledVariant:
    """One variant for sm_``arch``. ``aligned``: pointers and symbols divide by 16 (else only pointers' elements do)."""
    if interpreting():
        raise KernelError("the Triton compiler is not available under TRITON_INTERPRET=1", where=kernel.name,
                          next_step="unset the variable and start again")  # fmt: skip
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = load_source(kernel)[variant.function]
    source = ASTSource(fn=function, **_signature(kernel, variant, aligned))
    target = GPUTarget("cuda", arch, _WARP_SIZE)
    compiled = triton.compile(source, target=target, options={"num_warps": variant.num_warps})
    ptx, cubin = compiled.asm["ptx"], compiled.asm["cubin"]
    usage = _resource_usage(cubin)
    return CompiledVariant(kernel.name, variant.name, arch, ptx, cubin, usage["registers"], usage["stack"],
                           usage["shared"], _spills(ptx) + usage["local"])  # fmt: skip


def _signature(kernel: TritonKernel, variant: TritonVariant, aligned: bool) -> dict[str, Any]:
    import triton.language as tl

    integer = "i64" if variant.index_dtype == "int64" else "i32"
    signature = {name: integer if type_ == "int" else type_ for name, type_ in kernel.arguments}
    constants: dict[str, Any] = {"INDEX": getattr(tl, variant.index_dtype), "XBLOCK": variant.xblock}
    if variant.rblock:
        constants["RBLOCK"] = variant.rblock
    attrs = {(i,): _ALIGNED for i, name in enumerate(signature) if aligned and name != "error_slot"}
    signature.update((name, "constexpr") for name in constants)
    return {"signature": signature, "constexprs": constants, "attrs": attrs}


def _tool(name: str) -> str:
    """A CUDA tool of the triton wheel."""
    from triton import knobs

    return str(getattr(knobs.nvidia, name, knobs.nvidia.ptxas).path)


def _resource_usage(cubin: bytes) -> dict[str, int]:
    """Registers and memory per thread, as the machine code says."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        command = [_tool("cuobjdump"), "--dump-resource-usage", str(path)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = {name: re.search(pattern, text) for name, pattern in _USAGE.items()}
    return {name: int(match.group(1)) if match else 0 for name, match in found.items()}


def _spills(ptx: str) -> int:
    """Spilled bytes, as the assembler says: the stack alone also holds arrays of slow paths (sin of a large number)."""
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
