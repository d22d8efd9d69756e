"""Reads the steps of a graph's program and its memory from the main function of its last stage.

A tensor's memory lives from the operation that allocates it until the last use of it or of a view of it, as in the host
program (``codegen/host/host_program.py``). Arguments belong to the caller. Results of library calls count as separate
memory. Steps of both branches of a ``torch.cond`` follow it, though only one of the two runs; steps of a loop's body
follow the loop once, however often they run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch_mlir import ir

from symshape import dialects
from symshape.dialects.accessors import (
    call_target,
    callee_of,
    calls_subgraphs,
    destinations,
    function_name,
    is_subgraph,
    main_functions,
    subgraphs_of,
)
from symshape.dialects.locations import source_location
from symshape.dialects.sizes import Sizes
from symshape.dialects.types import dtype_of
from symshape.ir_text import main_function
from symshape.prover.numbers.expr import Expr, product
from symshape.tools.report import GraphReport
from symshape.tools.traffic import item_size

_SAME_MEMORY = ("symshape.reuse", "symshape.view")
_OPERATORS = {
    "host.cond": "torch.cond",
    "host.while": "while_loop",
    "host.scan": "scan",
    "host.associative_scan": "associative_scan",
    "host.attention": "flex_attention",
}
_NO_MEMORY = ("symshape.constant", "symshape.storage")


@dataclass(frozen=True)
class Buffer:
    """Memory of a tensor: sizes, element type, and the steps ``first`` to ``last`` (inclusive) during which it is live.
    ``returned``: it is returned to the caller."""

    sizes: tuple[Expr, ...]
    dtype: str
    first: int
    last: int
    returned: bool = False

    @property
    def bytes(self) -> Expr:
        """Its size in bytes."""
        return product(self.sizes) * item_size(self.dtype)


@dataclass(frozen=True)
class Step:
    """One step. ``kind`` is "kernel", "call", or "branch" for a call of branches or of a loop's body; ``line`` is file
    and line number in user code, if known; ``branch`` is the enclosing branch or body, "" for main."""

    kind: str
    name: str
    line: tuple[str, int] | None
    arguments: tuple[Expr, ...] = ()
    branch: str = ""


@dataclass
class Program:
    """The steps in order, the buffers in order of allocation, and the bytes of the input tensors (``given``).
    ``functions``: main ("") and the branches, in the order in which a report lists their launches and calls."""

    steps: list[Step] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    given: Expr = field(default_factory=lambda: Expr.const(0))
    functions: tuple[str, ...] = ()


def read_program(graph: GraphReport) -> Program:
    """The program of a graph; empty if its stages were not kept."""
    if not graph.stages:
        return Program()
    text = list(graph.stages.values())[-1]
    with dialects.load(ir.Context()), ir.Location.unknown():
        module = ir.Module.parse(text)
        branches = {function_name(op): op for op in main_functions(module) if is_subgraph(op)}
        order = ("", *branches)
        program = _Reader(main_function(module, "the last stage"), branches).program()
        program.functions = order
        return program


@dataclass
class _Memory:
    sizes: tuple[Expr, ...]
    dtype: str
    first: int
    last: int
    returned: bool = False


class _Reader:
    """Walks the operations of a function and of the branches that it calls. A branch is removed from ``branches`` when
    it is read, so that each is read once."""

    def __init__(self, function: Any, branches: dict[str, Any], branch: str = "") -> None:
        block = function.regions[0].blocks[0]
        self._branches, self._branch = branches, branch
        self._operations = [view.operation for view in block.operations]
        self._arguments = list(block.arguments)
        self._sizes = Sizes(block)
        self._sizes.learn(self._operations)
        self._memory: dict[ir.Value, _Memory] = {}
        self._results = dict(pair for op in self._operations if op.name == "host.launch" for pair in _destinations(op))
        self._all: list[_Memory] = []
        self._program = Program()

    def program(self) -> Program:
        """Reads the function."""
        for op in self._operations:
            self._read(op)
        last = len(self._program.steps) - 1
        self._program.buffers = [
            Buffer(m.sizes, m.dtype, m.first, last if m.returned else m.last, m.returned) for m in self._all
        ]
        self._program.given = Expr.const(0)
        for argument in self._arguments:
            if argument in self._sizes.layouts:
                size = product(self._sizes.layouts[argument].sizes)
                self._program.given += size * item_size(dtype_of(argument))
        return self._program

    def _read(self, op: Any) -> None:
        now = len(self._program.steps)
        if op.name == "tensor.empty":
            self._new(op.results[0], now)
        elif op.name in _SAME_MEMORY or (op.name == "host.call" and call_target(op) in _NO_MEMORY):
            self._share(op.results[0], op.operands[0] if len(op.operands) else None)
        elif op.name in ("host.launch", "host.call") or calls_subgraphs(op):
            self._use(op, now)
            self._program.steps.append(self._step(op))
            if op.name == "host.launch":
                for destination, result in _destinations(op):
                    self._share(result, destination)
            else:
                if calls_subgraphs(op):
                    self._read_branches(op)
                for result in op.results:
                    self._new(result, len(self._program.steps) - 1)
        elif op.name == "func.return":
            for memory in self._memories(op):
                memory.returned = True
        elif op.name == "symshape.unbacked_symbol":
            self._use(op, now)

    def _read_branches(self, op: Any) -> None:
        """Appends steps and buffers of the branches. Returned buffers are skipped: they are its results."""
        for name in subgraphs_of(op):
            function, start = self._branches.pop(name, None), len(self._program.steps)
            if function is not None:
                read = _Reader(function, self._branches, name).program()
                self._program.steps += read.steps
                inner = [buffer for buffer in read.buffers if not buffer.returned]
                self._all += [_Memory(b.sizes, b.dtype, b.first + start, b.last + start) for b in inner]

    def _new(self, value: ir.Value, now: int) -> None:
        # An empty tensor has no bind of its own: its layout is that of the launch result that fills it.
        layout = self._sizes.layouts.get(self._results.get(value, value))
        if layout is not None:
            found = self._memory[value] = _Memory(layout.sizes, dtype_of(value), now, now)
            self._all.append(found)

    def _share(self, value: ir.Value, source: ir.Value | None) -> None:
        if source is not None and source in self._memory:
            self._memory[value] = self._memory[source]

    def _use(self, op: Any, now: int) -> None:
        for memory in self._memories(op):
            memory.last = now

    def _memories(self, op: Any) -> Iterator[_Memory]:
        return (self._memory[value] for value in op.operands if value in self._memory)

    def _step(self, op: Any) -> Step:
        place = source_location(op.location)
        line = (place.file, place.line) if place.line else None
        if op.name == "host.launch":
            indices = [v for v in op.operands if not isinstance(v.type, ir.RankedTensorType)]
            return Step("kernel", callee_of(op), line, tuple(map(self._sizes.expr, indices)), self._branch)
        if op.name in _OPERATORS:
            return Step("branch", _OPERATORS[op.name], line, branch=self._branch)
        return Step("call", call_target(op), line, branch=self._branch)


def _destinations(launch: Any) -> list[tuple[ir.Value, ir.Value]]:
    """Pairs of each tensor that a launch writes: the operand, and the result that replaces it afterwards."""
    return list(zip(destinations(launch), launch.results))
