"""Outlines the layers of a Dynamo graph that are equal, so that AOTAutograd traces one of each kind
(``frontend/bridge/traced_layers.py``).

A network is mostly one layer, many times. Dynamo's graph has them one after the other, and AOTAutograd would trace
each, twice forward and once backward, at milliseconds for an operator.

Before::

    %a = linear(%x, %w0, %b0)     # of layers.0
    %b = relu(%a)
    %c = linear(%b, %w1, %b1)     # of layers.1
    %d = relu(%c)

After::

    %b = call_module[layer_0](%x, %w0, %b0)
    %d = call_module[layer_0](%b, %w1, %b1)

Candidates are the calls of modules, and of regions (``nn_module_stack``, which ``inlined_calls`` extends). Two are
equal if their operators, constants and dataflow are. What they are given need not be: for other sizes, dtypes or
layouts a layer is traced again.

After LLVM's ``IROutliner`` (equal code is found) and ``torch._higher_order_ops.invoke_subgraph`` (a region is traced
once).
"""

from __future__ import annotations

import itertools
import operator
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch

from symshape.frontend.bridge.fake_tensors import is_fake
from symshape.frontend.bridge.operators import autocast_scopes, is_of_transforms, is_torch_function
from symshape.frontend.bridge.symbolic_sizes import expression_of
from symshape.frontend.bridge.traced_layers import Layer, graph_module_like
from symshape.frontend.graph_rewrites.common_subexpressions import argument_key

TRACE_LAYERS_ONCE: Final = "trace-layers-once"  # the step's name
LEAST_NODES: Final = 6  # of a layer: a call of a smaller one costs what it saves
_CALLS: Final = ("call_function", "call_method")


def trace_layers_once(gm: torch.fx.GraphModule) -> torch.fx.GraphModule | None:
    """The graph with its equal layers outlined; None if it has no two. ``gm`` stays as it is."""
    if any(map(_encloses_layers, gm.graph.nodes)):
        return None
    graph = torch.fx.Graph()
    copied: Any = graph.graph_copy(gm.graph, {}, return_output_node=True)
    graph.output(copied[0]).meta = copied[1].meta
    _use_constants(graph)
    _hoist_items(graph)
    root = graph_module_like(gm, graph)
    return root if _outline(root) else None


def _outline(root: torch.fx.GraphModule) -> bool:
    """Outlines the equal layers of a graph, and those in them; whether there are any."""
    kinds = _equal_segments(root.graph)
    for number, segments in enumerate(kinds):
        body = _body(root, segments[0])
        _outline(body)
        root.add_submodule(f"layer_{number}", Layer(body))
    replaced: dict[torch.fx.Node, torch.fx.Node] = {}
    for number, segments in enumerate(kinds):
        for segment in segments:
            _replace(root.graph, segment, f"layer_{number}", replaced)
    if kinds:
        root.graph.lint()
        root.recompile()
    return bool(kinds)


@dataclass(frozen=True)
class _Segment:
    """A run of nodes: the operands from outside in the order of their first use, the nodes that are used outside, and
    what two equal segments have in common."""

    nodes: tuple[torch.fx.Node, ...]
    operands: tuple[torch.fx.Node, ...]
    results: tuple[torch.fx.Node, ...]
    form: Any


def _equal_segments(graph: torch.fx.Graph) -> list[list[_Segment]]:
    """The segments to be outlined, by kind; outer modules before inner ones."""
    taken: set[torch.fx.Node] = set()
    found: list[list[_Segment]] = []
    depth = 0
    while runs := list(_runs(graph, depth, taken)):
        kinds: dict[Any, list[_Segment]] = defaultdict(list)
        for run in runs:
            segment = _segment(run)
            if segment is not None:
                kinds[segment.form].append(segment)
        for segments in kinds.values():
            if len(segments) > 1:
                found.append(segments)
                taken.update(node for segment in segments for node in segment.nodes)
        depth += 1
    return found


def _runs(graph: torch.fx.Graph, depth: int, taken: set[torch.fx.Node]) -> Iterator[list[torch.fx.Node]]:
    """The runs of nodes that are of one call of a module so many levels inside others."""
    calls = (node for node in graph.nodes if node.op not in ("placeholder", "get_attr"))

    def call(node: torch.fx.Node) -> tuple[str, ...] | None:
        stack = tuple(node.meta.get("nn_module_stack") or ())
        return stack[: depth + 1] if len(stack) > depth and node not in taken else None

    for of, run in itertools.groupby(calls, call):
        if of is not None:
            yield from _calls_apart(list(run))


