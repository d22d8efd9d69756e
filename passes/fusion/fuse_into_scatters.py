"""fuse-into-scatters: fuses producers that only a scatter reads into its kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch_mlir import ir

from symshape.dialects.accessors import (
    body_of,
    by_value_of,
    callee_of,
    destinations,
    domain_of,
    function_name,
    in_place_of,
    index_map,
    is_allocated,
    is_fresh,
    iterators,
    kernel_attributes,
    kernel_functions,
    kernel_kind,
    main_functions,
    new_kernel,
    num_inputs,
    rename_function,
    scatter_dims,
    text_of_kernel,
    written_arguments,
)
from symshape.dialects.conditions import emit_condition
from symshape.dialects.function_facts import facts_of
from symshape.dialects.host import LaunchOp
from symshape.dialects.sizes import Sizes
from symshape.passes.framework.base import Pass, PassContext
from symshape.passes.fusion.compute_graph import HEAVY
from symshape.passes.fusion.kernel_sizes import known_of
from symshape.prover.numbers.expr import Expr
from symshape.prover.numbers.facts import Facts
from symshape.prover.numbers.magnitudes import Magnitudes

_VALUES = 1  # which operand of a scatter kernel: after the source
_DEAR = HEAVY - {"tensor.extract"}  # what a row of the values is gathered from lies side by side
_NOT_CLONED = frozenset({"symshape.assume", "symshape.bind", "symshape.space", "symshape.store", "func.return"})


@dataclass(frozen=True)
class FuseIntoScatters(Pass):
    """Joins a pointwise kernel with the scatter kernel that is the only reader of its result.

    Before::

        %v = "host.launch"(%h, %from, %e, %s0, %s1) {callee = @kernel_0}          // h[from]: an element for each edge
        %r = "host.launch"(%x, %v, %to, %d, %s0, %s1) {callee = @kernel_3}        // x.index_add(0, to, v)

    After::

        %r = "host.launch"(%x, %h, %from, %to, %d, %s0, %s1) {callee = @kernel_4}

    In the message passing of a graph network the values have a row for each edge, of which there are many more than
    nodes: they are the largest tensor, which then is never stored. A scatter is parallel only along the dims without an
    index. So kernels are not joined if the innermost dim has an index, since the work is then not vectorised, nor if
    the producer calls mathematical functions, which should run on more threads. If the program writes to arguments, a
    producer that reads the scatter's destination is not joined (``k[:, :, i] *= 2``): the result could not be computed
    in the argument's memory then, and all of it would be copied.
    """

    name: ClassVar[str] = "fuse-into-scatters"
    statistics: ClassVar[dict[str, str]] = {
        "fused": "launches that became part of a scatter's",
    }

    def run(self, module: ir.Module, context: PassContext) -> bool:
        kernels = _Kernels(module)
        if not any(kernel_kind(f) == "scatter" for f in kernels.functions.values()):
            self.count(context, fused=0)
            return False
        fused = sum(_Main(main, kernels).run() for main in main_functions(module))
        if fused:
            kernels.drop_unused()
        self.count(context, fused=fused)
        return fused > 0


class _Kernels:
    """The kernels of a module by name and by text."""

    def __init__(self, module: ir.Module) -> None:
        self.module = module
        self.functions = {function_name(f): f for f in kernel_functions(module)}
        self.written: dict[str, str] = {}  # text -> name

    def share(self, function: Any) -> str:
        """The name of the kernel, or of the equal one that was written before it."""
        text = text_of_kernel(function)
        if text in self.written:
            function.erase()
            return self.written[text]
        number = 1 + max(int(name.rpartition("_")[2]) for name in self.functions)
        name = self.written[text] = f"kernel_{number}"
        rename_function(function, name)
        self.functions[name] = function
        return name

    def drop_unused(self) -> None:
        used = {callee_of(op) for f in main_functions(self.module) for op in body_of(f) if op.name == "host.launch"}
        for name, function in self.functions.items():
            if name not in used:
                function.erase()


@dataclass(frozen=True)
class _Launched:
    """A launch and its kernel: ``expressions`` are the launch's size arguments over the symbols of the host program."""

    op: Any
    function: Any
    expressions: tuple[Expr, ...]

    @property
    def inputs(self) -> list[ir.Value]:
        return list(self.op.operands)[: num_inputs(self.function)]

    @property
    def tensors(self) -> int:
        return num_inputs(self.function) + len(self.op.results)

    @property
    def block(self) -> ir.Block:
        return self.function.regions[0].blocks[0]

    def the(self, name: str) -> Any:
        """The only operation of this name in the kernel's body, or None."""
        found = [op for op in body_of(self.function) if op.name == name]
        return found[0] if len(found) == 1 else None

    def space(self) -> list[Expr]:
        sizes = Sizes(self.block)
        for argument, expr in zip(list(self.block.arguments)[self.tensors :], self.expressions):
            sizes.define(argument, expr)
        for op in body_of(self.function):
            sizes.read(op)
        return [sizes.expr(size) for size in self.the("symshape.space").operands]


