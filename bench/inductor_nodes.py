"""Kernels and bytes of Inductor for a graph, read from its scheduler: what ours are compared with."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Lowered:
    """One graph after Inductor's fusion: the scheduler nodes that become kernels, and its library calls.

    Bytes are those that ``TORCH_LOGS=inductor_metrics`` counts, for each entry of the two lists, with the sizes first
    seen. It takes what a fused kernel reads for read whole; ``reached_bytes`` are those that a kernel's points reach.
    ``details`` says what each kernel is made of.
    """

    kernels: list[str] = field(default_factory=list)
    library_calls: list[str] = field(default_factory=list)
    kernel_bytes: list[int] = field(default_factory=list)
    reached_bytes: list[int] = field(default_factory=list)
    library_bytes: list[int] = field(default_factory=list)
    details: list[str] = field(default_factory=list)


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
            lowered.library_bytes.append(node.get_read_write_buffers_sizes())
        else:
            # A FusedSchedulerNode is one kernel, however many it was fused from.
            lowered.kernels.append(type(node).__name__)
            lowered.kernel_bytes.append(node.get_read_write_buffers_sizes())
            lowered.reached_bytes.append(_reached(node))
            lowered.details.append(_describe(node))
    return lowered


def _reached(node: Any) -> int:
    """Bytes of the elements that the kernel's points reach, of each buffer at most the whole."""
    from torch._inductor.dependencies import MemoryDep
    from torch._inductor.ir import NoneLayout
    from torch._inductor.utils import get_dtype_size
    from torch._inductor.virtualized import V

    hint = V.graph.sizevars.optimization_hint
    elements: dict[str, int] = {}
    members = set(node.get_nodes())
    for dep in (*node.read_writes.reads, *node.read_writes.writes):
        buffer = node.scheduler.name_to_buf.get(dep.name)
        if buffer is not None and buffer.defining_op in members and all(u.node in members for u in buffer.users):
            continue  # lives in registers
        if buffer is not None and isinstance(buffer.node.layout, NoneLayout):
            continue  # stands for an operation that only changes another buffer
        if isinstance(dep, MemoryDep):
            every = zip(dep.var_names, dep.size)
            counted = [size for var, size in every if dep.is_indirect() or var in dep.index.free_symbols]
        else:
            counted = node.scheduler.name_to_buf[dep.name].node.get_size() if buffer is not None else []
        elements[dep.name] = elements.get(dep.name, 0) + math.prod(hint(s, fallback=0) for s in counted)
    total = 0
    for name, count in elements.items():
        buffer = V.graph.try_get_buffer(name)
        if buffer is not None:
            whole = math.prod(hint(s, fallback=0) for s in buffer.get_size())
            total += min(whole, count) * get_dtype_size(buffer.get_dtype())
    return total


def _describe(node: Any) -> str:
    """The operations that a kernel was fused from, with the ATen ops that they came from."""
    parts = []
    for one in node.get_nodes():
        origins = sorted({origin.name for origin in one.node.origins})
        parts.append(f"{one.get_name()}{list(map(str, one.get_ranges()))} of {', '.join(origins)}")
    return "; ".join(parts)


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


class _Scheduled(Exception):
    """Thrown where code generation would begin."""


def schedule(gm: Any, inputs: Sequence[Any], *, kind: str) -> Lowered:
    """Inductor's lowering and scheduling of an AOT graph (which it may change); no code is generated.

    ``inputs`` are fake tensors and sizes; ``kind`` is "forward", "backward" or "inference".
    """
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.graph import GraphLowering

    seen: list[Lowered] = []

    def stop(self: Any) -> Any:
        self.init_wrapper_code()
        self._update_scheduler()
        seen.append(_read(self.scheduler))
        raise _Scheduled

    original, GraphLowering.codegen = GraphLowering.codegen, stop  # type: ignore[method-assign]
    try:
        with config.patch(fx_graph_cache=False, fx_graph_remote_cache=False):
            compile_fx_inner(gm, inputs, is_backward=kind == "backward", is_inference=kind == "inference")
    except Exception as error:  # it comes back wrapped
        if not seen:
            raise RuntimeError(f"Inductor lowered no graph: {type(error).__name__}: {error}") from error
    finally:
        GraphLowering.codegen = original  # type: ignore[method-assign]
    return seen[0]
