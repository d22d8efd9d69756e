"""Splits a Dynamo graph at assignments to ``.data`` of an input (``p.data = v``), which it has as ``set_``.

AOTAutograd loses such a write, or rejects the graph. Between two parts the input itself gets the memory of ``v``, as in
eager mode. An assignment is delayed until a call reads one of the two tensors: those of an optimiser's step follow one
graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from symshape.errors import CompileError
from symshape.frontend.bridge.fake_tensors import mode_of
from symshape.frontend.bridge.operators import SET_GRAD_ENABLED, autocast_scopes, is_of_transforms

_NEXT = "copy in place instead (p.data.copy_(v)), or assign outside of the compiled function"


@dataclass
class Part:
    """One part of a split graph. ``graph`` (built last) takes ``inputs`` and returns ``outputs``, nodes of the whole
    graph; ``examples``: fake values of the inputs. After it runs, the assignments of ``assigned`` are made: (input of
    the whole graph, tensor whose memory it gets)."""

    graph: GraphModule
    nodes: list[Node] = field(default_factory=list)
    assigned: list[tuple[Node, Node]] = field(default_factory=list)
    inputs: list[Node] = field(default_factory=list)
    outputs: list[Node] = field(default_factory=list)
    examples: list[Any] = field(default_factory=list)


def is_assignment(node: Node) -> bool:
    """Whether a node of a Dynamo graph is an assignment to ``.data``."""
    return node.target in (torch.Tensor.set_, "set_") and node.op in ("call_function", "call_method")


def has_assignments(gm: GraphModule) -> bool:
    """Whether a Dynamo graph has an assignment to ``.data``."""
    return any(map(is_assignment, gm.graph.nodes))


def parts_between_assignments(gm: GraphModule) -> list[Part]:
    """The parts of a Dynamo graph, in the order in which they run. CompileError where it cannot be split."""
    shown = _shown_inputs(gm)
    parts = _parts(gm, shown)
    _connect(gm, parts, shown)
    _find_examples(parts)
    entry = torch.is_grad_enabled()
    enabled = entry
    for part in parts:
        enabled = _make_graph(gm, part, shown, entry, enabled, last=part is parts[-1])
    return parts


def run_parts(gm: GraphModule, parts: Sequence[Part], runs: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    """A callable like the whole graph, which runs the compiled parts in order, with the assignments between them."""
    shown = _shown_inputs(gm)
    placeholders = gm.graph.find_nodes(op="placeholder")
    (output,) = gm.graph.find_nodes(op="output")
    results = [shown.get(one, one) for one in output.args[0]]  # type: ignore[union-attr, arg-type, call-overload]
    steps = [(run, part.inputs, part.outputs, part.assigned) for run, part in zip(runs, parts, strict=True)]

    def run_all(*args: Any) -> Any:
        values = dict(zip(placeholders, args, strict=True))
        for run, inputs, outputs, assigned in steps:
            values.update(zip(outputs, run(*(values[node] for node in inputs)), strict=True))
            for x, v in assigned:
                values[x].data = values[v]
        return tuple(values[one] if isinstance(one, Node) else one for one in results)

    return run_all


def keeps_layout(old: Any, new: Any) -> bool:
    """Whether a tensor keeps its sizes and strides when it gets the memory of another one, and they are no symbols: an
    input's layout is read from the input as it was traced."""
    layouts = [(*x.shape, *x.stride()) for x in (old, new) if x.layout is torch.strided]
    return len(layouts) == 2 and layouts[0] == layouts[1] and all(type(number) is int for number in layouts[0])


def _restores_version(node: Node) -> bool:
    """Whether a node is one that Dynamo adds after the ``set_`` of an assignment, to restore the version counter."""
    return getattr(node.target, "__name__", "") == "_lower_version_count_by_1"


def _shown_inputs(gm: GraphModule) -> dict[Node, Node]:
    """For each node that stands for an input after an assignment: that input."""
    shown: dict[Node, Node] = {}
    for node in gm.graph.nodes:
        if is_assignment(node) or _restores_version(node):
            x = shown.get(node.args[0], node.args[0])
            if x.op != "placeholder" or len(node.args) != 2 - _restores_version(node):
                raise CompileError("`.data` of a tensor that is no input of the graph is assigned", next_step=_NEXT)
            shown[node] = x
    return shown


