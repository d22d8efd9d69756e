"""Generates the host program: Python source that binds sizes, allocates, launches, calls and frees.

Printed from the main function at the ``kernels`` stage. Memory of a kernel's result is a ``tensor.empty`` or a
``symshape.reuse`` there; a library call allocates its own results, which ``promised`` brings to the traced layout.
Buffers die at their last use; outputs have the strides of their binds; every constraint that was not proven is checked
as soon as its operands exist. A symbol becomes a Python local (``guard_stub``), and is passed to the kernels that take
it (``passes/fusion/kernel_sizes.py`` selects these).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch_mlir import ir

from symshape.artifact.element_types import TORCH_NAMES
from symshape.artifact.relations import OWN, VIEW
from symshape.codegen.host.entry_guards import read_entry
from symshape.codegen.host.error_lines import FALLIBLE, lines_of
from symshape.codegen.host.guard_stub import Constraint, check_lines, check_texts
from symshape.codegen.host.program_text import Buffer, LibraryCall, ProgramText
from symshape.codegen.host.segments import with_segments
from symshape.codegen.host.subgraph_calls import (
    write_associative_scan,
    write_attention,
    write_cond,
    write_scan,
    write_while,
)
from symshape.codegen.host.uncaptured import why_uncaptured
from symshape.dialects.accessors import (
    call_arguments,
    call_target,
    callee_of,
    calls_subgraphs,
    destinations,
    function_name,
    is_checked,
    is_read,
    is_subgraph,
    message_of,
    output_template,
    reading_of,
    result_indices,
    returned_relations,
    symbol_binding,
    symbol_name,
    symbol_range,
    symbol_source,
    written_arguments,
)
from symshape.dialects.conditions import condition_of, read_condition
from symshape.dialects.in_flight import read_until
from symshape.dialects.locations import source_line, source_lines
from symshape.dialects.reals import is_real, python, real_of
from symshape.dialects.sizes import Layout, Sizes
from symshape.dialects.template import substitute
from symshape.dialects.types import dtype_of
from symshape.errors import CompileError
from symshape.prover.numbers.condition import TRUE
from symshape.prover.numbers.expr import Expr, maximum, product

# The result strides of these are what the tracer says on every backend: no check at run time.
_EXACT_STRIDES = frozenset(
    {
        "aten.mm.default",
        "aten.addmm.default",
        "aten.bmm.default",
        "aten.baddbmm.default",
        "symshape.constant",
        "symshape.packed_convolution.default",
    }
)

_INTEGERS = frozenset({"i8", "ui8", "i16", "i32", "i64"})

_NAME = re.compile(r"\w+")
Held = tuple[tuple[Expr, ...], tuple[Expr, ...], str]  # sizes, strides, element type


@dataclass(frozen=True)
class Callees:
    """The kernels' calling conventions. ``pointers``: they take data pointers (CPU) instead of tensors; ``checking``:
    those with an error slot; ``by_value``: positions of tensors that a kernel takes as a number, by its name."""

    pointers: bool
    checking: frozenset[str]
    by_value: Mapping[str, frozenset[int]] = field(default_factory=dict)


def emit_program(functions: Sequence[Any], callees: Callees) -> ProgramText:
    """``functions``: of a module, those that are no kernels: main, and branches and loop bodies, which become Python
    functions of their names."""
    subgraphs = [f for f in functions if is_subgraph(f)]
    (main,) = (f for f in functions if f not in subgraphs)
    text = ProgramText(uncaptured=why_uncaptured(functions))
    for function in (main, *subgraphs):
        writer = Writer(function.regions[0].blocks[0], callees, text)
        stub = writer.write()
        name = "program" if function is main else function_name(function)
        head, *lines = [f"def {name}(args):\n", *(f"    {line}\n" for line in writer.lines)]
        first = text.source.count("\n") + 2
        text.user_lines += [(first + line, lines) for line, lines in writer.user_lines]
        text.source += head + "".join(lines)
        if function is main:
            text.stub = head + "".join(lines[:stub])
            text.entry = read_entry(writer.block, writer.sizes)
    return with_segments(text) if callees.pointers else text


class Writer:
    """Writes the lines of one function; shared parts go into ``text``."""

    def __init__(self, block: ir.Block, callees: Callees, text: ProgramText) -> None:
        self.block, self.callees, self.text = block, callees, text
        self.sizes = Sizes(block)
        self.lines: list[str] = []
        self.user_lines: list[tuple[int, str]] = []
        self.names: dict[ir.Value, str] = {}
        self.exprs: dict[Expr, str] = {}
        self.sources: dict[str, str] = {}  # symbol -> where its value comes from, for messages
        self.alias: dict[ir.Value, ir.Value] = {}  # destination -> launch result
        self.roots: dict[ir.Value, ir.Value] = {}  # view -> the tensor whose storage it is in
        self.returned: set[ir.Value] = set()  # tensors whose strides callers see
        self.least: dict[str, int] = {}  # of symbols
        self.tensors: dict[ir.Value, Held] = {}  # those that stand for a value of another shape or type
        self.used: set[ir.Value] = set()  # tensors that an operation other than a view or bind uses
        self.shown: set[ir.Value] = set()  # views that autograd must know as such
        self.counter = 0
        self.pending: list[Constraint] = []  # checks that come before the next operation that does anything
        self.bound: dict[int, str] = {}  # line -> the symbol that it binds, where nothing else depends on the line
        self._defined: tuple[int, set[str]] = 0, set()  # lines that were looked at, and the names that they define

    def write(self) -> int:
        """Fills ``lines``. How many of them come before any work."""
        operations = [view.operation for view in self.block.operations]
        for i, argument in enumerate(self.block.arguments):
            self.names[argument] = f"arg{i}"
        self._learn(operations)
        last = self._last_uses(operations)
        names = ", ".join(self.names[a] for a in self.block.arguments)
        if names:
            self.lines.append(f"{names}{',' if len(self.block.arguments) == 1 else ''} = args")
        self.lines.append("args.clear()")
        stub = 0
        for position, op in enumerate(operations):
            if not _is_quiet(op):
                self.check()
            stub = stub or (len(self.lines) if _is_work(op) else 0)
            handler = _HANDLERS.get(op.name)
            if op.name in FALLIBLE:
                self.user_lines.append((len(self.lines), "\n".join(lines_of(op, self.callees.checking))))
            if handler is not None:
                handler(self, op)
            elif op.name not in _SILENT and not op.name.startswith("arith."):
                hint = "lower it in an earlier pass, or print it by a function of _HANDLERS"
                what = f"the host program cannot express {op.name}"
                raise CompileError(what, where=source_line(op.location), next_step=hint)
            if op.name != "func.return":
                self._free(last.get(position, ()))
        return self._without_unread_symbols(stub)

    def _without_unread_symbols(self, stub: int) -> int:
        """Removes the lines of the stub that bind unused symbols: each reads a size of a tensor, or waits for its
        element. Returns how many of the first ``stub`` lines are left."""
        read = {name for i, line in enumerate(self.lines) if i not in self.bound for name in _NAME.findall(line)}
        unread = [i for i, name in self.bound.items() if name not in read]
        self.lines = [line for i, line in enumerate(self.lines) if i not in unread]
        self.user_lines = [(i - sum(one < i for one in unread), text) for i, text in self.user_lines]
        return stub - sum(one < stub for one in unread)

    def _learn(self, operations: list[Any]) -> None:
        for op in operations:
            if op.name == "host.launch":
                for result, dest in zip(op.results, destinations(op)):
                    self.alias[dest] = result
                    if dest in self.names:  # an argument that is written to
                        self.names[result] = self.names[dest]
            elif op.name == "symshape.view":
                source = op.operands[0]
                self.roots[op.results[0]] = self.roots.get(source, source)
            if op.name not in ("symshape.view", "symshape.bind"):
                self.used.update(op.operands)
        self._learn_shown(operations[-1])
        self.returned.update(self.alias.get(v, v) for v in operations[-1].operands)
        for op in reversed(operations):
            if op.name == "symshape.reuse" and self.alias.get(op.results[0], op.results[0]) in self.returned:
                self.returned.add(self.alias.get(op.operands[0], op.operands[0]))
        self.sizes.learn(operations)

    def _learn_shown(self, returned: Any) -> None:
        for value, relation in zip(returned.operands, returned_relations(returned)):
            if relation == VIEW and value in self.roots:
                self.shown.add(value)
            elif relation == VIEW and not isinstance(value.owner, ir.Block) and value.owner.name == "host.call":
                self.shown.update(v for v in value.owner.operands if v in self.roots)  # views of views

    def _last_uses(self, operations: list[Any]) -> dict[int, list[ir.Value]]:
        """Position -> tensors that no later operation uses."""
        seen: dict[ir.Value, int] = {}
        in_flight = read_until(operations)
        for position, op in enumerate(operations):
            if op.name == "symshape.bind":
                continue
            operands = [self.roots[op.results[0]]] if op.name == "symshape.view" else list(op.operands)
            if op.name == "func.return":
                operands += [self.block.arguments[place] for place in written_arguments(op) if place >= 0]
            if op.name == "symshape.view" and op.results[0] not in self.used:
                continue
            for value in (*operands, *in_flight.get(op, ()), *op.results):
                if isinstance(value.type, ir.RankedTensorType):
                    seen[self.alias.get(value, value)] = position
        result: dict[int, list[ir.Value]] = {}
        for value, position in seen.items():
            result.setdefault(position, []).append(value)
        return result

    def _free(self, values: Sequence[ir.Value]) -> None:
        names = [self.names[v] for v in values if v in self.names]
        if names:
            self.lines.append("del " + ", ".join(names))

    def check(self) -> None:
        """Emits one joint test of the pending constraints."""
        first = len(self.text.checks)
        self.text.checks += check_texts(self.pending, self.sources)
        self.lines += check_lines(self.pending, f"fail({first}, {len(self.text.checks)}, {{values}})")
        self.pending = []

    def is_defined(self, name: str) -> bool:
        """Whether a line so far gives the name a value."""
        looked_at, names = self._defined
        names.update(line.partition(" = ")[0] for line in self.lines[looked_at:])
        self._defined = len(self.lines), names
        return name in names

    def name(self, value: ir.Value) -> str:
        value = self.alias.get(value, value)
        if value not in self.names:
            self.names[value] = f"t{self.counter}"
            self.counter += 1
        return self.names[value]

    def size(self, expr: Expr) -> str:
        """The Python text of a size; anything longer than a symbol is computed once."""
        if expr.as_int() is not None or expr in self.exprs:
            return self.exprs.get(expr) or str(expr.as_int())
        text = expr.python()
        if text.isidentifier():
            return text
        name = f"n{len(self.exprs)}"
        self.exprs[expr] = name
        self.lines.append(f"{name} = {text}")
        return name

    def tuple(self, exprs: Sequence[Expr]) -> str:
        parts = [self.size(e) for e in exprs]
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"

    def shape(self, value: ir.Value) -> Sequence[str]:
        """The Python text of a tensor's sizes and strides.

        The strides of an empty tensor that the caller gets are eager mode's: products of sizes in which a 0 counts as
        1.
        """
        layout = self.layout(value)
        if value not in self.returned:
            return self.tuple(layout.sizes), self.tuple(layout.strides)
        sizes = self.tuple(layout.sizes)
        strides = [self._stride(stride, layout.sizes) for stride in layout.strides]
        return sizes, f"({', '.join(strides)}{',' if len(strides) == 1 else ''})"

    def _stride(self, stride: Expr, sizes: Sequence[Expr]) -> str:
        """A stride that is not 0 if one of the sizes is."""
        factors: list[str] = []
        for size in sizes:
            rest = stride.exact_quotient(size) if stride.symbols and self._may_be_zero(size) else None
            if rest is not None:
                factors.append(self._positive(size))
                stride = rest
        return "*".join(factors + ([] if factors and stride == 1 else [self.size(stride)]))

    def _may_be_zero(self, size: Expr) -> bool:
        name = size.as_symbol()
        return bool(size.symbols) and (name is None or self.least.get(name, 0) < 1)

    def _positive(self, size: Expr) -> str:
        """A size, or 1 for 0."""
        positive = maximum(size, 1)
        if positive not in self.exprs:
            text = self.size(size)
            self.exprs[positive] = name = f"n{len(self.exprs)}"
            self.lines.append(f"{name} = {text} or 1")
        return self.exprs[positive]

    def layout(self, value: ir.Value) -> Layout:
        return self.sizes.layouts[value]

    def held(self, value: ir.Value) -> Held:
        """The layout of the program's tensor for a value."""
        layout = self.layout(value)
        return self.tensors.get(value, (layout.sizes, layout.strides, dtype_of(value)))

    def buffers(self, values: Sequence[ir.Value]) -> list[Buffer]:
        """The storages of tensors, each once: whole sizes, and the element type."""
        roots = dict.fromkeys(self.alias.get(root, root) for v in values for root in [self.roots.get(v, v)])
        return [(self.layout(r).sizes, dtype_of(r)) for r in roots if r in self.sizes.layouts]

    def operand(self, value: ir.Value) -> str:
        """Any operand of a call: a tensor, a size, or another scalar."""
        if is_real(value):
            return python(value, self.sizes, self.size)
        condition = read_condition(self.sizes, value) if str(value.type) == "i1" else None
        if condition is not None:
            return f"({condition.python()})"
        return self.size(self.sizes.expr(value)) if value in self.sizes else self.name(value)

    def result_name(self, result: ir.Value) -> str:
        """The name that a result is assigned to."""
        if result in self.sizes:  # an integer result is a symbol of its own name
            return self.sizes.expr(result).python()
        return self.name(result)

    def ensure_layout(self, result: ir.Value) -> None:
        """Results may come back with other strides than the tracer foresaw: no kernel may read them wrongly."""
        layout = self.sizes.layouts.get(result)
        if layout is None or not layout.sizes or not is_read(result):
            return
        pending = [e for e in (*layout.sizes, *layout.strides) if not all(map(self.is_defined, e.symbols))]
        if not pending:
            name = self.name(result)
            self.lines.append(f"{name} = with_layout({name}, {', '.join(self.shape(result))})")


