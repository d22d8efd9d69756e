"""The machine code of a compiled graph's kernels as plain data: what the cache keeps and the runtime loads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from symshape.artifact.triton_kernels import TritonKernel


@dataclass(frozen=True)
class KernelImage:
    """CPU kernels are one object file, with the number of each one's arguments; Triton kernels are source.

    ``equal``: kernels whose code is that of another but for the name, by their own names.
    """

    object_code: bytes = b""
    arguments: Mapping[str, int] = field(default_factory=dict)
    triton: tuple[TritonKernel, ...] = ()
    equal: Mapping[str, str] = field(default_factory=dict)