class _Main:
    def __init__(self, function: Any, kernels: _Kernels) -> None:
        self.kernels = kernels
        self.operations: list[Any] = body_of(function)  # None in the place of what is gone
        self.sizes = Sizes(function.regions[0].blocks[0])
        self.sizes.learn(self.operations)
        self.facts: Facts = facts_of(function)
        self.magnitudes = Magnitudes(self.sizes.shapes_in_memory(), self.facts)
        self.writes_inputs = max(written_arguments(self.operations[-1]), default=-1) >= 0

    def run(self) -> int:
        fused = 0
        for op in list(self.operations):
            if (
                op is not None
                and op.name == "host.launch"
                and kernel_kind(self.kernels.functions[callee_of(op)]) == "scatter"
            ):
                scatter = self._launched(op)
                made = self._made_for(scatter)
                if made is not None:
                    self._fuse(made, scatter)
                    fused += 1
        return fused

    def _position(self, op: Any) -> int:
        """Found by comparison: an operation's hash is that of its operands, which change."""
        return next(i for i, one in enumerate(self.operations) if one is not None and one == op)

    def _launched(self, op: Any) -> _Launched:
        function = self.kernels.functions[callee_of(op)]
        first = num_inputs(function) + len(op.results)
        return _Launched(op, function, tuple(self.sizes.expr(v) for v in list(op.operands)[first:]))

    def _made_for(self, scatter: _Launched) -> _Launched | None:
        """The launch that computes the scatter's values point by point, if it has no other readers."""
        value = scatter.op.operands[_VALUES]
        maker = value.owner
        if isinstance(maker, ir.Block) or maker.name != "host.launch" or len(maker.results) != 1:
            return None
        users = [use.owner.operation for use in value.uses]
        if any(op.name != "symshape.bind" and op != scatter.op for op in users):
            return None
        if sum(operand == value for operand in scatter.op.operands) != 1 or not is_allocated(destinations(maker)[0]):
            return None
        if not self._computes_sizes(maker.operation):
            return None
        made = self._launched(maker.operation)
        if kernel_kind(made.function) != "pointwise" or not _is_light(made) or not _in_vectors(scatter):
            return None
        if not _at_own_point(made, scatter) or made.space() != scatter.space():
            return None
        if self.writes_inputs and self._reads_what_is_written(made, scatter):
            return None
        between = self.operations[self._position(made.op) + 1 : self._position(scatter.op)]
        return None if any(op is not None and _may_write(op) for op in between) else made

    def _reads_what_is_written(self, made: _Launched, scatter: _Launched) -> bool:
        """Whether values of the scatter are computed from its source, or from the tensor that its source is a copy
        of."""
        source = scatter.op.operands[0]
        originals, maker = [source], source.owner
        if not isinstance(maker, ir.Block) and maker.name == "host.launch":
            pairs = in_place_of(self.kernels.functions[callee_of(maker)])
            originals += [maker.operands[i] for i, _ in pairs]
        return any(value in originals for value in made.inputs)

    def _computes_sizes(self, launch: Any) -> bool:
        """Whether a kernel can compute the launch's non-tensor arguments from the symbols."""
        given = [v for v in launch.operands if not isinstance(v.type, ir.RankedTensorType)]
        return all(v in self.sizes and self.magnitudes.fit(self.sizes.expr(v)) for v in given)

    def _fuse(self, made: _Launched, scatter: _Launched) -> None:
        writer = _Writer(made, scatter, self.facts)
        with ir.InsertionPoint(self.kernels.module.body), ir.Location.unknown():
            name = self.kernels.share(writer.write())
        op, result = scatter.op, scatter.op.results[0]
        operands = [*writer.inputs, destinations(op)[0], *(self._size(op, e) for e in writer.symbols)]
        with ir.InsertionPoint(op), op.location:
            launch = LaunchOp(name, operands, [result.type]).operation
        result.replace_all_uses_with(launch.results[0])
        binds = [use.owner.operation for use in made.op.results[0].uses if use.owner.operation != op]
        dest = destinations(made.op)[0].owner.operation
        for old in (*binds, op, made.op, dest):
            self.operations[self._position(old)] = None
            old.erase()

    def _size(self, op: Any, name: str) -> ir.Value:
        """A symbol's value, available before an operation."""
        wanted = Expr.symbol(name)
        return next(v for v, expr in self.sizes.known() if expr == wanted)


def _is_light(made: _Launched) -> bool:
    bodies = (op.regions[0].blocks[0] for op in body_of(made.function) if op.name == "linalg.generic")
    return not any(view.operation.name in _DEAR for body in bodies for view in body.operations)


def _in_vectors(scatter: _Launched) -> bool:
    """Whether the innermost dim of the space is parallel, and is the destination's innermost dim."""
    write, space = scatter.the("symshape.scatter"), scatter.the("symshape.space")
    last = len(space.operands) - 1
    return last >= 0 and iterators(space)[-1] == "parallel" and scatter_dims(write)[-1] == last


