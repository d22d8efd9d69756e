"""What Inductor makes of a graph, read from its scheduler: the yardstick for kernel counts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Lowered:
    """One graph after Inductor's fusion: the scheduler nodes that become kernels, and its library calls."""

    kernels: list[str] = field(default_factory=list)
    library_calls: list[str] = field(default_factory=list)


def _read(scheduler: Any) -> Lowered:
    from torch._inductor.ir import MultiOutput
    from torch._inductor.scheduler import ExternKernelSchedulerNode, NopKernelSchedulerNode

    lowered = Lowered()
    for node in scheduler.nodes:
        if isinstance(node, NopKernelSchedulerNode):
            continue
        if isinstance(node, ExternKernelSchedulerNode) and isinstance(node.node, MultiOutput):
            continue  # names one result of a call, and calls nothing
        if isinstance(node, ExternKernelSchedulerNode):
            kernel = node.node
            target = getattr(kernel, "op_overload", None) or getattr(kernel, "python_kernel_name", None)
            lowered.library_calls.append(str(target or type(kernel).__name__))
        else:
            # A FusedSchedulerNode is one kernel, however many it was fused from.
            lowered.kernels.append(type(node).__name__)
    return lowered


@contextmanager
def watch_inductor() -> Iterator[list[Lowered]]:
    """Collects one ``Lowered`` for each graph that Inductor generates code for inside the block."""
    from torch._inductor import config
    from torch._inductor.graph import GraphLowering

    seen: list[Lowered] = []
    original = GraphLowering.codegen

    def codegen(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        seen.append(_read(self.scheduler))
        return result

    GraphLowering.codegen = codegen  # type: ignore[method-assign]
    try:
        # A graph out of the cache never reaches the scheduler.
        with config.patch(force_disable_caches=True):
            yield seen
    finally:
        GraphLowering.codegen = original  # type: ignore[method-assign]
