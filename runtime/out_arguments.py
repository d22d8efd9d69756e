"""Calls with ``out=`` in a Dynamo graph, as a call without it and a copy.

What some composite operators write into ``out`` is lost when AOTAutograd makes a graph functional: it would return the
argument as it was (``torch.linalg.matrix_rank``).
"""

from __future__ import annotations

import operator
from contextlib import nullcontext
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from symshape.runtime.torch_private import is_fake
from symshape.runtime.torch_unbacked import known_equal


def copy_into_outs(gm: torch.fx.GraphModule) -> None:
    """Rewrites every call whose result has the shape and dtype of what it is written to, as far as the tracer knows."""
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
    if not all(isinstance(one, Node) for one in targets) or not _alike(node, kwargs, targets):
        return False
    if several and not all(user.target is operator.getitem for user in node.users):
        return False
    target: Any = node.target
    with graph.inserting_before(node):
        result, parts = graph.call_function(target, node.args, kwargs), []
        for i in range(len(targets)):
            parts.append(graph.call_function(operator.getitem, (result, i)) if several else result)
        written = [graph.call_method("copy_", pair) for pair in zip(targets, parts)]
    for made in (result, *parts, *written):
        made.meta |= {name: value for name, value in node.meta.items() if name != "example_value"}
    if several:
        for user in list(node.users):
            position: Any = user.args[1]
            user.replace_all_uses_with(written[position])
            graph.erase_node(user)
    else:
        node.replace_all_uses_with(written[0])
    graph.erase_node(node)
    return True


def _alike(node: Node, kwargs: dict[str, Any], targets: list[Any]) -> bool:
    """Whether the call without ``out=`` returns tensors of these shapes and dtypes: else ``out`` is resized, or decides
    what is computed (the dtype of a sum)."""
    outs = [_example(one) for one in targets]
    if not all(is_fake(one) for one in outs):
        return False
    args, named = map_arg((node.args, kwargs), _example)
    mode: Any = outs[0].fake_mode
    target: Any = node.target
    env = mode.shape_env
    try:
        with mode, env.ignore_fresh_unbacked_symbols() if env is not None else nullcontext(), torch.no_grad():
            found = target(*args, **named)
    except Exception:  # noqa: BLE001 - what cannot be traced so is left as it was
        return False
    results = list(found) if isinstance(found, (tuple, list)) else [found]
    return len(results) == len(outs) and all(
        is_fake(one) and one.dtype == out.dtype and one.dim() == out.dim()
        and all(known_equal(a, b) for a, b in zip(one.shape, out.shape))
        for one, out in zip(results, outs)
    )  # fmt: skip


def _example(value: Any) -> Any:
    return value.meta.get("example_value") if isinstance(value, Node) else value