def _at_own_point(made: _Launched, scatter: _Launched) -> bool:
    """Whether each point of the producer writes the element that the same point of the scatter reads."""
    store, values = made.the("symshape.store"), scatter.block.arguments[_VALUES]
    views = [op for op in body_of(scatter.function) if op.name == "symshape.view" and op.operands[0] == values]
    read = all(domain_of(op) is None and _is_identity(index_map(op)) for op in views)
    return store is not None and _is_identity(index_map(store)) and len(views) == 1 and read


def _is_identity(map_: ir.AffineMap) -> bool:
    return map_ == ir.AffineMap.get_identity(map_.n_dims) and map_.n_symbols == 0


def _may_write(op: Any) -> bool:
    """Whether an operation of the host program may change a tensor that others read."""
    quiet = op.name in ("host.launch", "tensor.empty") or not op.name.startswith("host.") or is_fresh(op)
    return not quiet


class _Writer:
    """Writes the kernel that does the work of both. Sizes are expressions of the host program's symbols."""

    def __init__(self, made: _Launched, scatter: _Launched, facts: Facts) -> None:
        self.made, self.scatter, self.facts = made, scatter, facts
        source, _, *indices = scatter.inputs
        self.inputs = [source, *made.inputs, *indices]
        expressions = (*made.expressions, *scatter.expressions)
        self.symbols = list(dict.fromkeys(name for e in expressions for name in sorted(e.symbols)))

    def write(self) -> Any:
        dest, index = destinations(self.scatter.op)[0], ir.IndexType.get()
        types = [v.type for v in (*self.inputs, dest)] + [index] * len(self.symbols)
        function = new_kernel(types, [dest.type], self._attributes())
        block = function.regions[0].blocks[0]
        arguments, tensors = list(block.arguments), len(self.inputs) + 1
        sizes = Sizes(block)
        with ir.InsertionPoint(block):
            for name, value in zip(self.symbols, arguments[tensors:]):
                sizes.define(value, Expr.symbol(name))
            for name in self.symbols:
                for condition in known_of(self.facts, Expr.symbol(name)):
                    ir.Operation.create("symshape.assume", [], [emit_condition(sizes, condition)])
            count = len(self.made.inputs)
            given = [arguments[0], arguments[1], *arguments[1 + count : tensors]]  # the values' place is not read
            of_made = self._given(sizes, self.made, arguments[1 : 1 + count])
            of_scatter = self._given(sizes, self.scatter, given)
            values = self.scatter.block.arguments[_VALUES]
            _bind(self.made, of_made, range(count))
            _bind(self.scatter, of_scatter, [i for i in range(self.scatter.tensors) if i != _VALUES])
            _copy(self.scatter.the("symshape.space"), of_scatter)
            for op in body_of(self.made.function):
                if op.name not in _NOT_CLONED:
                    _copy(op, of_made)
            computed = of_made[self.made.the("symshape.store").operands[0]]
            for op in body_of(self.scatter.function):
                if op.name == "symshape.view" and op.operands[0] == values:
                    of_scatter[op.results[0]] = computed
                elif op.name not in _NOT_CLONED:
                    _copy(op, of_scatter)
            written = of_scatter[self.scatter.the("symshape.scatter").results[0]]
            ir.Operation.create("func.return", [], [written])
        return function

    def _attributes(self) -> dict[str, ir.Attribute]:
        in_place = [(0, output) for _, output in in_place_of(self.scatter.function)]  # the source stays the first
        shift = len(self.made.inputs) - 1
        by_value = {i if i < _VALUES else i + shift for i in by_value_of(self.scatter.function)}
        by_value |= {i + _VALUES for i in by_value_of(self.made.function)}
        return kernel_attributes("scatter", len(self.inputs), 1, in_place, sorted(by_value))

    def _given(self, sizes: Sizes, launched: _Launched, tensors: Sequence[ir.Value]) -> dict[ir.Value, ir.Value]:
        """The values that replace a kernel's arguments."""
        numbers = [sizes.value(e) for e in launched.expressions]
        arguments = list(launched.block.arguments)
        return dict(zip(arguments, tensors)) | dict(zip(arguments[launched.tensors :], numbers))


def _bind(launched: _Launched, values: dict[ir.Value, ir.Value], tensors: Sequence[int]) -> None:
    """The binds of these arguments, and the sizes in their layouts."""
    wanted = {launched.block.arguments[i] for i in tensors}
    for op in body_of(launched.function):
        if op.name == "symshape.bind" and op.operands[0] in wanted:
            _copy(op, values)
        elif op.name.startswith("arith.") and op.results[0].type == ir.IndexType.get():
            _copy(op, values)


def _copy(op: Any, values: dict[ir.Value, ir.Value]) -> None:
    """Clones an operation, with its operands mapped, also inside of its regions; once."""
    if len(op.results) and op.results[0] in values:
        return
    clone = op.clone()
    for inner in (clone, *_nested(clone)):
        for i, operand in enumerate(inner.operands):
            if operand in values:
                inner.operands[i] = values[operand]
    values.update(zip(op.results, clone.results))


def _nested(op: Any) -> Iterator[Any]:
    for region in op.regions:
        for block in region:
            for view in block.operations:
                yield view.operation
                yield from _nested(view.operation)