def _symbol(w: Writer, op: Any) -> None:
    w.sizes.read(op)
    name, binding = symbol_name(op), symbol_binding(op)
    w.sources[name] = symbol_source(op)
    w.least[name] = symbol_range(op)[0]
    w.bound[len(w.lines)] = name
    w.lines.append(f"{name} = {binding}" + ("()" if binding.endswith(".offset") else ""))
    w.lines[-1] = w.lines[-1].replace(".offset()", ".storage_offset()")


def _unbacked(w: Writer, op: Any) -> None:
    name, (kind, dim) = symbol_name(op), reading_of(op)
    source = w.name(op.operands[0])
    w.sources[name] = f"{kind} at {source_line(op.location)}"
    reading = {"item": f"int({source}.item())", "number": source}.get(kind) or f"{source}.{kind}({dim})"
    if kind == "item" and dtype_of(op.operands[0]) in _INTEGERS:  # an integer of NaN is an error
        w.bound[len(w.lines)] = name
    w.lines.append(f"{name} = {reading}")


def _expect_true(w: Writer, op: Any) -> None:
    condition = condition_of(w.sizes, op.operands[0])
    if condition == TRUE:
        return
    w.pending.append(Constraint(condition, message_of(op), "\n".join(source_lines(op.location))))


def _empty(w: Writer, op: Any) -> None:
    value = w.alias.get(op.results[0])
    if value is None:  # nothing writes it
        return
    dtype = TORCH_NAMES[dtype_of(op.results[0])]
    sizes, strides = w.shape(value)
    w.lines.append(f"{w.name(value)} = empty_strided({sizes}, {strides}, {dtype})")


