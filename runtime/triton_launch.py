"""Runs generated Triton kernels: on a GPU, or on CPU tensors under TRITON_INTERPRET=1."""

from __future__ import annotations

import linecache
import os
from collections.abc import Callable
from typing import Any, Final

import torch

from symshape.errors import KernelError
from symshape.runtime.triton_types import TritonKernel, TritonVariant

# Beyond, addresses have 64 bits; the rest up to 2**31 is for the lanes of the last block.
_NARROW_LIMIT: Final = 2**31 - 2**17
_ON: Final = ("1", "true", "on", "yes")


def interpreting() -> bool:
    """Whether kernels are interpreted. KernelError where the variable was set after triton had been imported."""
    wanted = os.environ.get("TRITON_INTERPRET", "0").lower() in _ON
    import triton.language as tl
    from triton.runtime.interpreter import InterpretedFunction

    actual = isinstance(tl.sum, InterpretedFunction)
    if wanted != actual:
        raise KernelError(
            f"TRITON_INTERPRET={int(wanted)} was set after triton was imported, which took it as {int(actual)}",
            where="the environment of this process",
            next_step="set TRITON_INTERPRET before the first import of triton (best in the shell), and start again",
        )
    return actual


def load_source(kernel: TritonKernel) -> dict[str, Any]:
    """The namespace of the executed source. Triton reads functions' text again, hence the entry in linecache."""
    file = f"<triton {kernel.name} {hash(kernel.source) & 0xFFFFFFFF:08x}>"
    linecache.cache[file] = (len(kernel.source), None, kernel.source.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"__name__": f"symshape_triton_{kernel.name}"}
    exec(compile(kernel.source, file, "exec"), namespace)
    return namespace


def load_triton(kernel: TritonKernel) -> Callable[..., None]:
    """A callable of tensors, symbols and, if the kernel checks indices, the error slot (an int64 tensor)."""
    interpreted = interpreting()
    functions = load_source(kernel)
    sizes = _compiled(kernel.symbols, f"({kernel.xnumel}, {kernel.rnumel}, {kernel.extent})")
    narrow, wide = _choosers(kernel, "int32"), _choosers(kernel, "int64")
    first, count = len(kernel.tensors), len(kernel.tensors) + len(kernel.symbols)

    def launch(*args: Any) -> None:
        xnumel, rnumel, extent = sizes(*args[first:count])
        if xnumel <= 0:
            return
        table = narrow if extent < _NARROW_LIMIT or not wide else wide
        variant = next(v for holds, v in table if holds(xnumel, rnumel))
        _run(functions[variant.function], variant, -(-xnumel // variant.xblock), args, interpreted)

    return launch


def _compiled(names: tuple[str, ...], text: str) -> Callable[..., Any]:
    return eval(f"lambda {', '.join(names)}: {text}", {"max": max, "min": min})  # type: ignore[no-any-return]


def _choosers(kernel: TritonKernel, index_dtype: str) -> list[tuple[Callable[[int, int], bool], TritonVariant]]:
    variants = [v for v in kernel.variants if v.index_dtype == index_dtype]
    return [(_compiled(("xnumel", "rnumel"), v.condition), v) for v in variants]


def _run(function: Any, variant: TritonVariant, blocks: int, args: tuple[Any, ...], interpreted: bool) -> None:
    import triton.language as tl

    constants: dict[str, Any] = {"INDEX": getattr(tl, variant.index_dtype), "XBLOCK": variant.xblock}
    if variant.rblock:
        constants["RBLOCK"] = variant.rblock
    device = args[0].device
    if device.type == "cpu":
        if not interpreted:
            step = "set TRITON_INTERPRET=1 before triton is imported, or use target 'cpu'"
            raise KernelError("a Triton kernel was launched on CPU tensors", where=variant.function, next_step=step)
        import numpy

        with numpy.errstate(all="ignore"):  # lanes beyond the end compute with zeros
            function[(blocks,)](*args, **constants)
        return
    with torch.cuda.device(device):
        function[(blocks,)](*args, **constants, num_warps=variant.num_warps)
