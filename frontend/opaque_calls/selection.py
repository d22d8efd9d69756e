"""Selects the calls of a traced graph that become opaque calls: those whose tracing guards on an unbacked size.

While Dynamo traces, `Probe` finds the result of such a call, and the call is marked; before the graph is compiled,
marked calls are replaced by ``symshape::opaque_call``. Calls that only fail when AOTAutograd decomposes them become
opaque calls too.
"""

from __future__ import annotations

import contextlib
import functools
import json
import operator
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
import torch.utils._pytree as pytree

from symshape.artifact.call_text import autocast_state, decode, function_of, made_from, under_autocast
from symshape.errors import with_text
from symshape.frontend.bridge.dynamo import hints_of_sizes, is_in_try, shape_env_of_output
from symshape.frontend.bridge.errors_of_traced_calls import eager_error_of
from symshape.frontend.bridge.fake_tensors import is_in_vmap
from symshape.frontend.bridge.operators import autocast_scopes, schema_of
from symshape.frontend.bridge.refused_questions import refusals_kept
from symshape.frontend.bridge.symbolic_sizes import forgetting_new_sizes, new_unbacked_size
from symshape.frontend.bridge.tracing_errors import (
    MistakenCall,
    RefusedCall,
    data_dependent_condition,
    failing_node,
    is_data_dependent_error,
    says_size_is_in_data,
    unsupported,
)
from symshape.frontend.decompositions.broadcasting import perhaps_squeezed
from symshape.frontend.decompositions.integer_parameters import replaced_by
from symshape.frontend.graph_rewrites.aliasing import is_view_observable
from symshape.frontend.graph_rewrites.data_assignments import is_assignment, keeps_layout
from symshape.frontend.graph_rewrites.duplicate_masks import merge_same, run_numbered
from symshape.frontend.graph_rewrites.out_arguments import trace_without_out
from symshape.frontend.graph_rewrites.uncertain_views import guard_view_sizes
from symshape.frontend.opaque_calls.asserted_values import assert_instead
from symshape.frontend.opaque_calls.frame_decisions import NO_FRAME, Reanalyse, break_graph, call_site, current_frame
from symshape.frontend.opaque_calls.inferred_rules import (
    NoFakeRule,
    is_differentiated_inside,
    no_fake_rule,
    why_not_run,
)
from symshape.frontend.opaque_calls.probing import Probe
from symshape.frontend.opaque_calls.read_momentum import average_by_read_momentum
from symshape.frontend.opaque_calls.tensor_comparisons import is_comparison, read_as_item
from symshape.frontend.opaque_calls.traced_gradients import (
    break_at_gradient,
    cannot_be_traced,
    failing_gradient,
    is_gradient,
    refuse_lost_gradients,
)
from symshape.frontend.opaque_calls.write_calls import NotOpaque, encode, name_of
from symshape.runtime.opaque_call import opaque_call
from symshape.runtime.opaque_random_call import opaque_random_call
from symshape.runtime.torch_c import user_lines

_MARK = "symshape_opaque_call"
_CALLS = ("call_function", "call_method")