def _reuse(w: Writer, op: Any) -> None:
    """Renames dead memory. The tensor object is only given its new type and shape where that is observable: kernels on
    a CPU take addresses, and all kernels know the layout of their arguments."""
    source, value = w.alias.get(op.operands[0], op.operands[0]), w.alias[op.results[0]]
    sizes, strides, dtype = w.held(source)
    users = {use.owner.operation.name for use in value.uses} - {"symshape.bind", "symshape.reuse"}
    text, wanted = w.name(source), dtype_of(value)
    if dtype != wanted and not (w.callees.pointers and users <= {"host.launch"}):
        text = f"reinterpret({text}, {w.tuple([product(sizes)])}, (1,), 0).view({TORCH_NAMES[wanted]})"
        sizes, strides, dtype = (product(w.layout(value).sizes),), (Expr.const(1),), wanted
    shape = w.layout(value).sizes, w.layout(value).strides
    if (sizes, strides) != shape and not users <= {"host.launch", "symshape.view"}:
        text = f"reinterpret({text}, {', '.join(w.shape(value))}, 0)"
        sizes, strides = shape
    w.tensors[value] = sizes, strides, dtype
    w.lines.append(f"{w.name(value)} = {text}")


def _launch(w: Writer, op: Any) -> None:
    callee = callee_of(op)
    if callee not in w.text.kernels:
        w.text.kernels.append(callee)
    args = []
    indices = tuple(w.sizes.expr(v) for v in op.operands if v in w.sizes)
    w.text.launches.append((callee, indices))
    numbers = w.callees.by_value.get(callee, frozenset())
    for position, value in enumerate(op.operands):
        if position in numbers:
            args.append(f"number_of({w.name(value)})")
        elif isinstance(value.type, ir.RankedTensorType):
            args.append(w.name(value) + (".data_ptr()" if w.callees.pointers else ""))
        elif value in w.sizes:
            args.append(w.size(w.sizes.expr(value)))
        else:
            args.append(f"bits_of({w.operand(real_of(value))})")
    if callee in w.callees.checking:
        w.lines.append("slot = error_slot()")
        w.lines.append(f"{callee}({', '.join(args)}, {'address(slot)' if w.callees.pointers else 'slot'})")
        w.lines.append(f"if code := error_code(slot): raise_index_error(code, {callee!r})")
    else:
        w.lines.append(f"{callee}({', '.join(args)})")


