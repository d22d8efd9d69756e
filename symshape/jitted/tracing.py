"""Traces and compiles one entry of a jitted function, without Dynamo."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.utils._pytree as pytree

from symshape.codegen.host.entry_guards import EntryGuards, Leaf, leaf_constraints
from symshape.codegen.host.guard_stub import Constraint
from symshape.errors import CompileError, SymshapeError, with_text
from symshape.frontend.bridge.aot_autograd import leaves_with_gradient, mark_lasting, restrided_and_written
from symshape.frontend.bridge.source_lines import user_line
from symshape.frontend.bridge.symbolic_sizes import expression_of
from symshape.frontend.bridge.trace_without_dynamo import Trace
from symshape.frontend.bridge.tracing_errors import (
    calls_backward,
    changes_leaf,
    depends_on_values,
    failed_check,
    met_symbols,
    operator_without_rule,
)
from symshape.frontend.decompositions import integer_parameters
from symshape.frontend.decompositions.table import decomposition_table
from symshape.frontend.graph_rewrites.joint_graph import ready_to_split
from symshape.frontend.importer.requirements import Requirements
from symshape.frontend.importer.traced_symbols import size_expr
from symshape.frontend.opaque_calls.asserted_values import asserting
from symshape.frontend.opaque_calls.inferred_rules import no_fake_rule
from symshape.frontend.opaque_calls.selection import users_operator
from symshape.frontend.patches.aot_autograd.written_layouts import MemoryIsRead
from symshape.frontend.patches.checks.torch_checks import constraint_error
from symshape.frontend.patches.patch import Scope
from symshape.frontend.patches.python.condition_operators import with_decided_conditions
from symshape.frontend.patches.registry import in_force, splitting
from symshape.garbage import collected_later
from symshape.jitted.counted_calls import CountedCalls
from symshape.jitted.dynamic_shapes import DimSpec, Input
from symshape.jitted.leaked_sizes import reject_leaked_sizes
from symshape.jitted.nested_tensors import results_apart
from symshape.jitted.random_modules import refusing_draws
from symshape.options import Options
from symshape.prover.numbers.condition import equals
from symshape.prover.numbers.expr import Expr
from symshape.runtime.torch_c import user_lines
from symshape.stack_room import with_room
from symshape.stage_files import require_fit
from symshape.tools.report import GraphReport
from symshape.traced_entry import traced_entry
from symshape.traced_graphs import backward_program, compile_traced, postpones

# Beginnings of the names of what PyTorch sets on tensors (marks; sizes and strides that its C++ keeps there), and we.
_CAPSULES = ("_sizes_capsule", "_strides_capsule", "_sym_sizes_capsule", "_sym_strides_capsule")
_NOT_THE_USERS = ("symshape_", "_dynamo", *_CAPSULES)
_ELEMENT = "elem"  # of a FunctionalTensor: the tensor in it


@dataclass
class Call:
    """A call to be traced. ``state``: (position, name, value) of each parameter and buffer, once for each of its names;
    ``spec``: the pytree structure of ``(args, kwargs)``; ``assumed``: facts over the leaves of the inputs, which hold
    for this call."""

    fn: Callable[..., Any]
    holder: torch.nn.Module
    state: Sequence[tuple[int, str, torch.Tensor]]
    inputs: Sequence[Input]
    spec: Any
    assumed: Sequence[Constraint] = ()

    @property
    def tensors(self) -> list[tuple[int, str, torch.Tensor]]:
        """``state`` with each tensor once: the other names follow (``functional_call`` ties them)."""
        return list({id(row[2]): row for row in reversed(self.state)}.values())[::-1]


@dataclass
class Traced:
    """``run(values)`` takes state and inputs; ``constraints`` are over their leaves."""

    run: Callable[[Sequence[Any]], Any]
    leaves: list[Leaf]
    constraints: list[Constraint]
    changed: tuple[int, ...]
    reports: list[GraphReport] = field(default_factory=list)


class _Function(torch.nn.Module):
    """The function that AOTAutograd traces: flat dynamic inputs to flat tensors and sizes. The rest is kept aside."""

    def __init__(
        self, call: Call, trace: Trace, constants: Sequence[Any], dynamic: Sequence[int], again: Mapping[int, int]
    ) -> None:
        super().__init__()
        self.call: Call | None = call
        self.trace, self.constants, self.dynamic, self.again = trace, constants, dynamic, again
        self.holder = [call.holder]  # in a list: its parameters are inputs already
        self.counted = CountedCalls(call.holder)
        self.outputs: list[Any] = []  # position in the flat result for what is computed, else (value,)
        self.output_spec: Any = None

    def forward(self, *flat: Any) -> tuple[Any, ...]:
        assert self.call is not None
        state = dict(zip((name for _, name, _ in self.call.tensors), flat))
        leaves = list(self.constants)
        for position, value in zip(self.dynamic, flat[len(state) :]):
            leaves[position] = value
        for position, first in self.again.items():
            leaves[position] = leaves[first]
        args, kwargs = pytree.tree_unflatten(leaves, self.call.spec)
        given, attributes = pytree.tree_flatten((args, kwargs)), [_attributes(value) for value in flat]
        # Parameters are kept by recurrent layers, parts of nested tensors by these.
        self.trace.lines.made.add_inputs(flat[len(state) :] if not any(map(_is_nested, given[0])) else ())

        def run() -> Any:
            return torch.func.functional_call(self.holder[0], state, args, kwargs)

        with in_force(Scope("function")):
            result = refusing_draws(lambda: self.counted.run(lambda: self.trace.with_lines(run)))
        _reject_changed_containers((args, kwargs), *given)
        _reject_new_attributes(flat, attributes)
        found, self.output_spec = pytree.tree_flatten(results_apart(result))
        _reject_attributes(found, flat)
        _reject_new_leaves(found, flat)
        self.outputs = []
        computed: list[Any] = []
        for value in map(_settled, found):
            is_computed = isinstance(value, (torch.Tensor, torch.SymInt, torch.SymFloat))
            self.outputs.append(len(computed) if is_computed else (value,))
            computed += [value] if is_computed else []
        return tuple(computed)


def _settled(value: Any) -> Any:
    """A size, or an expression of sizes, as a constant if the trace has specialised it: the next trace starts with
    that."""
    if not isinstance(value, torch.SymInt | torch.SymFloat):
        return value
    expr = expression_of(value)
    if not expr.is_number:
        return value
    return int(expr) if isinstance(value, torch.SymInt) else float(expr)


def trace_call(call: Call, options: Options) -> Traced:
    """Traces and compiles a call. ShapeConstraintError if a ``torch._check`` of the function fails for the inputs,
    CompileError if the function cannot be traced; errors that the function itself raises are passed on."""
    try:
        return _traced(call, options, Scope("jit", eager_draws=options.random == "eager"))
    except MemoryIsRead:
        return _traced(call, options, Scope("jit", eager_draws=options.random == "eager", keeps_memory=True))


def _traced(call: Call, options: Options, scope: Scope) -> Traced:
    trace = Trace(_replaced)
    with collected_later(), in_force(Scope("frame", run_operators=options.probe_custom_operators)):
        state = [trace.tensor(value, name, [None] * value.dim()) for _, name, value in call.tensors]
        fakes = [_fake(trace, one) for one in call.inputs]
        try:
            _apply_names(trace, call.inputs, fakes)
            _assume(trace, call, fakes)
            traced = with_room(_compile, call, options, scope, trace, state, fakes)
            _reject_leaks(trace)
            reject_leaked_sizes(call.fn, call.holder)
            return traced
        except SymshapeError:
            raise
        except Exception as error:
            explained = _explained(error, trace)
            if explained is error:
                raise
            raise explained from error


def _compile(call: Call, options: Options, scope: Scope, trace: Trace, state: list[Any], fakes: list[Any]) -> Traced:
    again = _same_integers(call.inputs)
    dynamic = [i for i, x in enumerate(fakes) if isinstance(x, (torch.Tensor, torch.SymInt)) and i not in again]
    function = _Function(call, trace, fakes, dynamic, again)
    reports: list[GraphReport] = []
    entries: list[EntryGuards] = []
    waits: list[bool] = []  # whether a forward graph may leave its activations to backward

    def compiler(kind: str, graph: torch.fx.GraphModule, _inputs: Any) -> Any:
        if kind != "backward":
            _reject_constants(graph)
            _reject_layouts()
            _insert_assertions(graph, trace)
        mark_lasting(graph, range(len(state)))
        compiled = compile_traced(graph, options, kind=kind)
        reports.append(compiled.report)
        if kind != "backward":
            count = len(graph.graph.find_nodes(op="placeholder"))
            entries.append(replace(compiled.entry, layouts=compiled.entry.layouts[:count]))
            waits.append(postpones(compiled.run))
        if kind == "backward":
            return backward_program(compiled.run, graph, options, any(waits))
        return compiled.run

    compilers = {kind: _for(compiler, kind) for kind in ("forward", "backward", "inference")}
    inputs = [*state, *(fakes[i] for i in dynamic)]
    how: dict[str, Any] = {"joint": ready_to_split(lambda graph: graph), "splitting": splitting}
    how |= {"decompositions": decomposition_table(scope.eager_draws), **compilers}
    values = [*(value for _, _, value in call.tensors), *(call.inputs[i].value for i in dynamic)]
    how |= {"parameters": leaves_with_gradient(values)}  # the fakes are leaves all
    with in_force(scope):
        flat = trace.run(function, inputs, **how)
    require_fit(options, reports)
    function.call = None  # what was traced must not keep the inputs alive
    (entry,) = entries
    states, every = (
        [Leaf(position, value.dim(), value.is_contiguous()) for position, _, value in rows]
        for rows in (call.tensors, call.state)
    )
    leaves = [_leaf(trace, one) for one in call.inputs]
    arguments = [*states, *(leaf for i in dynamic if (leaf := leaves[i]) is not None)]
    if len(entry.layouts) < len(arguments):
        raise CompileError("the traced graph has other inputs than the function", next_step="use symshape.compile")
    positions = [leaf.position for leaf in arguments]
    constraints = _constraints(entry, trace, call.inputs, fakes, inputs, arguments)
    known = [*every, *(leaf for leaf in leaves if leaf is not None)]
    changed = tuple(positions[i] for i in trace.changed)
    return Traced(_runner(flat, positions, function), known, constraints, changed, reports)


def _same_integers(inputs: Sequence[Input]) -> dict[int, int]:
    """Tensors of integers that are another input too, the first: nested tensors with the same offsets are of one
    ragged size."""
    first: dict[int, int] = {}
    positions = [i for i, one in enumerate(inputs) if isinstance(one.value, torch.Tensor)]
    integers = [
        i for i in positions if not inputs[i].value.dtype.is_floating_point and not inputs[i].value.is_complex()
    ]
    pairs = {i: first.setdefault(id(inputs[i].value), i) for i in integers}
    return {i: j for i, j in pairs.items() if i != j}


def _reject_constants(graph: torch.fx.GraphModule) -> None:
    """CompileError for a constant that would get no gradient."""
    for node in graph.graph.find_nodes(op="get_attr"):
        value = getattr(graph, str(node.target), None)
        if torch.is_grad_enabled() and isinstance(value, torch.Tensor) and value.requires_grad:
            raise CompileError(
                f"a tensor of shape {tuple(value.shape)} that requires a gradient is no argument of the "
                "function, and no parameter of a module that it names",
                where=with_text(_location_of(node)),
                next_step="pass it as an argument, or use symshape.compile",
            )


def _reject_layouts() -> None:
    """CompileError for an argument whose layout is changed and that is written to."""
    if restrided_and_written():
        raise CompileError(
            "an argument is written to that gets other sizes or strides in place (`t_`, `unsqueeze_`)",
            next_step="change a view of it (`t`, `unsqueeze`), or use symshape.compile",
        )


def _reject_leaks(trace: Trace) -> None:
    """CompileError for a traced tensor that is stored outside of the function."""
    if (leaked := trace.lines.made.leaked()) is None:
        return
    line, name = leaked
    raise CompileError(
        f"a tensor {'that the function computes' if line else 'that the function is given'} is stored outside of it"
        + (f", as {name}" if name else "")
        + ": it has no data, and later calls would store nothing",
        where=with_text(line) if line else "",
        next_step="return it, write it to a buffer in place (copy_), or use symshape.compile",
    )


def _reject_changed_containers(arguments: Any, leaves: Sequence[Any], spec: Any) -> None:
    """CompileError if the function has added something to a list or dictionary among its arguments, or removed it: it
    gets copies, which only the trace has."""
    found, found_spec = pytree.tree_flatten(arguments)
    if found_spec != spec or any(now is not before for now, before in zip(found, leaves)):
        raise CompileError(
            "a list or dictionary among the arguments is changed: a compiled call would leave the caller's as it is",
            next_step="return what is new, write to its tensors in place (copy_), or use symshape.compile",
        )


def _reject_new_attributes(values: Sequence[Any], before: Sequence[set[str]]) -> None:
    """CompileError where the function has given an attribute to a tensor that it was given."""
    for value, names in zip(values, before):
        if new := sorted(_attributes(value) - names):
            raise CompileError(
                f"a tensor that the function is given gets the attribute {new[0]}: a compiled call would set none",
                next_step="return the value, or use symshape.compile",
            )


def _reject_attributes(results: Sequence[Any], given: Sequence[Any]) -> None:
    """CompileError if a tensor that the function creates and returns has an attribute; one whose name starts with an
    underscore may be PyTorch's."""
    for value in results:
        if _ELEMENT not in getattr(value, "__dict__", ()) or any(value is one for one in given):
            continue
        if names := sorted(name for name in _attributes(value) if not name.startswith("_")):
            raise CompileError(
                f"a tensor that the function returns has the attribute {names[0]}: that of a compiled call has none",
                next_step="return the value beside it, set it on what the call returns, or use symshape.compile",
            )