def _parts(gm: GraphModule, shown: dict[Node, Node]) -> list[Part]:
    parts = [Part(gm)]
    for node in gm.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        waiting = {shown.get(one, one) for pair in parts[-1].assigned for one in pair}
        if not _restores_version(node) and any(shown.get(one, one) in waiting for one in node.all_input_nodes):
            parts.append(Part(gm))
        if is_assignment(node):
            parts[-1].assigned.append((shown[node], node.args[1]))
        elif not _restores_version(node):
            parts[-1].nodes.append(node)
    return parts


def _connect(gm: GraphModule, parts: Sequence[Part], shown: dict[Node, Node]) -> None:
    (output,) = gm.graph.find_nodes(op="output")
    wanted = {shown.get(one, one) for one in output.all_input_nodes}
    for part in reversed(parts):
        wanted |= {shown.get(one, one) for _, one in part.assigned}
        own = set(part.nodes)
        part.outputs = [node for node in part.nodes if node in wanted]
        needed = {shown.get(one, one) for node in part.nodes for one in node.all_input_nodes} - own
        part.inputs = [node for node in gm.graph.nodes if node in needed]
        wanted |= needed


def _find_examples(parts: Sequence[Part]) -> None:
    """Fake values of the inputs of each part. The fake value of a traced input has the memory that it gets last: in a
    part it needs its own memory, or that of the tensor that was assigned before."""
    memory: dict[Node, Any] = {}
    assigned = {x for part in parts for x, _ in part.assigned}
    for part in parts:
        part.examples = [_example(node, memory, node in assigned) for node in part.inputs]
        for x, v in part.assigned:
            given = memory.get(v, v.meta["example_value"])
            if not keeps_layout(x.meta["example_value"], given) or not keeps_layout(_at_call(x), given):
                what = "`.data` is assigned a tensor of other sizes or strides, or of symbolic ones"
                raise CompileError(what, next_step=_NEXT)
            memory[x] = given.detach().requires_grad_(x.meta["example_value"].requires_grad)


def _at_call(x: Node) -> Any:
    """An input as the caller passes it; its traced value has the layout of what was assigned to it later."""
    return x.meta["grapharg"].example


def _example(node: Node, memory: dict[Node, Any], is_assigned: bool) -> Any:
    value = node.meta["example_value"]
    if not is_assigned:
        return value
    if node not in memory:
        with mode_of(value):
            made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
        memory[node] = made.requires_grad_(value.requires_grad)
    return memory[node]


def _make_graph(gm: GraphModule, part: Part, shown: dict[Node, Node], entry: bool, enabled: bool, last: bool) -> bool:
    """Sets ``part.graph``. ``entry``: whether gradients are recorded at the start of the whole graph, and so of each
    part; ``enabled``: whether they are recorded where the part starts. Returns whether they are where it ends."""
    graph, made = Graph(), dict[Node, Node]()
    for node in part.inputs:
        made[node] = graph.placeholder(node.name)
        made[node].meta = node.meta.copy()
    if enabled is not entry:
        graph.call_function(SET_GRAD_ENABLED, (enabled,))
    for node in part.nodes:
        if node.target is SET_GRAD_ENABLED:
            enabled = bool(node.args[0])
        made[node] = graph.node_copy(node, lambda one: made[shown.get(one, one)])
    if enabled is not entry and not last:
        graph.call_function(SET_GRAD_ENABLED, (entry,))
    _require_closed(part)
    graph.output(tuple(made[node] for node in part.outputs))
    part.graph = GraphModule(gm, graph)
    part.graph.meta = gm.meta
    for node, value in zip(part.inputs, part.examples, strict=True):
        made[node].meta["example_value"] = value
    return enabled


def _require_closed(part: Part) -> None:
    """CompileError if autocast is entered in one part and left in another, or if a part is inside of a transform of
    torch.func."""
    enter, leave = autocast_scopes()
    targets = [node.target for node in part.nodes]
    if targets.count(enter) != targets.count(leave) or any(map(is_of_transforms, targets)):
        what = "`.data` is assigned inside of autocast or of a transform of torch.func"
        raise CompileError(what, next_step=_NEXT)
