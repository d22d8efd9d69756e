"""Names of kernels in ``torch.profiler``."""

from __future__ import annotations

from collections.abc import Callable

import torch


def with_name(name: str, kernel: Callable[..., None]) -> Callable[..., None]:
    """The kernel as an event of the profiler: ``symshape::NAME``."""

    def launch(*args: object) -> None:
        with torch.profiler.record_function(f"symshape::{name}"):
            kernel(*args)

    return launch
