"""reuse-buffers: gives a destination the memory of a dead tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch_mlir import ir

from symshape.artifact.element_types import ITEM_SIZE
from symshape.dialects.accessors import (
    callee_of,
    destinations,
    function_name,
    in_place_of,
    is_allocated,
    is_fresh,
    kernel_functions,
    main_functions,
    symbol_name,
)
from symshape.dialects.function_facts import facts_of
from symshape.dialects.in_flight import read_until
from symshape.dialects.sizes import Layout, Sizes
from symshape.dialects.types import dtype_of
from symshape.passes.framework.base import Pass, PassContext
from symshape.prover.numbers.expr import Expr
from symshape.prover.numbers.facts import Facts

_ATTEMPTS = 8  # free sizes of other forms that are compared with a wanted one, at most


@dataclass(frozen=True)
class ReuseBuffers(Pass):
    """Destinations of launches take over memory of dead tensors of provably equal byte size.

    Before::

        %d = tensor.empty(%s0) : tensor<?xf32>
        %r = "host.launch"(%t, %d, %s0) {callee = @kernel_1}     // the last use of %t

    After::

        %d = "symshape.reuse"(%t) : (tensor<?xf32>) -> tensor<?xf32>
        %r = "host.launch"(%t, %d, %s0) {callee = @kernel_1}

    A tensor is dead after the last use of it and of all its views; during that use already, where the kernel may write
    in place (``symshape.in_place``). What a collective reads is used until the wait for its result. Nothing takes over
    arguments. What is returned takes only memory that was allocated here, not that of a library call's result, which
    may be larger than it looks. Memory of tensors that kernels cannot read (of other devices, negative views) is left
    alone.

    ``in_place``  let a kernel write over an input that dies with it
    """

    name: ClassVar[str] = "reuse-buffers"
    statistics: ClassVar[dict[str, str]] = {
        "allocated": "destinations with memory of their own",
        "reused": "destinations in the memory of dead tensors",
        "in_place": "launches that write over an input",
    }
    in_place: bool = True

    def run(self, module: ir.Module, context: PassContext) -> bool:
        count = {"allocated": 0, "reused": 0, "in_place": 0}
        kernels = {function_name(f): in_place_of(f) if self.in_place else [] for f in kernel_functions(module)}
        for function in main_functions(module):
            _Function(function, kernels, count).run()
        self.count(context, **count)
        return count["reused"] + count["in_place"] > 0


@dataclass(eq=False)
class _Memory:
    """One tensor's memory, from the operation that makes the tensor to the last use of it or of a view.

    ``value``: the tensor. ``bytes``: its size; None if unknown, or if the memory may have other aliases. ``last``:
    position of the last use. ``allocated``: by the host program, not by a library.
    """

    value: ir.Value
    bytes: Expr | None = None
    last: int = -1
    allocated: bool = False
    returned: bool = False


@dataclass
class _Free:
    """Dead memory by size, the last to die on top: most of it may still be in the caches."""

    facts: Facts
    stacks: dict[Expr, list[_Memory]] = field(default_factory=dict)

    def put(self, memory: _Memory) -> None:
        if memory.bytes is not None:
            self.stacks.setdefault(memory.bytes, []).append(memory)

    def take(self, wanted: _Memory) -> _Memory | None:
        """Memory of the same size, or None."""
        size = wanted.bytes
        assert size is not None
        exact = self._pop(size, wanted)
        if exact is not None:
            return exact
        others = [known for known, stack in self.stacks.items() if stack and known != size]
        for known in others[-_ATTEMPTS:]:
            if known.symbols == size.symbols and self.facts.equal(known, size):
                found = self._pop(known, wanted)
                if found is not None:
                    return found
        return None

    def _pop(self, size: Expr, wanted: _Memory) -> _Memory | None:
        stack = self.stacks.get(size, [])
        for i in reversed(range(len(stack))):
            if _fits(stack[i], wanted):
                return stack.pop(i)
        return None


def _fits(dead: _Memory, wanted: _Memory) -> bool:
    """Whether a dead tensor's memory serves for another. A library's result may be part of a larger storage: it must
    not be returned, nor be reinterpreted as another type."""
    return dead.allocated or (not wanted.returned and dtype_of(dead.value) == dtype_of(wanted.value))


class _Function:
    def __init__(self, function: Any, kernels: dict[str, list[tuple[int, int]]], count: dict[str, int]) -> None:
        self.kernels, self.count = kernels, count
        self.function = function
        self.operations = [view.operation for view in function.regions[0].blocks[0].operations]
        self.sizes = Sizes(function.regions[0].blocks[0])
        self.sizes.learn(self.operations)
        self.memory: dict[ir.Value, _Memory] = {}  # of every tensor value

    def run(self) -> None:
        if not any(op.name == "host.launch" for op in self.operations):
            return
        self.facts = facts_of(self.function)
        self._read()
        dying: dict[int, list[_Memory]] = {}
        for memory in dict.fromkeys(self.memory.values()):
            dying.setdefault(memory.last, []).append(memory)
        free = _Free(self.facts)
        for position, op in enumerate(self.operations):
            taken = self._launch(op, position, free) if op.name == "host.launch" else set()
            for memory in dying.get(position, ()):
                if memory not in taken:
                    free.put(memory)

    # What lies where, and until when.

    def _read(self) -> None:
        fixed, in_flight = _unbacked(self.operations), read_until(self.operations)
        for position, op in enumerate(self.operations):
            if op.name == "symshape.bind":
                continue
            self._define(op, fixed)
            if op.name == "symshape.view":
                continue  # touches nothing: what reads the view does
            known = op.name in ("host.launch", "symshape.unbacked_symbol", "tensor.empty") or is_fresh(op)
            for value in (*op.operands, *op.results):
                memory = self.memory.get(value)
                if memory is not None:
                    memory.last = position
                    memory.returned |= op.name == "func.return"
                    if not known:  # it may keep the tensor, or return it
                        memory.bytes = None if op.name != "func.return" else memory.bytes
            for value in in_flight.get(op, ()):
                self.memory[value].last = position

    def _define(self, op: Any, fixed: frozenset[str]) -> None:
        """Enters the memory of an operation's results, and of arguments when they are met."""
        for value in op.operands:
            if isinstance(value.type, ir.RankedTensorType) and value not in self.memory:
                self.memory[value] = _Memory(value)  # an argument
        if op.name == "symshape.view":
            self.memory[op.results[0]] = self.memory[op.operands[0]]
        elif op.name == "host.launch":
            for dest, result in zip(destinations(op), op.results):
                memory = self.memory[result] = self.memory[dest]
                memory.value = result
                if is_allocated(dest):
                    memory.bytes, memory.allocated = self._bytes(result, frozenset()), True
        elif op.name == "tensor.empty":
            self.memory[op.results[0]] = _Memory(op.results[0])
        else:
            for value in op.results:
                if isinstance(value.type, ir.RankedTensorType):
                    known = is_fresh(op) and value not in self.sizes.foreign
                    size = self._bytes(value, fixed) if known else None
                    self.memory[value] = _Memory(value, size)

    def _bytes(self, value: ir.Value, unknown: frozenset[str]) -> Expr | None:
        """The bytes of a tensor whose elements fill its memory without gaps, in simplest form."""
        layout, item = self.sizes.layouts.get(value), ITEM_SIZE.get(dtype_of(value))
        if layout is None or item is None or any(not unknown.isdisjoint(e.symbols) for e in layout.sizes):
            return None
        count = _dense(layout, self.facts)
        return None if count is None else self.facts.simplify(count * item)

    # Who takes what.

    def _launch(self, op: Any, position: int, free: _Free) -> set[_Memory]:
        """Assigns memory to the destinations of a launch; returns the memory taken over from its own inputs."""
        dests = destinations(op)
        tensors = [v for v in op.operands if isinstance(v.type, ir.RankedTensorType)]
        inputs = [self.memory[v] for v in tensors[: len(tensors) - len(dests)]]
        pairs = self.kernels[callee_of(op)]
        taken: set[_Memory] = set()
        for j, dest in enumerate(dests):
            memory = self.memory[dest]
            if not is_allocated(dest) or memory.bytes is None:
                continue
            dying = [
                inputs[i]
                for i, output in pairs
                if output == j
                and inputs[i].last == position
                and inputs.count(inputs[i]) == 1
                and inputs[i] not in taken
            ]
            source = next((m for m in dying if m.bytes is not None and _fits(m, memory)), None)
            if source is not None:
                taken.add(source)
            else:
                source = free.take(memory)
            kind = "allocated" if source is None else "in_place" if source in taken else "reused"
            self.count[kind] += 1
            if source is not None:
                _replace(dest, source.value, op)
                memory.allocated = source.allocated
        return taken


def _replace(dest: ir.Value, source: ir.Value, launch: Any) -> None:
    """The destination of a launch becomes the memory of ``source``."""
    empty = dest.owner
    with ir.InsertionPoint(launch), empty.location:
        reuse = ir.Operation.create("symshape.reuse", [dest.type], [source])
    dest.replace_all_uses_with(reuse.result)
    empty.erase()


def _unbacked(operations: Sequence[Any]) -> frozenset[str]:
    """Unbacked symbols: a library's results are checked before these are known."""
    return frozenset(symbol_name(op) for op in operations if op.name == "symshape.unbacked_symbol")


def _dense(layout: Layout, facts: Facts) -> Expr | None:
    """The number of elements, if the layout is dense in some order of the dims; None if that is not proven."""
    waiting = [
        (size, facts.simplify(stride)) for size, stride in zip(layout.sizes, layout.strides) if size.as_int() != 1
    ]
    count = Expr.const(1)
    while waiting:
        wanted = facts.simplify(count)
        found = next((pair for pair in waiting if pair[1] == wanted), None)
        if found is None:
            return None
        waiting.remove(found)
        count = count * found[0]
    return count
