"""Counts launches of our kernels, so that a set-up in which nothing is compiled fails."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import symshape.compiler
from symshape.artifact.kernel_image import KernelImage
from symshape.cache import compiled_graphs
from symshape.runtime.load_kernels import load_kernels

Kernel = Callable[..., None]


@contextlib.contextmanager
def counted_launches() -> Iterator[Counter[str]]:
    """Launches, by the kernel's name, of what is compiled inside the ``with`` block."""
    launches: Counter[str] = Counter()

    def counting(name: str, kernel: Kernel) -> Kernel:
        def launch(*args: Any) -> None:
            launches[name] += 1
            kernel(*args)

        return launch

    def load_and_count(image: KernelImage, **options: Any) -> dict[str, Kernel]:
        return {name: counting(name, kernel) for name, kernel in load_kernels(image, **options).items()}

    with contextlib.ExitStack() as stack:
        for module in (symshape.compiler, compiled_graphs):
            stack.enter_context(mock.patch.object(module, "load_kernels", load_and_count))
        yield launches