@functools.cache
def node_runner(may_probe: Callable[[], bool], original: Callable[..., Any]) -> Callable[..., Any]:
    """A replacement for Dynamo's function ``original`` that runs a node on fake values: tracing continues where a call
    guards on an unbacked size. ``may_probe``: whether users' operators are run for it."""

    def run_node(graph: Any, node: torch.fx.Node, args: Any, kwargs: Any, module: Any) -> Any:
        frame, site = current_frame(), call_site(node)
        reason = frame.decisions.breaks.get(site)
        if reason is not None:
            break_graph(node, reason)
        if site[0] == "squeeze" and perhaps_squeezed(*args, **kwargs):
            break_graph(node, "whether a dim of a data-dependent size is dropped depends on that being 1")
        env = shape_env_of_output(graph)
        if env is None or node.op not in _CALLS:
            return original(graph, node, args, kwargs, module)
        args = with_lists(node, args)
        if is_assignment(node) and not keeps_layout(*args):
            break_graph(node, "`.data` is assigned a tensor of other sizes or strides, or of symbolic ones")
        refuse_lost_gradients(node)
        assert_instead(node, args, kwargs)
        average_by_read_momentum(node, args, kwargs)
        if "out" in kwargs:
            written = trace_without_out(node, args, kwargs, frame.one_graph)
            if written is not None:
                return written
        if is_comparison(node):
            args, kwargs = (read_as_item(node, args, kwargs),), {}
        try:
            with refusals_kept(), forgetting_new_sizes(env) as keep_those_of:
                refuse_lost_kernel(node.target, may_probe(), args, kwargs)
                run = functools.partial(original, graph, node, args, kwargs, module)
                if site in frame.decisions.views:
                    guard_view_sizes(site[0], args, kwargs)
                own_length = site in frame.decisions.own_lengths
                result = run() if own_length else run_numbered(graph, node, (args, kwargs), run)
                if not isinstance(node.target, torch._ops.HigherOrderOperator):
                    keep_those_of(result)
                return result
        except Exception as error:
            _break_where_never_opaque(error, node)
            if not is_data_dependent_error(error):
                _raise_eager_error(error, node, args, kwargs, is_in_try(graph) and not frame.one_graph)
                raise
            try:
                if is_in_vmap():
                    raise NotOpaque("vmap has no rule for an opaque call")
                refuse_to_run(node.target, may_probe())
                return _mark(node, args, kwargs, hints_of_sizes(graph), env, error)
            except NotOpaque as refused:
                break_graph(node, f"{refused}; {data_dependent_condition(error)}", error)

    return run_node


def _break_where_never_opaque(error: Exception, node: torch.fx.Node) -> None:
    """Breaks the graph at a call that cannot be made an opaque one: of an operator without a fake rule that must not be
    probed, and of a gradient."""
    missing = no_fake_rule(error)
    if missing is not None:
        break_graph(node, missing.reason, error, missing.hint)
    if is_gradient(node):
        break_at_gradient(node, error)


def _raise_eager_error(error: Exception, node: torch.fx.Node, args: Any, kwargs: Any, may_catch: bool) -> None:
    """A MistakenCall for a node that cannot run, where eager mode has an error for it. Where the function may catch
    that, the graph is broken: Dynamo would not see the error caught."""
    cause = error.__cause__ or error
    found = eager_error_of(cause, replaced_by(node.target), args, kwargs)
    if found is None and isinstance(cause, RefusedCall):
        found = cause.kind(str(cause))
    if found is None:
        return
    if may_catch:
        break_graph(node, f"it raises {type(found).__name__} in a try or with statement", error)
    for file, line in user_lines(node)[-1:]:
        found.add_note(f"  at: {with_text(f'{file}:{line}')}")
    said = str(error).replace(repr(cause), repr(found)) if cause is not error else f"{node.target}: got {found!r}"
    raise MistakenCall(said, found).with_traceback(cause.__traceback__) from None  # who has raised it is read off it


def refuse_to_run(target: Any, probe: bool) -> None:
    """NotOpaque for a user's operator that must not be run on made-up operands."""
    op = users_operator(target)
    reason = why_not_run(op, probe) if op is not None else ""
    if reason:
        raise NotOpaque(reason)


def users_operator(target: Any) -> torch._ops.OpOverload | None:
    """The operator that a node calls, if it is a user's."""
    op = getattr(target, "default", None) if isinstance(target, torch._ops.OpOverloadPacket) else target
    own = isinstance(op, torch._ops.OpOverload) and op.namespace not in ("aten", "prims", "symshape")
    return op if own else None


def refuse_lost_kernel(target: Any, probe: bool, args: Any, kwargs: Any) -> None:
    """The tracer's error for an operator without a rule, where the trace would lose the gradient of a user's operator
    whose kernel is differentiated inside."""
    op = users_operator(target)
    if op is not None and is_differentiated_inside(probe, op, args, kwargs):
        raise unsupported(op)


def with_lists(node: torch.fx.Node, args: Any) -> Any:
    """Arguments with a single size in place of a list expanded to a list, which operators do for an int but not for a
    SymInt."""
    if not isinstance(node.target, torch._ops.OpOverload) or not any(map(_is_size, args)):
        return args
    found, arguments = list(args), list[Any](schema_of(node.target).arguments)
    for i, (value, wanted) in enumerate(zip(args, arguments)):
        if _is_size(value) and wanted.N and isinstance(wanted.type, torch.ListType):
            found[i] = [value] * wanted.N
            node.update_arg(i, [node.args[i]] * wanted.N)
    return tuple(found)


