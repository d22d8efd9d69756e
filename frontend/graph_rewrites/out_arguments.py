"""Replaces calls with ``out=`` in a Dynamo graph by a call without it and a copy.

Writes of some composite operators to ``out`` are lost when AOTAutograd functionalises a graph: it would return the
argument unchanged (``torch.linalg.matrix_rank``). Others cannot be traced with ``out``: their fake rules do not accept
symbolic sizes (``torch.gather``), or there is none (``torch.nonzero``).
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves

from symshape.frontend.bridge.fake_tensors import is_fake, mode_of, new_symbols_are_ignored
from symshape.frontend.bridge.symbolic_sizes import is_unbacked, known_equal


def copy_into_outs(gm: torch.fx.GraphModule) -> None:
    """Rewrites every call whose result has the shape and dtype of its ``out``, as far as the tracer knows. In place."""
    changed = False
    for node in list(gm.graph.nodes):
        if node.op == "call_function" and "out" in node.kwargs:
            changed |= _rewrite(gm.graph, node)
    if changed:
        gm.recompile()


def _rewrite(graph: torch.fx.Graph, node: Node) -> bool:
    outs = node.kwargs["out"]
    several = isinstance(outs, (tuple, list))
    targets = list(outs) if isinstance(outs, (tuple, list)) else [outs]
    kwargs = {name: value for name, value in node.kwargs.items() if name != "out"}
    values = _alike(node, kwargs, targets) if all(isinstance(one, Node) for one in targets) else None
    if values is None:
        return False
    if several and not all(user.target is operator.getitem for user in node.users):
        return False
    target: Any = node.target
    with graph.inserting_before(node):
        result, parts = graph.call_function(target, node.args, kwargs), []
        for i in range(len(targets)):
            parts.append(graph.call_function(operator.getitem, (result, i)) if several else result)
        written = [graph.call_method("copy_", pair) for pair in zip(targets, parts)]
    examples = [tuple(values) if several else values[0], *values, *map(_example, targets)]
    for made, example in zip((result, *parts, *written), examples, strict=True):
        made.meta |= {**node.meta, "example_value": example}
    if several:
        for user in list(node.users):
            position: Any = user.args[1]
            user.replace_all_uses_with(written[position])
            graph.erase_node(user)
    else:
        node.replace_all_uses_with(written[0])
    graph.erase_node(node)
    return True


def trace_without_out(node: Node, args: Any, kwargs: Any, check: bool) -> Any:
    """While Dynamo traces: makes the call one without ``out=``, with a copy of its results. Returns the node's fake
    value; None where the result may differ from eager mode's, or cannot be traced either.

    ``check``: asserts that an unbacked size equals that of ``out``, which eager mode would resize: for
    ``fullgraph=True``.
    """
    outs = kwargs.get("out")
    single = isinstance(outs, torch.Tensor)
    targets = [outs] if single else list(outs) if isinstance(outs, (tuple, list)) else []
    if node.op != "call_function" or not targets or not all(is_fake(one) for one in targets):
        return None
    found = None if _differentiated(args, kwargs) else _traced(node.target, args, kwargs, targets[0])
    results = [found] if single else list(found) if isinstance(found, (tuple, list)) else []
    if len(results) != len(targets) or not all(_fits(*pair, check) for pair in zip(results, targets)):
        return None
    plain = {name: value for name, value in node.kwargs.items() if name != "out"}
    with node.graph.inserting_before(node):
        made = node.graph.call_function(node.target, node.args, plain)  # type: ignore[arg-type]
    made.meta = {**node.meta, "example_value": found}
    torch.autograd.graph.increment_version(targets)  # invalidates what the tracer knows of their values
    node.target, node.args, node.kwargs = copy_each_, (node.kwargs["out"], made), {}
    return outs if single else _like(found, targets)


def _traced(target: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """The fake result of a call without ``out=``; None where it cannot be traced."""
    rest = {name: value for name, value in kwargs.items() if name != "out"}
    try:
        with new_symbols_are_ignored(mode_of(out)), torch.no_grad():
            return target(*args, **rest)
    except Exception:  # noqa: BLE001 - what cannot be traced so is left as it was
        return None


def copy_each_(outs: Any, results: Any) -> Any:
    """Copies results of a call into ``outs``, and returns these, as the call with ``out=`` does."""
    pairs = [(outs, results)] if isinstance(outs, torch.Tensor) else list(zip(outs, results, strict=True))
    for out, one in pairs:
        for wanted, size in zip(out.shape, one.shape, strict=True):
            torch._check(size == wanted, lambda: _RESIZED)  # type: ignore[no-untyped-call]
        out.copy_(one)
    return outs if isinstance(outs, torch.Tensor) else _like(results, list(outs))


_RESIZED = "a result has another size than the tensor that is given with out=, which would be resized"


def _like(results: Any, outs: list[torch.Tensor]) -> Any:
    kind: Any = type(results)
    return kind(*outs) if hasattr(kind, "_fields") else kind(outs)


def _differentiated(args: Any, kwargs: Any) -> bool:
    """Whether an operand requires gradients: then ``out=`` is an error in eager mode."""
    leaves = tree_leaves((args, kwargs))
    return torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in leaves)


def _fits(result: Any, out: torch.Tensor, check: bool) -> bool:
    if not is_fake(result) or result.dtype != out.dtype or result.dim() != out.dim():
        return False
    for size, wanted in zip(result.shape, out.shape):
        in_data = any(isinstance(one, torch.SymInt) and is_unbacked(one) for one in (size, wanted))
        if not (known_equal(size, wanted) or check if in_data else size == wanted):  # this guards, as all out= does
            return False
    return True


def _alike(node: Node, kwargs: dict[str, Any], targets: list[Any]) -> list[Any] | None:
    """The fake results of the call without ``out=``, if they have the shapes and dtypes of ``targets``; else None,
    since ``out`` is resized, or its dtype decides what is computed (of a sum)."""
    outs = [_example(one) for one in targets]
    if not all(is_fake(one) for one in outs):
        return None
    args, named = map_arg((node.args, kwargs), _example)
    mode = mode_of(outs[0])
    target: Any = node.target
    try:
        with mode, new_symbols_are_ignored(mode), torch.no_grad():
            found = target(*args, **named)
    except Exception:  # noqa: BLE001 - what cannot be traced so is left as it was
        return None
    results = list(found) if isinstance(found, (tuple, list)) else [found]
    alike = len(results) == len(outs) and all(
        is_fake(one)
        and one.dtype == out.dtype
        and one.dim() == out.dim()
        and all(known_equal(a, b) for a, b in zip(one.shape, out.shape))
        for one, out in zip(results, outs)
    )
    return results if alike else None


def _example(value: Any) -> Any:
    return value.meta.get("example_value") if isinstance(value, Node) else value
