"""write-inputs: computes values that are copied to an argument in the argument's memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch_mlir import ir

from symshape.artifact.relations import OF_ARGUMENT
from symshape.dialects.accessors import (
    body_of,
    callee_of,
    destinations,
    function_name,
    in_place_of,
    is_allocated,
    is_fresh,
    is_subgraph,
    kernel_functions,
    main_functions,
    num_inputs,
    returned_relations,
    set_written_arguments,
    written_arguments,
)
from symshape.dialects.function_facts import facts_of
from symshape.dialects.sizes import Sizes
from symshape.dialects.types import dtype_of
from symshape.passes.framework.base import Pass, PassContext
from symshape.passes.memory.data_errors import errors_of, move_errors_up

# Ops that read tensors and pass on none of their memory, besides library calls that are ``fresh``.
_READERS = ("host.launch", "host.attention", "symshape.unbacked_symbol")


@dataclass(frozen=True)
class WriteInputs(Pass):
    """A result that is to be copied to an argument (``symshape.writes``) is computed in the argument's memory.

    Before::

        func.func @main(%cache, %i, %v) {
          %d0 = tensor.empty(%s0) : tensor<?xf32>
          %c = "host.launch"(%cache, %d0, %s0) {callee = @copy}
          %d1 = tensor.empty(%s0) : tensor<?xf32>
          %r = "host.launch"(%c, %v, %i, %d1, %s0) {callee = @scatter}
          return {symshape.writes = array<i64: 0>} %r

    After::

          %r = "host.launch"(%cache, %v, %i, %cache, %s0) {callee = @scatter}
          return %r

    PyTorch functionalises a graph: a step that writes one row of a key-value cache copies the cache, writes to the
    copy, and copies all of it back. The argument itself can be the destination if the kernel that computes the result
    is the last reader of it, point by point (``symshape.in_place``), or does not read it; if both have one layout; and
    if the caller gets no other result in that memory. A copy that only preserved the argument for this is removed.
    Other results are copied when the program ends.

    An error at run time must leave the argument unchanged: operations that may raise one (an index out of range) run
    first, and if they cannot, nothing is computed in place. Errors of operations on the result come later in eager mode
    too.

    Inductor calls this reinplacing (``torch/_inductor/fx_passes/reinplace.py``).
    """

    name: ClassVar[str] = "write-inputs"
    statistics: ClassVar[dict[str, str]] = {
        "written": "results that are computed in the memory of an argument",
        "copies": "copies of arguments that nothing needs",
        "left": "results that are copied to an argument at the end",
    }

    def run(self, module: ir.Module, context: PassContext) -> bool:
        count = {"written": 0, "copies": 0, "left": 0}
        kernels = {function_name(f): f for f in kernel_functions(module)}
        for function in main_functions(module):
            if is_subgraph(function) or max(written_arguments(body_of(function)[-1]), default=-1) < 0:
                continue
            for written in _Function(function, kernels).run():
                count["copies"] += written > 1
                count["written" if written else "left"] += 1
        self.count(context, **count)
        return count["written"] > 0


class _Function:
    """A function that writes to arguments."""

    def __init__(self, function: Any, kernels: dict[str, Any]) -> None:
        self.kernels = kernels
        self.arguments = list(function.regions[0].blocks[0].arguments)
        self.operations = body_of(function)
        self.returned = self.operations[-1]
        self.values, self.written = list(self.returned.operands), written_arguments(self.returned)
        self.sizes = Sizes(function.regions[0].blocks[0])
        self.sizes.learn(self.operations)
        self.facts = facts_of(function)
        self.position: dict[ir.Value, int] = {}  # by an operation's first result
        self.root: dict[ir.Value, ir.Value] = {}  # view -> the tensor whose memory it is in
        self.inputs: dict[ir.Value, list[ir.Value]] = {}  # of launches, by the first result
        self.pairs: dict[str, dict[int, list[int]]] = {}  # of kernels: output -> inputs that it may be written over
        self.reads: dict[ir.Value, list[int]] = {}  # of a tensor's memory, by root: positions
        self.kept: set[ir.Value] = set()  # roots whose memory may be known under another name
        self.returns: dict[ir.Value, list[int]] = {}  # of a tensor's memory: operands of the return

    def run(self) -> list[int]:
        """For each result that is to be copied to an argument: 2 if it is computed there and a copy of the argument is
        removed, 1 if it is computed there, 0 if it is not."""
        writers = [_launch_of(value) for value, place in zip(self.values, self.written) if place >= 0]
        move_errors_up(self.operations, self.kernels, [op for op in writers if op is not None])
        operations = (view.operation for view in self.returned.operation.block.operations)
        self.operations = [op for op in operations if op.name != "symshape.bind"]  # a copy that goes has some
        self.position = {op.results[0]: i for i, op in enumerate(self.operations) if len(op.results)}
        found = ((i, errors_of(op, self.kernels)) for i, op in enumerate(self.operations))
        self.errors = [(i, errors) for i, errors in found if errors]
        for i, op in enumerate(self.operations):
            self._read(i, op)
        relations = returned_relations(self.returned)
        for operand, value in enumerate(self.values):
            self.returns.setdefault(self.root.get(value, value), []).append(operand)
        placed = []
        left = list(self.written)
        for operand, (value, place) in enumerate(zip(self.values, self.written)):
            if place < 0:
                continue
            others = [relations[i] for i in self.returns[self.root.get(value, value)] if i != operand]
            self.argument = self.arguments[place]
            placed.append(self._write(value) if all(one == OF_ARGUMENT for one in others) else 0)
            left[operand] = -1 if placed[-1] else place
        set_written_arguments(self.returned, left)
        return placed

    def _read(self, position: int, op: Any) -> None:
        tensors = [v for v in op.operands if isinstance(v.type, ir.RankedTensorType)]
        roots = [self.root.get(v, v) for v in tensors]
        if op.name == "symshape.view":
            self.root[op.results[0]] = roots[0]
            return
        for root in roots:
            self.reads.setdefault(root, []).append(position)
        if op.name not in (*_READERS, "func.return", "symshape.expect_true") and not is_fresh(op):
            self.kept.update(roots)

    def _write(self, value: ir.Value) -> int:
        if self.argument in self.kept or value in self.kept or not self._same_layout(value):
            return 0
        return self._place(value)

    def _place(self, value: ir.Value) -> int:
        launch = _launch_of(value)
        if launch is None:
            return 0
        output = ir.OpResult(value).result_number
        dest = launch.operands[num_inputs(self.kernels[callee_of(launch)]) + output]
        if not is_allocated(dest) or not self._may_write(launch, output) or self._may_fail(launch):
            return 0
        before, copy = self._source(launch, output), False
        while before is not None and not copy and (original := self._copied(before)) is not None:
            self._leave_out(before, original)
            copy = original == self.argument
            before = None if copy else original
        placed = before is not None and self._place(before) > 0
        self._replace(dest, before if placed else self.argument, launch)
        self.reads.setdefault(self.argument, []).append(self.position[launch.results[0]])
        self._at_argument(value)
        return 2 if copy else 1

    def _may_fail(self, launch: Any) -> bool:
        """Whether the program may raise an error after the launch has started, from an operation that does not depend
        on its result: the argument would have to be unchanged then."""
        position = self.position[launch.results[0]]
        errors = [(i, decided_by) for i, decided_by in self.errors if i >= position]
        if not errors:
            return False
        made = set(launch.results)
        for op in self.operations[position + 1 :]:
            if any(value in made for value in op.operands):
                made.update(op.results)
        return any(i == position or any(made.isdisjoint(one) for one in decided_by) for i, decided_by in errors)

    def _may_write(self, launch: Any, output: int) -> bool:
        """Whether the argument's old data is not read after the launch has written there."""
        position = self.position[launch.results[0]]
        reads = self.reads.get(self.argument, [])
        if any(one > position for one in reads):
            return False
        if not reads or reads[-1] < position:
            return True
        at = [i for i, v in enumerate(self._inputs(launch)) if self.root.get(v, v) == self.argument]
        whole = all(self._inputs(launch)[i] == self.argument for i in at)  # a view may begin elsewhere
        return len(at) == 1 and whole and at[0] in self._over(launch, output)

    def _source(self, launch: Any, output: int) -> ir.Value | None:
        """An input that the launch may overwrite, and that nothing else needs: both can share memory."""
        inputs = self._inputs(launch)
        for i in self._over(launch, output):
            value = inputs[i]
            here, reads = self.position[launch.results[0]], self.reads.get(value, [])
            only = value not in self.root and value not in self.kept and max(reads) == here and reads.count(here) == 1
            if only and not isinstance(value.owner, ir.Block) and self._same_layout(value):
                return value
        return None

    def _over(self, launch: Any, output: int) -> list[int]:
        """The inputs that an output of a launch may be written over."""
        callee = callee_of(launch)
        if callee not in self.pairs:
            found = self.pairs[callee] = {}
            for i, j in in_place_of(self.kernels[callee]):
                found.setdefault(j, []).append(i)
        return self.pairs[callee].get(output, [])

    def _inputs(self, launch: Any) -> list[ir.Value]:
        first = launch.results[0]
        if first not in self.inputs:
            self.inputs[first] = list(launch.operands)[: num_inputs(self.kernels[callee_of(launch)])]
        return self.inputs[first]

    def _same_layout(self, value: ir.Value) -> bool:
        mine, theirs = (self.sizes.layouts.get(v) for v in (value, self.argument))
        foreign = value in self.sizes.foreign or self.argument in self.sizes.foreign
        if mine is None or theirs is None or foreign or dtype_of(value) != dtype_of(self.argument):
            return False
        pairs = zip((*mine.sizes, *mine.strides), (*theirs.sizes, *theirs.strides), strict=True)
        return all(a == b or self.facts.equal(a, b) for a, b in pairs)

    def _copied(self, value: ir.Value) -> ir.Value | None:
        """The tensor that a launch copies, if the launch does nothing else, and the tensor is the argument or may share
        memory with the copy."""
        launch = _launch_of(value)
        if launch is None or len(launch.results) != 1 or len(self._inputs(launch)) != 1:
            return None
        kernel, original = self.kernels[callee_of(launch)], self._inputs(launch)[0]
        bodies = [op for op in body_of(kernel) if op.name == "linalg.generic"]
        if in_place_of(kernel) != [(0, 0)] or len(bodies) != 1:
            return None
        block = bodies[0].regions[0].blocks[0]
        (first, *others) = block.operations
        if others or list(first.operands) != [block.arguments[0]]:
            return None
        return original if original == self.argument or self._source(launch, 0) is not None else None

    def _leave_out(self, copy: ir.Value, original: ir.Value) -> None:
        launch = copy.owner.operation
        empty = destinations(launch)[0].owner.operation
        for use in list(copy.uses):
            if use.owner.operation.name == "symshape.bind":
                use.owner.operation.erase()
        self.inputs.clear()
        self.errors = [
            (i, [frozenset(original if v == copy else v for v in one) for one in errors]) for i, errors in self.errors
        ]
        self.reads.setdefault(original, []).extend(self.reads.pop(copy, []))
        self.root = {view: original if root == copy else root for view, root in self.root.items()}
        copy.replace_all_uses_with(original)
        for op in (launch, empty):
            self.operations[self.position[op.results[0]]] = self.returned  # positions stay
            op.erase()

    def _replace(self, dest: ir.Value, memory: ir.Value, launch: Any) -> None:
        """The destination of a launch becomes the memory of ``memory``."""
        empty = dest.owner.operation
        if memory != self.argument:
            with ir.InsertionPoint(launch), empty.location:
                memory = ir.Operation.create("symshape.reuse", [dest.type], [memory]).result
        dest.replace_all_uses_with(memory)
        self.operations[self.position[empty.results[0]]] = self.returned
        empty.erase()

    def _at_argument(self, value: ir.Value) -> None:
        """Gives the binds of the value the storage offset of the argument."""
        for bound in [use.owner.operation for use in self.argument.uses if use.owner.operation.name == "symshape.bind"]:
            for use in value.uses:
                if (bind := use.owner.operation).name == "symshape.bind":
                    bind.operands[len(bind.operands) - 1] = bound.operands[len(bound.operands) - 1]


def _launch_of(value: ir.Value) -> Any:
    """The launch that makes a value, None if none does."""
    owner = value.owner
    return owner.operation if not isinstance(owner, ir.Block) and owner.name == "host.launch" else None
