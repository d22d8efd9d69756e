"""Converts a kernel function to the loop form that emitters print from, as a list of named steps.

``READING`` yields the form that plans read; ``FINISHING`` continues from it to the form that emitters print. A failing
step raises KernelFailure with its name and the graph nodes that the kernel computes.
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

LoopStep = Callable[[Any], Any]  # takes the previous step's result; the first step takes a kernel function

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
    """The steps for the kernels of one module. Steps named in ``disabled`` are skipped. ``timings`` collects seconds
    per step over all kernels. ``finished`` caches the final loop form of kernels that mixtures launch."""

    disabled: frozenset[str] = frozenset()
    timings: dict[str, float] = field(default_factory=dict)
    finished: dict[str, LoopKernel] = field(default_factory=dict)


def read_loops(function: ir.Operation, steps: LoopSteps | None = None) -> LoopKernel:
    """The loop form after ``READING``: over the kernel's own iteration space, with index arithmetic folded. A mixture's
    is built from the finished forms of its kernels."""
    steps = steps or LoopSteps()
    if kernel_kind(function) == MIXED:
        return _read_mixture(function, steps)
    return _run(READING, function, function, steps)


def finish_loops(function: ir.Operation, loops: LoopKernel, steps: LoopSteps | None = None) -> LoopKernel:
    """The loop form for emitters, from the result of `read_loops` for the function."""
    if loops.mixed is not None:
        return loops
    return _run(FINISHING, function, loops, steps or LoopSteps())


def finished_loops(function: ir.Operation, steps: LoopSteps) -> LoopKernel:
    """The loop form for emitters of a kernel that several mixtures may launch; cached in ``steps``."""
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
            raise KernelError(
                "the kernels that it launches cannot be one",
                where=function_name(function),
                next_step="disable mix-reductions, the pass that makes such kernels",
            )
    return mixed


def _run(table: dict[str, LoopStep], function: ir.Operation, value: Any, steps: LoopSteps) -> LoopKernel:
    for name, step in table.items():
        if name not in steps.disabled:
            with kernel_step(name, [function], steps):
                value = step(value)
    loops: LoopKernel = value
    return loops


def _unexpected(step: str, error: Exception) -> KernelError:
    hint = f"the traceback shows the line of the step '{step}', which symshape-opt --list-pipeline describes"
    return KernelError(f"{type(error).__name__}: {error}", next_step=hint)


@contextmanager
def kernel_step(name: str, functions: Sequence[Any], steps: LoopSteps) -> Iterator[None]:
    """Runs a step: adds its time to ``steps.timings``, and turns an error into a KernelFailure of these kernels."""
    note(name)
    start = time.perf_counter()
    try:
        yield
    except Exception as error:
        cause = error if isinstance(error, SymshapeError) else _unexpected(name, error)
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
