"""From a kernel function to the loop form that code is printed from: the steps, each by its name.

``READING`` gives what plans ask about, ``FINISHING`` goes on from there to what emitters print. A step that fails says
which one it is and which graph nodes the kernel computes (``KernelFailure``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch_mlir import ir

from symshape.activity import note
from symshape.analysis.empty_tensors import guard_empty_tensors
from symshape.analysis.fold_loops import fold
from symshape.analysis.loops import LoopKernel
from symshape.analysis.mixed_reductions import Part, mix, parts_of
from symshape.analysis.normalise_loops import normalise
from symshape.analysis.read_kernel import read_kernel
from symshape.dialects.accessors import MIXED, body_of, function_name, kernel_kind, num_inputs
from symshape.dialects.locations import node_names
from symshape.errors import KernelError, KernelFailure, SymshapeError

LoopStep = Callable[[Any], Any]  # takes what the step before it returned; the first one a kernel function

READING: dict[str, LoopStep] = {
    "read-kernel": read_kernel,
    "fold-loops": fold,
}
FINISHING: dict[str, LoopStep] = {
    "guard-empty-tensors": guard_empty_tensors,
    "normalise-loops": normalise,
}


@dataclass(frozen=True)
class LoopSteps:
    """How steps are run on the kernels of a module: without those whose names are ``disabled``; ``timings`` takes
    seconds by step, of all kernels together, ``finished`` what code is printed from of kernels that mixtures launch."""

    disabled: frozenset[str] = frozenset()
    timings: dict[str, float] = field(default_factory=dict)
    finished: dict[str, LoopKernel] = field(default_factory=dict)


def read_loops(function: ir.Operation, steps: LoopSteps | None = None) -> LoopKernel:
    """The loop form as it is read: over the kernel's own space, what is known of indices folded. That of a mixture is
    made of the finished ones of its kernels."""
    steps = steps or LoopSteps()
    if kernel_kind(function) == MIXED:
        return _read_mixture(function, steps)
    return _run(READING, function, function, steps)


def finish_loops(function: ir.Operation, loops: LoopKernel, steps: LoopSteps | None = None) -> LoopKernel:
    """What code is printed from, of what ``read_loops`` gave for the function."""
    if loops.mixed is not None:
        return loops
    return _run(FINISHING, function, loops, steps or LoopSteps())


def finished_loops(function: ir.Operation, steps: LoopSteps) -> LoopKernel:
    """What code is printed from, of a function that several mixtures may launch: made once."""
    name = function_name(function)
    if name not in steps.finished:
        steps.finished[name] = finish_loops(function, read_loops(function, steps), steps)
    return steps.finished[name]


def _read_mixture(function: ir.Operation, steps: LoopSteps) -> LoopKernel:
    block = function.regions[0].blocks[0]
    tensors = [v for v in block.arguments if isinstance(v.type, ir.RankedTensorType)]
    positions = {v: i for i, v in enumerate(tensors)}
    symbols = {v: f"s{i}" for i, v in enumerate(v for v in block.arguments if v not in positions)}
    functions = {function_name(view): view.operation for view in function.parent.regions[0].blocks[0].operations}

    launches = [op for op in body_of(function) if op.name == "host.launch"]
    parts: list[Part] = parts_of(launches, positions, symbols, lambda callee: finished_loops(functions[callee], steps))
    with kernel_step("mix", [function], steps):
        mixed = mix(function_name(function), list(symbols.values()), num_inputs(function), parts[0], parts[1:])
        if mixed is None:
            raise KernelError(f"{function_name(function)}: the kernels that it launches cannot be one")
    return mixed


def _run(table: dict[str, LoopStep], function: ir.Operation, value: Any, steps: LoopSteps) -> LoopKernel:
    for name, step in table.items():
        if name not in steps.disabled:
            with kernel_step(name, [function], steps):
                value = step(value)
    loops: LoopKernel = value
    return loops


@contextmanager
def kernel_step(name: str, functions: Sequence[Any], steps: LoopSteps) -> Iterator[None]:
    """An error in here is the failure of a step for these kernels."""
    note(name)
    start = time.perf_counter()
    try:
        yield
    except Exception as error:
        cause = error if isinstance(error, SymshapeError) else KernelError(f"{type(error).__name__}: {error}")
        raise KernelFailure(
            cause.what,
            step=name,
            operations=[n for function in functions for n in _nodes(function)],
            where=cause.where,
            next_step=cause.next_step,
        ) from error
    steps.timings[name] = steps.timings.get(name, 0.0) + time.perf_counter() - start


def _nodes(function: Any) -> list[str]:
    """The graph nodes that a kernel computes."""
    found: dict[str, None] = {}

    def visit(op: Any) -> ir.WalkResult:
        found.update(dict.fromkeys(node_names(op.location)))
        return ir.WalkResult.ADVANCE

    function.operation.walk(visit)
    return list(found)
