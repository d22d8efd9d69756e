"""Layers that AOTAutograd traces once for many calls (``frontend/graph_rewrites/repeated_layers.py`` finds them).

The first call of a layer with operands of some kind is traced: its nodes are recorded as they are appended to the
graph, forward when it is called and backward when autograd first asks for a gradient of any call. For every other call
these nodes are copied, with the operands of that call, and its results are new fake tensors of the same kind. So the
graph is that of a trace of all calls.

Tensors without gradients that a layer writes to, as running statistics, are written to after each call. A layer is
traced as usual where a copy would say less than the trace: if it writes to other operands, or if a result shares
memory with an operand or with another result.

After ``torch._higher_order_ops.invoke_subgraph``, which keeps the calls in the graph, and reentrant checkpoints
(``torch/utils/checkpoint.py``), whose backward runs autograd on a graph of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._functorch._aot_autograd.logging_utils import setup_stacktrace_preservation_hooks
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor, disable_functional_mode
from torch.fx import traceback as node_meta
from torch.fx.experimental.proxy_tensor import (
    disable_proxy_modes_tracing,
    get_proxy_mode,
    get_proxy_slot,
    track_tensor_tree,
)
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._sympy.symbol import SymT, symbol_is_type

from symshape.frontend.bridge.fake_tensors import is_in_functional_transform
from symshape.frontend.bridge.operators import is_view

Node = torch.fx.Node
Copies = dict[Node, Node]


class NotReplayed(Exception):
    """A call cannot be made of the trace of another: all calls are to be traced."""


def graph_module_like(gm: torch.fx.GraphModule, graph: torch.fx.Graph) -> torch.fx.GraphModule:
    """A module for another graph of the same inputs, with what Dynamo has attached to ``gm``."""
    made = torch.fx.GraphModule(gm, graph)
    made.meta = gm.meta
    for name in ("_param_name_to_source", "_backend_id"):
        if hasattr(gm, name):
            setattr(made, name, getattr(gm, name))
    for old, new in zip(*(one.find_nodes(op="placeholder") for one in (gm.graph, made.graph)), strict=True):
        if hasattr(old, "_dynamo_source"):
            new._dynamo_source = old._dynamo_source
    return made


@dataclass(frozen=True)
class _Kind:
    """What a tensor is like."""

    size: tuple[Any, ...]
    stride: tuple[Any, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool

    @classmethod
    def of(cls, x: torch.Tensor) -> _Kind:
        return cls(tuple(x.shape), x.stride(), x.dtype, x.device, x.requires_grad)

    def empty(self) -> torch.Tensor:
        return torch.empty_strided(self.size, self.stride, dtype=self.dtype, device=self.device)


@dataclass(frozen=True)
class _Outcome:
    """What a layer returns, and the positions of the operands that it writes to."""

    results: tuple[_Kind, ...]
    written: tuple[int, ...]

    @property
    def is_differentiated(self) -> bool:
        return any(one.requires_grad for one in self.results)

    @classmethod
    def of(cls, operands: Sequence[Any], before: Sequence[Any], results: Sequence[Any]) -> _Outcome | None:
        """The outcome of a call; None if a copy of its nodes would not say all. ``before``: ``_state`` of the
        operands before the call."""
        written = []
        for i, (x, old) in enumerate(zip(operands, before)):
            if isinstance(x, torch.Tensor) and old != (new := _state(x)):
                if old[1:] != new[1:] or x.requires_grad:
                    return None
                written.append(i)
        memory = [_memory(x) for x in (*(x for x in operands if isinstance(x, torch.Tensor)), *results)]
        own = set(memory[len(memory) - len(results) :])
        if len(own) < len(results) or not own.isdisjoint(memory[: len(memory) - len(results)]):
            return None
        if any(x.storage_offset() != 0 or x.is_conj() or x.is_neg() for x in map(_fake, results)):
            return None
        return cls(tuple(map(_Kind.of, results)), tuple(written))

    def fits(self, operands: Sequence[Any]) -> bool:
        """Whether no operand that is written to shares memory with another operand."""
        memory = [_memory(x) for x in operands if isinstance(x, torch.Tensor)] if self.written else []
        return all(memory.count(_memory(operands[i])) == 1 for i in self.written)


class Layer(torch.nn.Module):
    """Calls a graph, whose calls are traced once for each kind of operands. ``graph``: from operands to a tuple of
    tensors; it has no unbacked sizes of its own."""

    def __init__(self, graph: torch.fx.GraphModule) -> None:
        super().__init__()
        self.graph = graph
        self.outcomes: dict[Any, _Outcome | None] = {}  # by kind of operands; None: each call is traced
        self.traces: dict[Any, _Trace] = {}  # by tracer, kind, and which operands are the same
        self.reads_floats = False  # whether a guard was made on a float operand

    def forward(self, *operands: Any) -> Any:
        if is_in_functional_transform() or not all(map(_is_replayable, operands)):
            return self.run(operands)
        kind = (torch.is_grad_enabled(), *(_kind_of(x, self.reads_floats) for x in operands))
        mode = get_proxy_mode()
        if mode is None and kind not in self.outcomes:
            before = [_state(x) if isinstance(x, torch.Tensor) else None for x in operands]
            results = self.run(operands)
            self.outcomes[kind] = _Outcome.of(operands, before, results)
            return results
        outcome = self.outcomes.get(kind)
        if outcome is None or not outcome.fits(operands):
            return self.run(operands)
        if mode is not None:
            return self._traced(mode.tracer, kind, outcome, operands)
        for i in outcome.written:
            _write(operands[i], _Kind.of(operands[i]).empty())
        if not outcome.is_differentiated:
            return tuple(one.empty() for one in outcome.results)
        return _Untraced.apply(outcome, *operands)

    def run(self, operands: Sequence[Any]) -> Any:
        """The results of a call that is traced operator by operator."""
        env = next((x.node.shape_env for x in operands if isinstance(x, torch.SymFloat)), None)
        count = 0 if env is None else len(env.guards)
        with node_meta.preserve_node_meta():
            results = torch.fx.Interpreter(self.graph).run(*operands)
        if env is not None and any(map(_is_on_floats, env.guards[count:])):
            self.reads_floats = True
        return results

    def _traced(self, tracer: Any, kind: Any, outcome: _Outcome, operands: Sequence[Any]) -> Any:
        nodes = [_node_of(x, tracer) for x in operands]
        key = (tracer, kind, tuple(map(nodes.index, nodes)))
        is_first = key not in self.traces
        call = _Call(self, key, tracer, nodes, outcome)
        results = _Replayed.apply(call, *operands) if outcome.is_differentiated else call.forward(operands)
        if not is_first:
            for i, node in zip(outcome.written, self.traces[key].written):
                _write(operands[i], _new(tracer, call.copies[node], operands[i]))
        return results


def forget_traces(root: torch.nn.Module) -> None:
    """Forgets what the layers in a module have recorded: it is of one trace of AOTAutograd."""
    for module in root.modules():
        if isinstance(module, Layer):
            module.outcomes.clear()
            module.traces.clear()


@dataclass
class _Trace:
    """The nodes of a call that was traced. ``operands``: of each the node, and that of what stands for it."""

    operands: list[tuple[Node | None, Node | None]]
    nodes: list[Node]
    results: list[tuple[Node, torch.Tensor]]  # and the fake tensor of it
    written: list[Node]  # the new values of the operands that are written to
    leaves: Sequence[Any]  # stand for the operands in autograd's graph of this call alone
    made: Sequence[torch.Tensor]  # the results in that graph
    backward: dict[Any, _Backward] = field(default_factory=dict)  # by kind of gradients of the results

    def itself(self) -> Copies:
        """The nodes of the call that was traced, in the place of copies."""
        return {node: node for node in self._all()}

    def copied(self, tracer: Any, operands: Sequence[Node | None]) -> Copies:
        """Copies the nodes for other operands."""
        copies: Copies = {}
        for both, new in zip(self.operands, operands):
            copies.update({old: new for old in both if old is not None and new is not None})
        _copy(tracer, self.nodes, copies)
        return copies

    def _all(self) -> Iterable[Node]:
        yield from (node for both in self.operands for node in both if node is not None)
        yield from self.nodes

    def between(self, one: Copies, other: Copies) -> Copies:
        """The nodes of one call, and those of another in their place."""
        return {one[node]: other[node] for node in self._all()}


@dataclass
class _Backward:
    """The nodes that compute gradients of one call from those of its results."""

    call: _Call
    given: list[Node]
    nodes: list[Node]
    results: list[tuple[Node, torch.Tensor] | None]  # of each operand


@dataclass
class _Call:
    """One call in a graph that is being traced."""

    layer: Layer
    key: Any
    tracer: Any
    nodes: list[Node | None]  # of the operands
    outcome: _Outcome
    copies: Copies = field(default_factory=dict)
    seen: list[tuple[torch.Tensor, Node, int]] = field(default_factory=list)  # tensors, and their versions

    def forward(self, operands: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        trace = self.layer.traces.get(self.key)
        if trace is None:
            trace = self.layer.traces[self.key] = self._first(operands)
            self.copies = trace.itself()
        else:
            self.copies = trace.copied(self.tracer, self.nodes)
        results = tuple(_new(self.tracer, self.copies[node], value) for node, value in trace.results)
        known = [(x, both[1]) for x, both in zip(operands, trace.operands)]
        known += [(x, node) for x, (node, _) in zip(results, trace.results)]
        self.seen = [(x, self.copies[node], x._version) for x, node in known if isinstance(x, torch.Tensor) and node]
        return results

    def _first(self, operands: Sequence[Any]) -> _Trace:
        leaves, differentiated = operands, self.outcome.is_differentiated
        if differentiated:
            leaves = [
                x.detach().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x for x in operands
            ]
        both = [*zip(self.nodes, (_node_of(x, self.tracer) for x in leaves))]
        start = _last(self.tracer)
        with torch.enable_grad() if differentiated else nullcontext():
            made = self.layer.run(leaves)
        results = [(_required(_node_of(x, self.tracer)), _fake(x)) for x in made]
        written = [_required(_node_of(leaves[i], self.tracer)) for i in self.outcome.written]
        return _Trace(both, _since(start, self.tracer), results, written, leaves, made)

    def backward(self, gradients: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """The gradients of the operands."""
        if torch.is_grad_enabled():
            raise NotReplayed  # these would have to be differentiated in their turn
        trace = self.layer.traces[self.key]
        given = [x for x in gradients if x is not None]
        nodes = [_required(_node_of(x, self.tracer)) for x in given]
        if not set(nodes).isdisjoint(self.copies.values()):
            raise NotReplayed
        key = (tuple(x is not None for x in gradients), tuple(_kind_of(x) for x in given), *map(nodes.index, nodes))
        backward = trace.backward.get(key)
        if backward is None:
            backward = trace.backward[key] = self._first_backward(trace, gradients, nodes)
            copies: Copies = {}
        else:
            copies = trace.between(backward.call.copies, self.copies) | dict(zip(backward.given, nodes))
            _copy(self.tracer, backward.nodes, copies)
        self._require_unwritten({copies.get(node, node) for one in backward.nodes for node in one.all_input_nodes})
        results = [None if one is None else (copies.get(one[0], one[0]), one[1]) for one in backward.results]
        return [None if one is None else _new(self.tracer, *one) for one in results]

    def _first_backward(self, trace: _Trace, gradients: Sequence[torch.Tensor | None], nodes: list[Node]) -> _Backward:
        """Differentiates the call that was traced, and puts this one in its place."""
        start = _last(self.tracer)
        asked = [x for x in trace.leaves if isinstance(x, torch.Tensor) and x.requires_grad]
        of, given = zip(*((x, gradient) for x, gradient in zip(trace.made, gradients) if gradient is not None))
        setup_stacktrace_preservation_hooks([x.grad_fn for x in of])
        found = iter(torch.autograd.grad(of, asked, given, retain_graph=True, allow_unused=True))
        results: list[Any] = []
        for x in trace.leaves:
            gradient = next(found) if isinstance(x, torch.Tensor) and x.requires_grad else None
            results.append(None if gradient is None else (_required(_node_of(gradient, self.tracer)), _fake(gradient)))
        made = _since(start, self.tracer)
        for node in made:
            node.args = torch.fx.map_arg(node.args, lambda one: self.copies.get(one, one))
            node.kwargs = torch.fx.map_arg(node.kwargs, lambda one: self.copies.get(one, one))
        for inner in self.layer.graph.modules():
            if isinstance(inner, Layer):  # what they have recorded here now reads this call's nodes
                for one in inner.traces.values():
                    one.backward.clear()
        results = [one and (self.copies.get(one[0], one[0]), one[1]) for one in results]
        return _Backward(self, nodes, made, results)

    def _require_unwritten(self, read: set[Node]) -> None:
        """As autograd does for what it has saved: NotReplayed if a tensor that backward reads was written to."""
        bases = {_base(node) for node in read}
        if any(_base(node) in bases and x._version != version for x, node, version in self.seen):
            raise NotReplayed


class _Replayed(torch.autograd.Function):
    """A call of a layer in a graph that is being traced."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *operands: Any) -> Any:  # type: ignore[override]
        ctx.call = call
        ctx.set_materialize_grads(False)
        results = call.forward(operands)
        ctx.mark_non_differentiable(*(x for x, one in zip(results, call.outcome.results) if not one.requires_grad))
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        found = ctx.call.backward(gradients) if any(x is not None for x in gradients) else []
        return (None, *(found or [None] * len(ctx.call.nodes)))