def _calls_apart(nodes: list[torch.fx.Node]) -> Iterator[list[torch.fx.Node]]:
    """The calls in a run: a module that is called several times in turn has one name."""
    targets, count = [node.target for node in nodes], len(nodes)
    for length in range(LEAST_NODES, count // 2 + 1):
        if count % length == 0 and targets[:-length] == targets[length:]:
            yield from (nodes[i : i + length] for i in range(0, count, length))
            return
    yield nodes


def _segment(nodes: list[torch.fx.Node]) -> _Segment | None:
    """The segment of these nodes, if it may be outlined."""
    if len(nodes) < LEAST_NODES or not all(map(_is_outlinable, nodes)):
        return None
    number = {node: i for i, node in enumerate(nodes)}
    operands: dict[torch.fx.Node, int] = {}

    def name(node: torch.fx.Node) -> Any:
        if node in number:
            return ("node", number[node])
        return ("operand", operands.setdefault(node, len(operands)))

    try:
        forms = [
            (node.op, node.target, argument_key(node.args, name), argument_key(node.kwargs, name)) for node in nodes
        ]
        results = tuple(node for node in nodes if any(user not in number for user in node.users))
        form = (tuple(forms), tuple(number[node] for node in results))
        hash(form)
    except TypeError:  # a constant that is not hashable
        return None
    if not results or not all(_is_tensor(node) for node in results) or not all(map(_is_operand, operands)):
        return None
    return _Segment(tuple(nodes), tuple(operands), results, form)


def _is_outlinable(node: torch.fx.Node) -> bool:
    """Whether a node only computes: it has no subgraph, makes no data-dependent size, and changes no state but the
    memory of tensors."""
    if node.op not in _CALLS or not _is_known(node):
        return False
    if node.op == "call_method":
        return node.target not in _EXCLUDED
    if isinstance(node.target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return True
    return is_torch_function(node.target) and getattr(node.target, "__name__", "") not in _EXCLUDED


# Functions and methods that read or write what two equal layers need not have in common: memory as a whole, autograd's
# graph, numbers in tensors.
_EXCLUDED: Final = frozenset(
    {
        "as_strided",
        "as_strided_",
        "backward",
        "data_ptr",
        "detach_",
        "is_set_to",
        "item",
        "register_hook",
        "register_post_accumulate_grad_hook",
        "requires_grad_",
        "resize_",
        "resize_as_",
        "retain_grad",
        "set_",
        "share_memory_",
        "storage_offset",
        "stride",
        "tolist",
        "untyped_storage",
    }
)


def _is_known(node: torch.fx.Node) -> bool:
    """Whether no size or number of a node's value is data-dependent, or an earlier node has it."""
    return not node.meta.get("unbacked_bindings")


def _encloses_layers(node: torch.fx.Node) -> bool:
    """Whether a node begins or ends a state in which layers would be traced in another way, autocast or a transform of
    ``torch.func``, or differentiates them in the graph."""
    if node.op == "call_method":
        return node.target == "backward"
    module = getattr(node.target, "__module__", None) or ""
    return node.target in autocast_scopes() or is_of_transforms(node.target) or module == "torch.autograd"


def _is_tensor(node: torch.fx.Node) -> bool:
    """Whether a node's value is a plain tensor."""
    value: Any = node.meta.get("example_value")
    return is_fake(value) and value.layout == torch.strided and not value.is_nested


def _is_operand(node: torch.fx.Node) -> bool:
    value = node.meta.get("example_value")
    return _is_tensor(node) or isinstance(value, int | float | bool | torch.SymInt | torch.SymFloat)


def _use_constants(graph: torch.fx.Graph) -> None:
    """Replaces numbers that a guard has made constants by these. A first layer has made the guard, and computes with
    the size; all others have the number."""
    for node in graph.nodes:
        number = _constant(node) if node.op in _CALLS else None
        if number is not None:
            for user in list(node.users):
                user.args, user.kwargs = _with_constant((user.args, user.kwargs), node, number)
    for node in reversed(graph.nodes):
        if node.op in _CALLS and not node.users and _is_known(node) and _is_number_of_sizes(node):
            graph.erase_node(node)


def _with_constant(arguments: Any, node: torch.fx.Node, number: int) -> Any:
    def constant(one: torch.fx.Node) -> Any:
        return number if one is node else one

    return torch.fx.map_arg(arguments, constant)


def _constant(node: torch.fx.Node) -> int | None:
    """The value of a node that is an integer which no input decides any more."""
    value = node.meta.get("example_value")
    if type(value) is int:
        return value
    if isinstance(value, torch.SymInt) and expression_of(value).is_Integer:
        return int(expression_of(value))
    return None


def _is_number_of_sizes(node: torch.fx.Node) -> bool:
    value = node.meta.get("example_value")
    return isinstance(value, torch.Size) or type(value) is int or isinstance(value, torch.SymInt)


def _hoist_items(graph: torch.fx.Graph) -> None:
    """Moves the reads of float inputs (``item()`` of a placeholder, of which Dynamo has a symbol) in front of all
    layers, as operands of them."""
    calls = [node for node in graph.nodes if node.op in _CALLS]
    for node in calls:
        reads_float = isinstance(node.meta.get("example_value"), torch.SymFloat) and _is_known(node)
        if node.target == "item" and reads_float and node.args[0].op == "placeholder" and node is not calls[0]:
            calls[0].prepend(node)


def _body(root: torch.fx.GraphModule, segment: _Segment) -> torch.fx.GraphModule:
    """The graph of a segment as a function of its operands."""
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    for i, operand in enumerate(segment.operands):
        copies[operand] = graph.placeholder(f"operand_{i}")
        copies[operand].meta["example_value"] = operand.meta["example_value"]
    for node in segment.nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[node] for node in segment.results))
    return torch.fx.GraphModule(root, graph)


def _replace(graph: torch.fx.Graph, segment: _Segment, name: str, replaced: dict[torch.fx.Node, torch.fx.Node]) -> None:
    """Replaces a segment by a call of the module ``name``. ``replaced``: the results of segments, and the nodes that
    are now in their place."""
    with graph.inserting_after(segment.nodes[-1]):
        call = graph.call_module(name, tuple(replaced.get(one, one) for one in segment.operands))
    call.meta = {key: segment.nodes[0].meta[key] for key in ("stack_trace",) if key in segment.nodes[0].meta}
    call.meta["example_value"] = tuple(node.meta["example_value"] for node in segment.results)
    inside = {*segment.nodes}
    for i, node in reversed([*enumerate(segment.results)]):
        with graph.inserting_after(call):
            result = graph.call_function(operator.getitem, (call, i))
        result.meta = {key: node.meta[key] for key in ("example_value", "stack_trace") if key in node.meta}
        replaced[node] = result
        node.replace_all_uses_with(result, delete_user_cb=lambda user: user not in inside)
    for node in reversed(segment.nodes):
        graph.erase_node(node)
