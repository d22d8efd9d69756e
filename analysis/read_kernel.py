"""Reads a kernel function, in the normal form of docs/kernels.md, into a loop program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from torch_mlir import ir

from symshape.analysis.instr_builder import InstrBuilder
from symshape.analysis.kernel_facts import SpaceFacts, space_facts, symbol_facts
from symshape.analysis.loops import Arg, Dim, LoopKernel
from symshape.analysis.read_body import Accumulator, Body, BodyReader, address_of
from symshape.dialects.accessors import (
    ASSOCIATIVE_SCAN,
    SCAN,
    by_value_of,
    combiner_of,
    function_name,
    is_scan,
    iterators,
    num_inputs,
    scan_results,
    scatter_combiner,
    scatter_dims,
    splat_number,
)
from symshape.dialects.conditions import read_condition
from symshape.dialects.locations import source_line
from symshape.dialects.sizes import Sizes
from symshape.dialects.views import read_domain, read_map
from symshape.errors import KernelError
from symshape.prover.numbers.decided import learn
from symshape.prover.numbers.expr import Expr, has_functions
from symshape.prover.numbers.facts import Facts

_BUG: Final = "this is a bug of the fusion pass"
# Destinations and initial values exist only in destination-passing style; a loop program has neither.
_IGNORED: Final = frozenset(
    {
        "func.func",
        "tensor.empty",
        "tensor.splat",
        "builtin.unrealized_conversion_cast",
        "linalg.fill",
        "symshape.expect_true",
    }
)


@dataclass(frozen=True)
class View:
    """A view of a kernel argument; loaded when an operation uses it."""

    arg: int
    address: Expr
    mask: tuple[Expr, ...]


def read_kernel(func_op: Any) -> LoopKernel:
    """The loop program of a kernel function. Addresses are composed with strides and simplified. KernelError if the
    function is not in normal form."""
    func = func_op.operation
    ops: list[Any] = []

    def collect(op: Any) -> Any:
        ops.append(op)
        return ir.WalkResult.ADVANCE

    # One flat walk: iterating over blocks creates a Python view of each op, which costs more than reading it.
    func.walk(collect, ir.WalkOrder.PRE_ORDER)
    with func.context, func.location:
        reader = _KernelReader(func, ops)
        for op in ops:
            reader.read(op)
        return reader.finish()


class _KernelReader:
    def __init__(self, func: Any, ops: Sequence[Any]) -> None:
        block = func.regions[0].blocks[0]
        self._name: str = function_name(func)
        self._sizes = Sizes(block)
        self._body: Body | None = None
        self._arg_of: dict[ir.Value, int] = {}
        self._args: list[Arg] = []
        self._numbers: dict[ir.Value, int] = {}  # value numbers of the scalars of computed tensors
        self._views: dict[ir.Value, View] = {}
        self._inside: dict[tuple[int, bool], Facts] = {}  # by argument and level: facts if the argument is not empty
        self._symbols: list[str] = []
        self._carries = 0  # number of carries of the scans read so far
        self._read_head(func, block, ops)
        self._facts = self._read_facts(ops)
        self._builder = InstrBuilder(frozenset(d.name for d in self._dims if d.reduced), self._facts.simplify)
        self._bodies = BodyReader(self._builder, self._sizes, self._args, self._arg_of)

    # Arguments and the iteration space, which all other operations refer to.

    def _read_head(self, func: Any, block: ir.Block, ops: Sequence[Any]) -> None:
        tensors: list[ir.Value] = []
        for value in block.arguments:
            if value.type == self._sizes.index_type:
                self._sizes.define(value, Expr.symbol(f"s{len(self._symbols)}"))
                self._symbols.append(f"s{len(self._symbols)}")
            else:
                tensors.append(value)
        space = None
        for op in ops:
            space = op if op.name == "symshape.space" else space
            if op.name.startswith("arith.") or op.name == "symshape.bind":
                if op.parent == func:
                    self._sizes.read(op)
        if space is None:
            raise KernelError(f"{self._name} has no symshape.space", next_step=_BUG)
        self._dims = self._read_space(space)
        self._parallel = [d.name for d in self._dims if not d.reduced]
        self._read_args(func, tensors)

    def _read_facts(self, ops: Sequence[Any]) -> SpaceFacts:
        conditions = (read_condition(self._sizes, op.operands[0]) for op in ops if op.name == "symshape.assume")
        self._known = tuple(condition for condition in conditions if condition is not None)
        if not self._known:
            return space_facts(self._args, self._dims)
        facts = symbol_facts(self._args)
        for condition in self._known:
            learn(facts, condition)
        return SpaceFacts(facts, self._dims)

    def _read_space(self, space: Any) -> tuple[Dim, ...]:
        dims = []
        for i, (value, iterator) in enumerate(zip(space.operands, iterators(space), strict=True)):
            dims.append(Dim(f"d{i}", self._sizes.expr(value), iterator == "reduction", f"d{i}"))
        return tuple(dims)

    def _read_args(self, func: Any, tensors: Sequence[ir.Value]) -> None:
        inputs, by_value = num_inputs(func), by_value_of(func)
        for i, value in enumerate(tensors):
            layout = self._sizes.layouts.get(value)
            if layout is None:
                raise KernelError(f"{self._name}: tensor argument {i} has no symshape.bind", next_step=_BUG)
            dtype = str(ir.RankedTensorType(value.type).element_type)
            name = f"in{i}" if i < inputs else f"out{i - inputs}"
            self._arg_of[value] = i
            self._args.append(Arg(name, dtype, i >= inputs, layout.sizes, layout.strides, i in by_value))

    # Operations, in order.

    def read(self, op: Any) -> None:
        name = op.name
        if self._body is not None:
            self._finish_generic(op) if name == "linalg.yield" else self._bodies.read(op, self._body)
        elif name == "symshape.view":
            self._views[op.results[0]] = self._read_view(op)
        elif name == "linalg.generic":
            self._body = self._start_generic(op)
        elif name == "symshape.store":
            self._read_store(op)
        elif name == "symshape.scatter":
            self._read_scatter(op)
        elif name == "func.return":
            self._check_results(op)
        elif name == "linalg.yield" or name in _IGNORED:  # the yield of a linalg.fill
            return
        elif not name.startswith(("arith.", "symshape.")):  # these are read with the head, or at their uses
            raise self._error(op, f"{name} is not supported in a kernel")

    def _check_results(self, returned: Any) -> None:
        for i, value in enumerate(returned.operands):
            if isinstance(value.owner, ir.Block) or value.owner.name not in ("symshape.store", "symshape.scatter"):
                raise self._error(returned, f"result {i} is not what a store or a scatter of the kernel writes")

    def finish(self) -> LoopKernel:
        code = self._builder.finish()
        return LoopKernel(self._name, self._dims, tuple(self._args), tuple(self._symbols), code, self._known)

    def _names(self, op: Any, rank: int) -> tuple[str, ...]:
        """Names of the dims of the level with this rank: the whole space, or its parallel dims."""
        if rank == len(self._dims):
            return tuple(d.name for d in self._dims)
        if rank == len(self._parallel):
            return tuple(self._parallel)
        raise self._error(op, f"iterates over {rank} dims, but the space has {len(self._dims)}")

    def _is_row(self, names: Sequence[Any]) -> bool:
        return len(names) < len(self._dims)

    def _read_view(self, op: Any) -> View:
        source, *indices = op.operands
        arg = self._arg_of.get(source)
        if arg is None:
            raise self._error(op, "a view of a value that is no kernel argument")
        rank = ir.RankedTensorType(op.results[0].type).rank
        dims = [Expr.symbol(name) for name in self._names(op, rank)]
        symbols = [self._sizes.expr(value) for value in indices[rank:]]
        row = self._is_row(dims)
        address = self._address(read_map(op, dims, symbols), arg, row)
        facts = self._facts.row if row else self._facts.full
        conditions = dict.fromkeys(facts.simplify(e) for e in read_domain(op, dims, symbols))
        return View(arg, address, tuple(e for e in conditions if not facts.nonnegative(e)))

    def _address(self, indices: list[Expr], arg: int, row: bool) -> Expr:
        """The address of an element of an argument, simplified under the facts that the argument is not empty."""
        address = self._facts.simplify(address_of(indices, self._args[arg]), row)
        if not has_functions(address):
            return address
        if (arg, row) not in self._inside:
            facts = (self._facts.row if row else self._facts.full).copy()
            for size in self._args[arg].sizes:
                facts.assume_nonnegative(size - 1)
            self._inside[arg, row] = facts
        return self._inside[arg, row].simplify(address)

    def _operand(self, value: ir.Value, names: Sequence[str], op: Any) -> int:
        """The value number of a tensor operand's scalar at the current point."""
        number = self._numbers.get(value)
        if number is not None:
            return number
        view = self._views.get(value)
        if view is None:
            arg = self._arg_of.get(value)
            rank = ir.RankedTensorType(value.type).rank
            if arg is None or rank != len(names):
                raise self._error(op, "an operand that is neither a view of an argument nor computed in this kernel")
            indices: list[Expr] = [Expr.symbol(name) for name in names]
            view = View(arg, self._facts.simplify(address_of(indices, self._args[arg]), self._is_row(names)), ())
        dtype = self._args[view.arg].dtype
        return self._builder.emit("load", (), dtype, arg=view.arg, address=view.address, mask=view.mask)

    def _start_generic(self, op: Any) -> Body:
        maps = [ir.AffineMapAttr(a).value for a in ir.ArrayAttr(op.attributes["indexing_maps"])]
        names = self._names(op, maps[0].n_dims if maps else 0)
        combiner = combiner_of(op)
        body = Body(op, self._is_row(names) and not combiner, names, combiner)
        arguments = op.regions[0].blocks[0].arguments
        outs = len(op.results)
        operands = list(op.operands)
        for i, (value, map_, argument) in enumerate(zip(operands, maps, arguments, strict=True)):
            read = [names[d.position] if isinstance(d, ir.AffineDimExpr) else "" for d in map_.results]
            if i >= len(operands) - outs:
                if is_scan(op):
                    self._enter_scan(op, body, i - len(operands) + outs, value, read)
                elif combiner:
                    body.scalars[argument] = Accumulator()
                    self._require(op, read == self._parallel and bool(combiner))
                else:
                    self._require(op, read == list(names))
                continue
            self._require(op, read == list(names) or read == self._parallel)
            number = self._operand(value, read, op)
            if combiner == ASSOCIATIVE_SCAN and i < outs // 2:
                number = self._builder.emit("element", (number,), str(argument.type), carry=self._carries + i)
            body.scalars[argument] = number
        return body

    def _finish_generic(self, op: Any) -> None:
        body, self._body = self._body, None
        assert body is not None
        if not body.combiner:
            for result, value in zip(body.op.results, op.operands, strict=True):
                self._numbers[result] = self._bodies.value(value, body)
            return
        if body.combiner == SCAN:
            self._finish_scan(body, list(op.operands))
            return
        if body.combiner == ASSOCIATIVE_SCAN:
            self._finish_associative_scan(body, list(op.operands))
            return
        yielded = [body.scalars.get(value) for value in op.operands]
        first = yielded[0]
        if isinstance(first, Accumulator) and first.operand is not None and len(yielded) == 1:
            value = first.operand
        else:  # an arg-reduction: its body is fixed, so that only its operand matters
            value = self._arg_reduced(body)
        types = [argument.type for argument in body.op.regions[0].blocks[0].arguments][-len(yielded) :]
        for result, number in zip(body.op.results, self._bodies.reduce(value, types, body), strict=True):
            self._numbers[result] = number

    def _enter_scan(self, op: Any, body: Body, out: int, value: ir.Value, read: Sequence[str]) -> None:
        """Defines a scan's carried value in its body. Later outs are results, which the body does not read."""
        carries = len(op.results) // 2
        if out >= carries:
            self._require(op, read == [d.name for d in self._dims])
            return
        self._require(op, read == self._parallel)
        argument = op.regions[0].blocks[0].arguments[len(op.operands) - 2 * carries + out]
        dtype, number = str(argument.type), self._carries + out
        start = splat_number(value) if body.combiner == SCAN else None
        body.scalars[argument] = self._builder.emit("carried", (), dtype, carry=number, value=start)

    def _finish_scan(self, body: Body, yielded: list[ir.Value]) -> None:
        carries = len(yielded) // 2
        for i, value in enumerate(yielded[:carries]):
            self._builder.emit(
                "carry", (self._bodies.value(value, body),), str(value.type), results=0, carry=self._carries + i
            )
        for result, value in zip(scan_results(body.op), yielded[carries:], strict=True):
            self._numbers[result] = self._bodies.value(value, body)
        self._carries += carries

    def _finish_associative_scan(self, body: Body, yielded: list[ir.Value]) -> None:
        """Finishes an associative scan, whose results are what it carries: both halves of the yield must be equal."""
        carries, arguments = len(yielded) // 2, body.op.regions[0].blocks[0].arguments
        self._require(body.op, yielded[:carries] == yielded[carries:])
        for i, value in enumerate(yielded[:carries]):
            element = body.scalars[arguments[i]]
            assert isinstance(element, int)
            pair = (self._bodies.value(value, body), element)
            self._builder.emit("carry", pair, str(value.type), results=0, carry=self._carries + i)
        for i, result in enumerate(scan_results(body.op)):
            dtype = str(yielded[i].type)
            self._numbers[result] = self._builder.emit("scanned", (), dtype, carry=self._carries + i)
        self._carries += carries

    def _arg_reduced(self, body: Body) -> int:
        arguments = list(body.op.regions[0].blocks[0].arguments)
        if len(arguments) != 3 or body.combiner not in ("argmax", "argmin") or arguments[0].type != arguments[1].type:
            raise self._error(body.op, f"a reduction '{body.combiner}' that is not in normal form")
        return self._bodies.value(arguments[0], body)

    def _read_scatter(self, op: Any) -> None:
        """Reads a scatter. Each dim of the destination has an index: a computed value, or a dim of the space."""
        value, source, dest, *indices = op.operands
        names, given = [d.name for d in self._dims], iter(indices)
        at = [
            self._builder.index(Expr.symbol(names[dim])) if dim >= 0 else self._operand(next(given), names, op)
            for dim in scatter_dims(op)
        ]
        arg = self._arg_of[dest]
        self._builder.emit(
            "scatter",
            (self._operand(value, names, op), *at),
            self._args[arg].dtype,
            results=0,
            arg=arg,
            value=self._arg_of[source],
            combiner=scatter_combiner(op),
        )

    def _read_store(self, op: Any) -> None:
        value, dest, *indices = op.operands
        arg = self._arg_of.get(dest)
        if arg is None or not self._args[arg].output:
            raise self._error(op, "a store into a value that is no destination of the kernel")
        names = self._names(op, ir.RankedTensorType(value.type).rank)
        exprs = read_map(op, [Expr.symbol(name) for name in names], [self._sizes.expr(v) for v in indices])
        address = self._facts.simplify(address_of(exprs, self._args[arg]), self._is_row(names))
        number = self._operand(value, names, op)
        dtype = self._args[arg].dtype
        self._builder.emit("store", (number,), dtype, row=self._is_row(names), results=0, arg=arg, address=address)

    def _require(self, op: Any, holds: bool) -> None:
        if not holds:
            raise self._error(op, "indexing maps other than the identity and the projection to the parallel dims")

    def _error(self, op: Any, what: str) -> KernelError:
        return KernelError(f"{self._name}: {what}", where=source_line(op.location), next_step=_BUG)