class _Untraced(torch.autograd.Function):
    """A call of a layer whose results are known, where no graph is made."""

    @staticmethod
    def forward(ctx: Any, outcome: _Outcome, *operands: Any) -> Any:  # type: ignore[override]
        results = tuple(one.empty() for one in outcome.results)
        ctx.mark_non_differentiable(*(x for x, one in zip(results, outcome.results) if not one.requires_grad))
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise NotReplayed  # AOTAutograd does not differentiate here


def _is_replayable(x: Any) -> bool:
    if not isinstance(x, torch.Tensor):
        return isinstance(x, int | float | torch.SymInt | torch.SymFloat)
    return type(x) is FunctionalTensor and type(_fake(x)) is FakeTensor


def _fake(x: Any) -> Any:
    """The fake tensor in a FunctionalTensor, as it is after all writes."""
    torch._sync(x)
    return torch._from_functional_tensor(x.elem)


def _kind_of(x: Any, with_floats: bool = True) -> Any:
    """What traces depend on: not on the values of floats that are symbolic."""
    if isinstance(x, torch.SymInt | torch.SymFloat):
        return (type(x), x.node.expr if with_floats or isinstance(x, torch.SymInt) or x.node.expr.is_number else None)
    if not isinstance(x, torch.Tensor):
        return (type(x), repr(x))  # 0.0 == -0.0
    fake = _fake(x)
    numbers = (*fake.shape, *fake.stride(), fake.storage_offset())
    sizes = [one.node.expr if isinstance(one, torch.SymInt) else one for one in numbers]
    return (fake.dtype, fake.device, fake.dim(), *sizes, x.requires_grad, fake.is_conj(), fake.is_neg())