def _view(w: Writer, op: Any) -> None:
    result = op.results[0]
    if result not in w.used:
        return  # only a step to another view
    source = w.roots[result]
    if result not in w.sizes.layouts:
        raise CompileError(
            "a view that is no strided alias reached the host program",
            where=source_line(op.location),
            next_step="this is a bug of the passes of stage kernels: such a view is read by a kernel, which copies it",
        )
    layout, base = w.layout(result), w.layout(w.alias.get(source, source))
    offset = w.size(layout.offset - base.offset)
    sizes, strides = w.shape(result)
    function = "differentiable_view" if result in w.shown else "reinterpret"
    w.lines.append(f"{w.name(result)} = {function}({w.name(source)}, {sizes}, {strides}, {offset})")


def _call(w: Writer, op: Any) -> None:
    target = call_target(op)
    arguments = substitute(call_arguments(op), [w.operand(v) for v in op.operands])
    if target == "symshape.constant":
        w.lines.append(f"{w.name(op.results[0])} = constant[{arguments.strip('(),')}]")
        return
    if target == "symshape.storage":
        x, result = op.operands[0], op.results[0]
        back = w.size(Expr.const(0) - w.layout(w.alias.get(x, x)).offset)
        (size,) = w.layout(result).sizes
        w.lines.append(f"{w.name(result)} = memory_of({w.name(x)}, {w.size(size)}, {back})")
        return
    python_name = "".join(c if c.isalnum() else "_" for c in target)
    w.text.targets[python_name] = target
    w.text.calls.append(LibraryCall(target, tuple(w.buffers([*op.operands, *filter(is_read, op.results)]))))
    text = f"{python_name}{_call_arguments(arguments)}"
    results = list(op.results)
    if not results:
        w.lines.append(text)
        return
    indices = result_indices(op)
    if indices is not None:
        w.lines.append(f"results = {text}")
        for result, i in zip(results, indices):
            w.lines.append(f"{w.result_name(result)} = results[{i}]")
        w.lines.append("del results")
    else:
        w.lines.append(f"{w.result_name(results[0])} = {text}")
    if is_checked(op):
        for result in results:
            _ensure_promised(w, result, target, source_line(op.location))
    elif target not in _EXACT_STRIDES:
        for result in results:
            w.ensure_layout(result)