def _mark(node: torch.fx.Node, args: Any, kwargs: Any, known: Any, env: Any, error: Exception) -> Any:
    """Marks the node, whose tracing has failed, with its text; returns its traced result."""
    call, tensors, sizes, spec = _text(node, args, kwargs, known, autocast_state(), error)
    made = made_from(call, tensors, sizes, functools.partial(new_unbacked_size, env, error))
    node.meta[_MARK] = call
    return pytree.tree_unflatten(made, spec)


def _text(
    node: torch.fx.Node, args: Any, kwargs: Any, known: Any, autocast: list[list[Any]], error: Exception
) -> tuple[str, list[Any], list[Any], Any]:
    tensors: list[Any] = []
    sizes: list[Any] = []
    parts = [encode(part, tensors, sizes, _is_tensor, _is_size) for part in (list(args), kwargs)]
    name = name_of(node.target)
    function = function_of(name)
    specs: list[Any] = []

    def call(operands: Sequence[torch.Tensor], numbers: Sequence[int]) -> Any:
        with under_autocast(autocast):
            result = function(*decode(parts[0], operands, numbers), **decode(parts[1], operands, numbers))
        leaves, spec = pytree.tree_flatten(result)
        if spec.num_leaves != 1 and spec.num_nodes != spec.num_leaves + 1:
            raise NotOpaque("its results are nested")
        specs.append(spec)
        return result

    # What a user's operator does with its operands is not observed, but its rule may have said it.
    probe = Probe(call, tensors, sizes, known, by_values=says_size_is_in_data(error))
    results = probe.results()
    text = {
        "function": name,
        "args": parts[0],
        "kwargs": parts[1],
        "results": results,
        "shares": probe.shares,
        "random": probe.random,
        "autocast": autocast,
    }
    return json.dumps(text), tensors, sizes, specs[0]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _is_size(value: Any) -> bool:
    return isinstance(value, torch.SymInt)


# --- graphs ----------------------------------------------------------------------------------------------------------


def mark_failing_call(gm: torch.fx.GraphModule, error: Exception) -> bool:
    """Marks the call of a Dynamo graph that could not be traced further. False if there is none, or it cannot be one
    operator; if the frame can be analysed again, `Reanalyse` breaks the graph there instead."""
    missing = no_fake_rule(error)
    if missing is not None:
        _break_before(missing, gm, error)
        return False
    node = failing_node(error) if is_data_dependent_error(error) else None
    gradient = failing_gradient(gm, error) if node is None else None
    if gradient is not None:
        _reanalyse(gradient, cannot_be_traced(error), error)
    if node is None or node.graph is not gm.graph or node.op not in _CALLS:
        return False
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta["example_value"])
    try:
        call = _text(node, args, kwargs, hints_of_sizes(gm), _autocast_at(node), error)[0]
        refuse_shared(node, call)
    except NotOpaque as refused:
        _reanalyse(node, f"{refused}; {data_dependent_condition(error)}", error)
    node.meta[_MARK] = call
    return True


def _reanalyse(node: torch.fx.Node, reason: str, error: Exception) -> NoReturn:
    """Raises Reanalyse, to break the graph at a node, instead of an error; the error itself if the frame cannot be
    analysed again."""
    if current_frame() is NO_FRAME:
        raise error
    raise Reanalyse(call_site(node), reason) from error


def _break_before(missing: NoFakeRule, gm: torch.fx.GraphModule, error: Exception) -> None:
    """`Reanalyse` for an operator that only the gradient calls: at the user's operator that it belongs to."""
    own = [node for node in gm.graph.nodes if getattr(node.target, "namespace", "aten") not in ("aten", "prims")]
    there = [node for node in own if call_site(node)[1] == missing.line] or own
    if there:
        _reanalyse(there[0], f"{schema_of(missing.op).name}, in its gradient: {missing.reason}", error)


