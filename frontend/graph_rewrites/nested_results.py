"""Nested tensors with offsets of their own that a graph returns: returned as parts, and rebuilt by the caller.

AOTAutograd traces a graph more than once. Each trace computes new offsets, with a new ragged size: the gradient of such
a result has another ragged size than the result, and no operator accepts both. The parts are dense tensors, and so are
their gradients. The offsets of an input are the same in every trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from symshape.frontend.bridge.nested_sizes import ragged_symbol
from symshape.runtime.torch_c import PARTS, Rows, is_jagged, nested_of, rows_of


def take_results_apart(gm: torch.fx.GraphModule) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes Dynamo's graph return the parts, in place. Returns a wrapper for the compiled graph that rebuilds the
    results.

    Before: ``return (nested,)``; after: ``return (part(nested, "values"), part(nested, "offsets"))``.
    """
    (output,) = gm.graph.find_nodes(op="output")
    results: Sequence[Any] = output.args[0]
    known = {ragged_symbol(value) for value in map(_example, gm.graph.find_nodes(op="placeholder")) if is_jagged(value)}
    if all(not _is_own(_example(node), known) for node in results):
        return lambda run: run
    flat: list[Any] = []
    forms: list[tuple[tuple[str, ...], int] | None] = []  # the names of parts, and the ragged dim
    with gm.graph.inserting_before(output):
        for node in results:
            if not _is_own(_example(node), known):
                flat.append(node)
                forms.append(None)
                continue
            rows = rows_of(_example(node))
            names = tuple(name for name in PARTS if getattr(rows, name) is not None)
            flat += [_part_of(gm.graph, node, name, getattr(rows, name)) for name in names]
            forms.append((names, rows.dim))
    output.args = (tuple(flat),)
    gm.recompile()
    return lambda run: lambda *args: _nested_again(run(*args), forms)


def _example(node: Any) -> Any:
    return node.meta.get("example_value") if isinstance(node, torch.fx.Node) else None


def _is_own(value: Any, known: set[Any]) -> bool:
    return is_jagged(value) and ragged_symbol(value) not in known


def part(x: torch.Tensor, name: str) -> torch.Tensor:
    """A part of a nested tensor, by its name in ``Rows``."""
    found: torch.Tensor = getattr(rows_of(x), name)
    return found


def _part_of(graph: torch.fx.Graph, node: torch.fx.Node, name: str, example: Any) -> torch.fx.Node:
    made = graph.call_function(part, (node, name))
    made.meta = {**node.meta, "example_value": example}
    return made


def _nested_again(flat: Sequence[Any], forms: Sequence[tuple[tuple[str, ...], int] | None]) -> tuple[Any, ...]:
    left = iter(flat)
    found: list[Any] = []
    for form in forms:
        if form is None:
            found.append(next(left))
            continue
        names, dim = form
        parts: dict[str, Any] = dict.fromkeys(PARTS) | {name: next(left) for name in names}
        found.append(nested_of(Rows(**parts, dim=dim, name=None)))
    return tuple(found)