def _call_arguments(arguments: str) -> str:
    return arguments[:-2] + ")" if arguments.endswith(",)") else arguments


def _ensure_promised(w: Writer, result: ir.Value, target: str, line: str) -> None:
    """Emits the check that a custom operator's result has the sizes and type of its fake result, on which kernels
    rely."""
    layout = w.sizes.layouts.get(result)
    if layout is None or not is_read(result):
        return

    def known(exprs: Sequence[Expr]) -> bool:
        return all(w.is_defined(symbol) for expr in exprs for symbol in expr.symbols)

    sizes = "".join(f"{w.size(e) if known([e]) else None}, " for e in layout.sizes)
    strides = "None" if _is_contiguous(layout) else '"any"'
    if known((*layout.sizes, *layout.strides)):
        strides = w.shape(result)[1]
    name, dtype = w.name(result), TORCH_NAMES[dtype_of(result)]
    w.lines.append(f"{name} = promised({name}, ({sizes}), {strides}, {dtype}, {target!r}, {line!r})")


def _is_contiguous(layout: Layout) -> bool:
    step = Expr.const(1)
    for size, stride in zip(reversed(layout.sizes), reversed(layout.strides)):
        if stride != step:
            return False
        step = step * size
    return True


def _owners(values: Sequence[ir.Value], relations: Sequence[str]) -> dict[ir.Value, int]:
    """For values that main returns more than once, as distinct tensors: the position that gets the value itself."""
    found: dict[ir.Value, int] = {}
    for i, value in enumerate(values):
        if values.count(value) > 1 and isinstance(value.type, ir.RankedTensorType):
            first = found.setdefault(value, i)
            if relations[first] != OWN and relations[i] == OWN:
                found[value] = i
    return found