def _state(x: Any) -> tuple[Any, ...]:
    """Changes if the tensor is written to: the first number if it is its data alone."""
    return (
        torch._functionalize_mutation_counter(x.elem),  # type: ignore[attr-defined]
        torch._functionalize_storage_changed_counter(x.elem),  # type: ignore[attr-defined]
        torch._functionalize_has_metadata_mutation(x.elem),  # type: ignore[attr-defined]
        x.requires_grad,
    )


def _write(x: Any, value: Any) -> None:
    """Replaces the data of a FunctionalTensor, as a write to it does."""
    x.replace_(_fake(value))
    x.commit_update()
    x.sync()
    torch.autograd.graph.increment_version(x)


def _memory(x: torch.Tensor) -> StorageWeakRef:
    return StorageWeakRef(x.untyped_storage())


def _is_on_floats(guard: Any) -> bool:
    return any(symbol_is_type(symbol, SymT.FLOAT) for symbol in guard.expr.free_symbols)


def _node_of(x: Any, tracer: Any) -> Node | None:
    """The node of a value in the graph that is being made; None for a number."""
    if isinstance(x, torch.Tensor):
        slot: Any = get_proxy_slot(_fake(x), tracer, None)
        proxy = None if slot is None else slot.proxy
    elif isinstance(x, torch.SymInt | torch.SymFloat):
        slot = get_proxy_slot(x, tracer, None)
        proxy = None if slot is None else slot.force()
    else:
        return None
    if not isinstance(proxy, torch.fx.Proxy):
        raise NotReplayed
    return proxy.node