def _reject_new_leaves(results: Sequence[Any], given: Sequence[Any]) -> None:
    """CompileError if a tensor that becomes a leaf in the function is returned beside one that is computed from it:
    both are results of one graph, in which neither has a gradient with respect to the other."""
    tensors = [value for value in results if isinstance(value, torch.Tensor) and value.requires_grad]
    made = {id(one) for one in tensors if one.is_leaf} - {id(one) for one in given}
    pending = [one.grad_fn for one in tensors if made and one.grad_fn is not None]
    seen = set(pending)
    while pending:
        node = pending.pop()
        if id(getattr(node, "variable", None)) in made:
            raise CompileError(
                "a tensor that the function makes a leaf is returned beside one that is computed from it: a gradient "
                "with respect to the leaf would not reach it",
                next_step="make it a leaf before the call, differentiate in the function (torch.autograd.grad), or use "
                "symshape.compile",
            )
        following = {one for one, _ in node.next_functions if one is not None} - seen
        seen |= following
        pending += following


def _is_nested(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_nested


def _attributes(value: Any) -> set[str]:
    """Names of the attributes that are set on a tensor, except PyTorch's own and ours."""
    names = vars(value) if isinstance(value, torch.Tensor) else ()
    return {name for name in names if name != _ELEMENT and not name.startswith(_NOT_THE_USERS)}


def _for(compiler: Callable[..., Any], kind: str) -> Callable[..., Any]:
    return lambda graph, inputs: compiler(kind, graph, inputs)


def _leaf(trace: Trace, one: Input) -> Leaf | None:
    if one.leaf is None or one.leaf.rank is None or not trace.lines.reads_offset:
        return one.leaf
    return Leaf(one.leaf.position, one.leaf.rank, one.leaf.contiguous, offset=True)


def _fake(trace: Trace, one: Input) -> Any:
    """A fake tensor, a SymInt, or the value itself if it is a constant of the entry."""
    if isinstance(one.value, torch.Tensor):
        dims = [None if spec.static else _range(spec, one.beyond) for spec in one.dims]
        return trace.tensor(one.value, one.name, dims)
    if one.leaf is None or one.dims[0].static:
        return one.value
    spec = one.dims[0]
    low = -(2**62) if spec.minimum is None else spec.minimum
    return trace.integer(one.value, one.name, low, spec.maximum)


def _range(spec: DimSpec, beyond: int) -> tuple[int, int | None]:
    return (spec.minimum or 0) + beyond, None if spec.maximum is None else spec.maximum + beyond


def _apply_names(trace: Trace, inputs: Sequence[Input], fakes: Sequence[Any]) -> None:
    """Adds guards that dims of one name are equal, and that a derived dim equals its expression."""
    sizes = [
        (spec, size - one.beyond if one.beyond else size, one.beyond)
        for one, fake in zip(inputs, fakes)
        for spec, size in zip(one.dims, fake.size() if isinstance(fake, torch.Tensor) else (fake,))
    ]
    roots: dict[str, Any] = {}
    for spec, size, beyond in sizes:
        if spec.name and spec.derived is None:
            if not beyond:
                trace.name(size, spec.name)
            bool(roots.setdefault(spec.name, size) == size)
    for spec, size, _ in sizes:
        if spec.derived is not None:
            bool(size == spec.derived(roots[spec.name]))


def _assume(trace: Trace, call: Call, fakes: Sequence[Any]) -> None:
    """Makes the assumptions guards: facts for the compiler, which the entry checks."""
    known: dict[str, Expr] = {}
    for one, fake in zip(call.inputs, fakes):
        if one.leaf is not None and one.leaf.rank is None:
            known[str(one.leaf.value)] = size_expr(fake)
        elif one.leaf is not None:
            known |= {str(name): size_expr(size) for name, size in zip(one.leaf.sizes, fake.size())}
    requirements = Requirements(trace.env)
    for constraint in call.assumed:
        requirements.guard(constraint.condition.substitute(known), constraint.location)


def _location_of(node: torch.fx.Node) -> str:
    """``file:line`` of the first operation that uses a node; "" if it is not known."""
    lines = [line for user in node.users for line in user_lines(user)[-1:]]
    return f"{lines[0][0]}:{lines[0][1]}" if lines else ""


def _insert_assertions(graph: torch.fx.GraphModule, trace: Trace) -> None:
    """AOTAutograd leaves assertions on data-dependent sizes to Dynamo: each is put where its sizes are known."""
    for number, (expr, message, location) in enumerate(trace.deferred()):
        missing, after = {str(symbol) for symbol in expr.free_symbols}, None
        for node in graph.graph.nodes:
            if node.op == "output" or not missing:
                break
            missing -= _symbols(node.meta.get("val"))
            after = node
        if after is None or missing:
            continue  # about a size that nothing computes
        file, _, line = location.rpartition(":")
        with graph.graph.inserting_after(after):
            # The importer reads the condition off the value; the number keeps two of them apart.
            condition = graph.graph.call_function(operator.ge, (number, 0))
        with graph.graph.inserting_after(condition):
            check = graph.graph.call_function(torch.ops.aten._assert_scalar.default, (condition, message))
        condition.meta["val"] = trace.condition(expr)
        check.meta["val"] = None
        condition.meta["stack_trace"] = check.meta["stack_trace"] = f'  File "{file}", line {line}, in _\n'


def _symbols(value: Any) -> set[str]:
    found: set[str] = set()
    for item in value if isinstance(value, (tuple, list)) else (value,):
        parts = item.size() if isinstance(item, torch.Tensor) else (item,)
        for part in parts:
            if isinstance(part, torch.SymInt):
                found.update(str(symbol) for symbol in expression_of(part).free_symbols)
    return found


def _constraints(
    entry: EntryGuards,
    trace: Trace,
    inputs: Sequence[Input],
    fakes: Sequence[Any],
    given: Sequence[Any],
    arguments: Sequence[Leaf],
) -> list[Constraint]:
    """The constraints of an entry: those of the compiled graph; those of the trace, as lowering the backward graph may
    have added guards that the forward graph's IR lacks; and values of integers that are not arguments of the graph."""
    integers, constants = {}, []
    for one, fake in zip(inputs, fakes):
        if one.leaf is not None and one.leaf.rank is None:
            if isinstance(fake, torch.SymInt):
                integers[one.leaf.position] = size_expr(fake)
            else:
                constants.append(Constraint(equals(one.leaf.value, fake), "a constant of the entry"))
    final = traced_entry(given, trace.env)
    found = [*leaf_constraints(entry, arguments), *leaf_constraints(final, arguments, integers), *constants]
    empty = {str(one.leaf.sizes[1]) for one in inputs if one.leaf and one.is_number}  # 0 for each
    found = [one for one in found if not one.condition.symbols & empty]
    pinned = _pinned(trace, inputs)
    found = [_located(constraint, pinned) for constraint in found]
    leaves = [*arguments, *(one.leaf for one in inputs if one.leaf is not None)]
    shown = {str(name) for leaf in leaves for name in (*leaf.sizes, *leaf.strides, leaf.storage_offset, leaf.value)}
    for constraint in found:
        if unknown := constraint.condition.symbols - shown:
            raise CompileError(
                f"`{constraint.condition}` cannot be checked: no input has {', '.join(sorted(unknown))} as a size",
                where=constraint.location,
                next_step="use symshape.compile",
            )
    return found


def _pinned(trace: Trace, inputs: Sequence[Input]) -> dict[str, str]:
    """``file:line`` of the specialisation of each size to one value, by the symbol of the leaf."""
    lines = {name: origin.user or origin.asked for name, origin in trace.env.pinned_by().items()}
    sizes = {f"{one.name}.size()[{d}]": size for one in inputs if one.leaf for d, size in enumerate(one.leaf.sizes)}
    return {str(size): str(lines[name]) for name, size in sizes.items() if lines.get(name) is not None}


def _located(constraint: Constraint, pinned: Mapping[str, str]) -> Constraint:
    symbols = constraint.condition.symbols
    if constraint.location or constraint.condition.kind != "eq" or len(symbols) != 1:
        return constraint
    return replace(constraint, location=pinned.get(next(iter(symbols)), ""))


def _runner(
    flat: Callable[[list[Any]], Any], positions: Sequence[int], function: _Function
) -> Callable[[Sequence[Any]], Any]:
    """A function from state and inputs to the result in the structure that the function returned. ``flat`` takes a list
    of those at ``positions``, and empties it."""
    outputs, spec = function.outputs, function.output_spec
    plain = outputs == list(range(len(outputs)))
    # Calls are few and short here: each function of Python takes as long as a small kernel where caches are cold.
    if plain and spec.is_leaf():
        if len(positions) == 1:
            (only,) = positions
            return lambda values: flat([values[only]])[0]
        return lambda values: flat([values[i] for i in positions])[0]
    if plain and spec.type is tuple and all(child.is_leaf() for child in spec.children()):
        return lambda values: tuple(flat([values[i] for i in positions]))

    def run(values: Sequence[Any]) -> Any:
        computed = flat([values[i] for i in positions])
        leaves = [computed[out] if isinstance(out, int) else out[0] for out in outputs]
        return pytree.tree_unflatten(leaves, spec)

    return run


def _replaced(function: Any, args: Any, kwargs: Any) -> Any:
    """The function to be traced for one that the call calls."""
    function = integer_parameters.replaced(with_decided_conditions(function, args, kwargs), args, kwargs)
    return asserting(function, args, kwargs)


def _explained(error: Exception, trace: Trace) -> Exception:
    """Converts an error of a trace to one that a user can act on. Errors of the function itself are unchanged."""
    said = _what_and_next(error)
    if said is not None:
        what, next_step = said
        return CompileError(what, where=with_text(user_line(error)), next_step=next_step)
    failed = failed_check(error) if type(error) is RuntimeError else None
    if failed is None:
        return error
    expr, location = failed
    return constraint_error(trace.env, expr, str(error), location) or error


def _what_and_next(error: Exception) -> tuple[str, str] | None:
    """What a trace cannot do, and what to do instead; None for other errors."""
    first_line = str(error).partition("\n")[0]
    missing = no_fake_rule(error)
    if missing is not None:
        return str(missing).partition(";")[0], missing.hint or "symshape.compile breaks the graph there"
    operator_met = operator_without_rule(error)
    if users_operator(operator_met) is not None:
        return (
            f"eager mode differentiates what the kernel of {operator_met} calls, and the trace would lose its gradient",
            "register a formula (torch.library.register_autograd), or use symshape.compile",
        )
    if operator_met is not None:
        return (
            f"PyTorch has no rule for what {operator_met} returns for symbolic sizes",
            "symshape.compile calls it as one operator, or breaks the graph there",
        )
    if depends_on_values(error):
        wants_number = "specialized integer" in str(error)
        instead = "x.item(), which may be unknown, for int(x)" if wants_number else "it with torch.where or torch.cond"
        return (
            f"a value of a tensor decides what the function does: {first_line}",
            f"symshape.compile breaks the graph there; or write {instead}",
        )
    if isinstance(error, TypeError) and "must be bool, not SymBool" in str(error):
        return (  # C++ reads arguments before any mode sees the call
            f"a comparison of sizes is given where C++ takes a truth value: {first_line}",
            "write bool(...) of the comparison, which makes it a guard",
        )
    if met_symbols(error):
        what = f"PyTorch cannot run this call with symbolic sizes: {first_line}"
        return what, "symshape.compile breaks the graph there"
    if calls_backward(error):
        return (
            "backward() adds to the `grad` of parameters, which are no results of the function",
            "call it on what the function returns, use torch.autograd.grad, or use symshape.compile",
        )
    if changes_leaf(error):
        return (
            f"requires_grad of a parameter or an argument cannot be changed in the function: {error}",
            "change it before the call, or use symshape.compile",
        )
    return None