def _return(w: Writer, op: Any) -> None:
    relations = returned_relations(op)
    owners = _owners(list(op.operands), relations)
    names = []
    for i, (value, place) in enumerate(zip(op.operands, written_arguments(op))):
        text = w.operand(value)
        if place >= 0:  # the caller copies the argument to itself, which does nothing
            argument = w.name(w.block.arguments[place])
            w.lines.append(f"{argument}.copy_({text})")
            text = argument
        elif owners.get(value, i) != i:  # another tensor with the same elements
            function = "differentiable_view" if relations[i] == VIEW else "reinterpret"
            text = f"{function}({text}, {', '.join(w.shape(w.alias.get(value, value)))}, 0)"
        names.append(text)
    template = output_template(op)
    text = substitute(template, names) if template is not None else f"({', '.join(names)},)"
    w.lines.append(f"return {text}")


def _is_quiet(op: Any) -> bool:
    """Does it touch no tensor but to read an argument's sizes? Then checks after it join those before it."""
    return op.name in ("symshape.symbol", "symshape.expect_true", *_SILENT) or op.name.startswith("arith.")


def _is_work(op: Any) -> bool:
    """Does it do something with tensors, other than to bring in a constant?"""
    if op.name == "host.call":
        return call_target(op) != "symshape.constant"
    return op.name in _WORK or calls_subgraphs(op)


_WORK = frozenset({"tensor.empty", "symshape.reuse", "host.launch", "symshape.view", "func.return"})
_SILENT = frozenset({"symshape.bind", "symshape.assume", "symshape.guard"})
_HANDLERS: dict[str, Callable[[Writer, Any], None]] = {
    "symshape.symbol": _symbol,
    "symshape.unbacked_symbol": _unbacked,
    "symshape.expect_true": _expect_true,
    "tensor.empty": _empty,
    "symshape.reuse": _reuse,
    "host.launch": _launch,
    "symshape.view": _view,
    "host.call": _call,
    "host.cond": write_cond,
    "host.while": write_while,
    "host.scan": write_scan,
    "host.associative_scan": write_associative_scan,
    "host.attention": write_attention,
    "func.return": _return,
}
