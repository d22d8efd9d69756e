"""outline-scatters: writes at data-dependent indices become kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch_mlir import ir

from symshape.artifact.element_types import NATIVE
from symshape.dialects.accessors import (
    call_arguments,
    calls_of,
    kernel_attributes,
    kernel_functions,
    main_functions,
    new_kernel,
    rename_function,
    text_of_kernel,
)
from symshape.dialects.conditions import emit_condition
from symshape.dialects.function_facts import facts_of
from symshape.dialects.host import LaunchOp
from symshape.dialects.sizes import Layout, Sizes
from symshape.dialects.template import instantiate
from symshape.dialects.types import dtype_of
from symshape.passes.framework.base import Pass, PassContext
from symshape.passes.fusion.kernel_sizes import known_of
from symshape.passes.lowering.aten.builder import ONE, ZERO, Builder, Tensor
from symshape.prover.numbers.expr import Expr
from symshape.prover.numbers.facts import Facts

TARGET = "symshape.scatter.default"


@dataclass(frozen=True)
class OutlineScatters(Pass):
    """Outlines each scatter as a kernel over the points that it writes; equal ones are shared.

    Before::

        %r = "host.call"(%x, %v, %i, %n) {target = "symshape.scatter.default",
             arguments = "($0, $1, (0, 1), False, ($3, 256), (-1, 1), [$2], (0,), 'add', True)"} : ...

    After::

        func.func private @kernel_3(%x, %v, %i, %dest, %s0: index) attributes {symshape.kernel, ...} {
          "symshape.space"(%s0, %c256) {iterators = ["reduction", "parallel"]}
          %o = "symshape.scatter"(%value, %x, %dest, %index) {dims = [-1, 1], combiner = "add"}
        }
        %d = tensor.empty(%s0)
        %r = "host.launch"(%x, %v, %i, %d, %s0) {callee = @kernel_3}

    The dims of the space along which the destination has no index are parallel; the others are sequential in every
    thread: results do not depend on the number of threads. The kernel may overwrite its source (``symshape.in_place``).
    """

    name: ClassVar[str] = "outline-scatters"
    statistics: ClassVar[dict[str, str]] = {
        "kernels": "different kernels",
    }

    def run(self, module: ir.Module, context: PassContext) -> bool:
        kernels = kernel_functions(module)
        names: dict[str, str] = {}
        for main in main_functions(module):
            calls = calls_of(main, {TARGET})
            if calls:
                function = _Function(module, main, names, len(kernels))
                for call in calls:
                    function.outline(call)
        self.count(context, kernels=len(names))
        return bool(names)


class _Function:
    def __init__(self, module: ir.Module, function: Any, names: dict[str, str], first: int) -> None:
        self.module, self.names, self.first = module, names, first
        self.facts: Facts = facts_of(function)
        self.block = function.regions[0].blocks[0]
        self.sizes = Sizes(self.block)
        self.sizes.learn(view.operation for view in self.block.operations)

    def outline(self, call: Any) -> None:
        template = call_arguments(call)
        operands = [self.sizes.expr(v) if v in self.sizes else v for v in call.operands]
        (x, values, value_dims, *others), _ = instantiate(template, operands)
        repeats, space, dims, indices, index_dims, combiner, wraps, *checked = others
        result = call.results[0]
        tensors = [x, values, *indices, result]
        layouts = self.sizes.layouts
        if any(v not in layouts or dtype_of(v) not in NATIVE for v in tensors):
            return
        space = [_expr(size) for size in space]
        mentioned = [*space, *(e for value in tensors for e in (*layouts[value].sizes, *layouts[value].strides))]
        symbols = list(dict.fromkeys(name for e in mentioned for name in sorted(e.symbols)))
        by_value = [i for i, value in enumerate(tensors) if value in self.sizes.foreign]
        writer = _Kernel(tensors, [layouts[v] for v in tensors], symbols, self.facts, by_value)
        with ir.InsertionPoint(self.module.body), ir.Location.unknown():
            along = _Along(tuple(value_dims), repeats, tuple(dims), tuple(index_dims), any(checked))
            function = writer.write(space, along, combiner, wraps, call.location)
        self._launch(call, self._share(function), tensors[:-1], symbols)

    def _share(self, function: Any) -> str:
        text = text_of_kernel(function)
        if text in self.names:
            function.erase()
            return self.names[text]
        name = self.names[text] = f"kernel_{self.first + len(self.names)}"
        rename_function(function, name)
        return name

    def _launch(self, call: Any, callee: str, tensors: list[ir.Value], symbols: list[str]) -> None:
        result = call.results[0]
        known = Sizes(self.block)
        for view in self.block.operations:
            if view.operation == call:
                break
            known.read(view.operation)
        with ir.InsertionPoint(call), call.location:
            type_ = ir.RankedTensorType(result.type)
            sizes = self.sizes.layouts[result].sizes
            dynamic = [known.value(s) for i, s in enumerate(sizes) if type_.is_dynamic_dim(i)]
            dest = ir.Operation.create("tensor.empty", [type_], dynamic).result
            numbers = [known.value(Expr.symbol(name)) for name in symbols]
            launch = LaunchOp(callee, [*tensors, dest, *numbers], [type_]).operation
        self.sizes.layouts[launch.results[0]] = self.sizes.layouts[result]  # for a scatter of what this one makes
        result.replace_all_uses_with(launch.results[0])
        call.erase()


@dataclass(frozen=True)
class _Along:
    """Which dims of the space the dims of tensors run along, as in ``symshape::scatter``. ``repeats``: values of size 1
    are repeated; ``dims``: those of the destination, -1 for an indexed one; ``indices``: of one index after the other,
    which are known to be in range where they are ``checked``."""

    values: tuple[int, ...]
    repeats: bool
    dims: tuple[int, ...]
    indices: tuple[int, ...]
    checked: bool


class _Kernel:
    """Writes the function of a scatter: ``tensors`` are its source, values, indices and destination; those at
    ``by_value`` are numbers that the host reads."""

    def __init__(
        self, tensors: list[ir.Value], layouts: list[Layout], symbols: list[str], facts: Facts, by_value: list[int]
    ) -> None:
        self.tensors, self.layouts, self.symbols, self.facts = tensors, layouts, symbols, facts
        self.by_value = by_value

    def write(
        self,
        space: list[Expr],
        along: _Along,
        combiner: str,
        wraps: bool,
        where: Any,
    ) -> Any:
        index = ir.IndexType.get()
        types = [v.type for v in self.tensors] + [index] * len(self.symbols)
        dest_type = self.tensors[-1].type
        function = new_kernel(types, [dest_type], self._attributes())
        block = function.regions[0].blocks[0]
        arguments = list(block.arguments)
        self.sizes = Sizes(block)
        with ir.InsertionPoint(block):
            for name, value in zip(self.symbols, arguments[len(self.tensors) :]):
                self.sizes.define(value, Expr.symbol(name))
            for name in self.symbols:
                for condition in known_of(self.facts, Expr.symbol(name)):
                    ir.Operation.create("symshape.assume", [], [emit_condition(self.sizes, condition)])
            for argument, layout in zip(arguments, self.layouts):
                operands = [self.sizes.value(e) for e in (*layout.sizes, *layout.strides, ZERO)]
                ir.Operation.create("symshape.bind", [], [argument, *operands])
            kinds = [ir.StringAttr.get("parallel" if d in along.dims else "reduction") for d in range(len(space))]
            sizes = [self.sizes.value(s) for s in space]
            ir.Operation.create("symshape.space", [], sizes, {"iterators": ir.ArrayAttr.get(kinds)})
            with where:
                result = self._scatter(arguments, space, along, combiner, wraps)
            ir.Operation.create("func.return", [], [result])
        return function

    def _attributes(self) -> dict[str, ir.Attribute]:
        source, dest = self.layouts[0], self.layouts[-1]
        over_source = (source.sizes, source.strides) == (dest.sizes, dest.strides)
        return kernel_attributes("scatter", len(self.tensors) - 1, 1, [(0, 0)] if over_source else [], self.by_value)

    def _scatter(
        self,
        arguments: list[Any],
        space: list[Expr],
        along: _Along,
        combiner: str,
        wraps: bool,
    ) -> ir.Value:
        b = Builder(self.sizes, self.facts)
        tensors = [Tensor(a, layout.sizes, dtype_of(a)) for a, layout in zip(arguments, self.layouts)]
        source, values, *indices, dest = tensors
        at, left = [], along.indices
        indexed = [dim for dim, runs_along in enumerate(along.dims) if runs_along < 0]
        for dim, index in zip(indexed, indices, strict=True):
            view = self._over(b, index, left[: index.rank], space)
            left = left[index.rank :]
            at.append(view if along.checked else b.checked_index(view, space, dest.sizes[dim], wraps, dim))
        value = b.cast(self._over(b, values, along.values, space, along.repeats), dest.dtype)
        operands = [value, source, dest, *at]
        i64 = ir.IntegerType.get_signless(64)
        attributes = {
            "dims": ir.ArrayAttr.get([ir.IntegerAttr.get(i64, dim) for dim in along.dims]),
            "combiner": ir.StringAttr.get(combiner),
        }
        return ir.Operation.create(
            "symshape.scatter", [dest.value.type], [t.value for t in operands], attributes
        ).result

    def _over(self, b: Builder, x: Tensor, dims: tuple[int, ...], space: list[Expr], repeats: bool = True) -> Tensor:
        """A tensor at every point of the space; with ``repeats``, dims of size 1 are broadcast."""

        def read(*d: Expr) -> list[Expr]:
            steps = [b.step(size, space[dim]) if repeats else ONE for dim, size in zip(dims, x.sizes)]
            return [d[dim] * step for dim, step in zip(dims, steps)]

        return b.view(x, space, read)


def _expr(size: Any) -> Expr:
    return size if isinstance(size, Expr) else Expr.const(size)