def _autocast_at(node: torch.fx.Node) -> list[list[Any]]:
    """The autocast settings in force at a node of a Dynamo graph, which enters and leaves autocast by nodes."""
    enter, leave = autocast_scopes()
    entered: dict[torch.fx.Node, Any] = {}
    for one in node.graph.nodes:
        if one is node:
            break
        if one.target is enter:
            entered[one] = one.args
        elif one.target is leave:
            entered.pop(one.args[0], None)
    with contextlib.ExitStack() as stack:
        for given in entered.values():
            stack.enter_context(torch.autocast(*given))
        return autocast_state()


def refuse_shared(node: torch.fx.Node, call: str) -> None:
    """NotOpaque for a view where it matters that it is one: results of an operator are tensors of their own."""
    if json.loads(call)["shares"] and is_view_observable(node):
        raise NotOpaque("its result is a view, and its memory is written to or returned")


def replace_marked(gm: torch.fx.GraphModule) -> list[tuple[str, str]]:
    """Replaces marked calls by ``symshape::opaque_call``, in place, also in the bodies of checkpoints.
    Returns (function, ``file:line``) of each.

    `Reanalyse`, with the graph broken there, for a result that is observably a view.
    """
    merge_same(gm, _split)
    graphs = [module for module in gm.modules() if isinstance(module, torch.fx.GraphModule)]
    return [call for graph in graphs for call in _replace_marked(graph)]


def _replace_marked(gm: torch.fx.GraphModule) -> list[tuple[str, str]]:
    found = []
    for node in gm.graph.nodes:
        if _MARK in node.meta:
            try:
                refuse_shared(node, node.meta[_MARK])
            except NotOpaque as refused:
                raise Reanalyse(call_site(node), str(refused)) from refused
    for node in list(gm.graph.nodes):
        call = node.meta.pop(_MARK, None)
        if call is not None:
            _replace(node, call)
            file, line = (user_lines(node) or [("", 0)])[-1]
            found.append((str(json.loads(call)["function"]).rpartition(" ")[2], f"{file}:{line}"))
    if found:
        gm.recompile()
    return found


def _split(mask: torch.fx.Node) -> None:
    """The frame is analysed again, and this mask has a length of its own."""
    raise Reanalyse(call_site(mask), "a mask is not the one that it was taken for", "own_lengths")


def _replace(node: torch.fx.Node, call: str) -> None:
    tensors: list[Any] = []
    sizes: list[Any] = []

    def is_kind(kind: type) -> Callable[[Any], bool]:
        return lambda v: isinstance(v, torch.fx.Node) and isinstance(v.meta.get("example_value"), kind)

    graph = node.graph
    single = isinstance(node.meta["example_value"], torch.Tensor)
    with graph.inserting_before(node):
        opened = torch.fx.node.map_arg((list(node.args), node.kwargs), lambda n: _opened(n, n.meta["example_value"]))
        for part in opened:
            encode(part, tensors, sizes, is_kind(torch.Tensor), is_kind(torch.SymInt))
        random = json.loads(call)["random"]
        made = graph.call_function(opaque_random_call if random else opaque_call, (call, tensors, sizes))
        result = graph.call_function(_only if single else _without_state, (made,)) if single or random else made
    for new in (made, result):
        new.meta.update({k: v for k, v in node.meta.items() if k not in ("example_value", "unbacked_bindings")})
    result.meta["example_value"] = node.meta["example_value"]
    if "unbacked_bindings" in node.meta:
        result.meta["unbacked_bindings"] = node.meta["unbacked_bindings"]
    node.replace_all_uses_with(result)
    graph.erase_node(node)


def _opened(node: torch.fx.Node, value: Any) -> Any:
    """The nodes of tensors and sizes in an argument with this traced value; a number has none, since it is in the
    text."""
    if isinstance(value, (tuple, list)):
        return [_opened(_item(node, i, one), one) for i, one in enumerate(value)]
    return node if isinstance(value, (torch.Tensor, torch.SymInt)) else None


def _item(node: torch.fx.Node, position: int, value: Any) -> torch.fx.Node:
    item = node.graph.call_function(operator.getitem, (node, position))
    item.meta["example_value"] = value
    return item


def _without_state(results: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    return results[:-1]


def _only(results: Sequence[torch.Tensor]) -> torch.Tensor:
    return results[0]