def _required(node: Node | None) -> Node:
    if node is None:
        raise NotReplayed
    return node


def _base(node: Node) -> Node:
    """The node whose memory a node views."""
    while is_view(node.target) and isinstance(node.args[0], Node):
        node = node.args[0]
    return node


def _last(tracer: Any) -> Node:
    return next(iter(reversed(tracer.graph.nodes)))


def _since(start: Node, tracer: Any) -> list[Node]:
    """The nodes after ``start``."""
    found: list[Node] = []
    for node in reversed(tracer.graph.nodes):
        if node is start:
            break
        found.append(node)
    return found[::-1]


def _copy(tracer: Any, nodes: Iterable[Node], copies: Copies) -> None:
    """Appends copies of nodes to the graph, and adds them to ``copies``, which has the operands that are others."""
    for node in nodes:
        new = copies[node] = tracer.graph.node_copy(node, lambda one: copies.get(one, one))
        if isinstance(node.meta.get("val"), torch.SymFloat):
            new.meta["val"] = _number(new)


def _number(node: Node) -> Any:
    """The value of a node that computes with floats, from the values of its operands."""
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda one: one.meta["val"])
    with disable_proxy_modes_tracing():
        return node.target(*args, **kwargs)  # type: ignore[operator]


def _new(tracer: Any, node: Node, like: torch.Tensor) -> torch.Tensor:
    """A tensor for a node of the graph, and for its value of which ``like`` is a copy."""
    value = node.meta["val"]
    with disable_functional_mode(), disable_proxy_modes_tracing():
        fake = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)
    track_tensor_tree(fake, torch.fx.Proxy(node, tracer), constant=None, tracer=tracer)
    node.meta["val"] = value  # shares memory with the values of other nodes, as the results do
    return FunctionalTensor.to_functional(fake)
