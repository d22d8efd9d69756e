"""The kernels of a compiled graph as plain data: what a cache keeps, and what is loaded into the process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from symshape.runtime.triton.kernel_types import TritonKernel


@dataclass(frozen=True)
class KernelImage:
    """CPU kernels are one object file, with the number of each one's arguments; Triton kernels are source."""

    object_code: bytes = b""
    arguments: Mapping[str, int] = field(default_factory=dict)
    triton: tuple[TritonKernel, ...] = ()

    def load(self, *, autotune: bool = False) -> dict[str, Callable[..., Any]]:
        """Name -> callable, in the launch convention of the target. ``autotune``: Triton kernels choose among their
        variants by measured time."""
        loaded: dict[str, Callable[..., Any]] = {}
        if self.arguments:
            from symshape.runtime.cpu.load_objects import load_object

            loaded.update(load_object(self.object_code, self.arguments))
        if self.triton:
            from symshape.runtime.triton.launch import load_triton
            from symshape.runtime.triton.tuned_launch import load_tuned

            for kernel in self.triton:
                tuned = autotune and all(variant.form != "scatter" for variant in kernel.variants)  # no choice there
                loaded[kernel.name] = (load_tuned if tuned else load_triton)(kernel)
        return loaded
