"""Regions (``torch.compiler.nested_compile_region``) that Dynamo traces once and calls several times."""

from __future__ import annotations

import functools
from typing import Any

from symshape.frontend.patches.patch import Changes


def sizes_of_regions_are_bound(changes: Changes) -> None:
    """Reuses the trace of a region only if all sizes that it takes are still symbols of the graph.

    Dynamo looks up such sizes by their expression. If a guard (``x.size(1) == 8``, for a product in the region) has
    since made one a number, that is a KeyError.
    """
    from torch._dynamo.variables import invoke_subgraph  # not in every PyTorch that rows are for

    for name in ("find_reuse_match", "find_reuse_entry_by_key"):
        changes.wrap(invoke_subgraph, name, functools.partial(_if_bound, invoke_subgraph.LiftedBoundSymbol))


def _if_bound(kind: Any, original: Any) -> Any:
    @functools.wraps(original)
    def find(tx: Any, *args: Any, **kwargs: Any) -> Any:
        entry = original(tx, *args, **kwargs)
        bound = tx.output.current_tracer.bound_symbols
        taken = () if entry is None else entry.subgraph_input_mapping
        symbols: list[Any] = [one.expr for one in taken if isinstance(one, kind)]
        return entry if all(symbol in bound for symbol in symbols) else None

    return find
