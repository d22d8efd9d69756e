"""Unbacked sizes of tangents, where a function is traced without Dynamo.

AOTAutograd runs a function once to learn what it returns, and tangents get the sizes of these results. The trace runs
it again, and results have new unbacked symbols. Between Dynamo's graph and its trace they are renamed, call by call;
without that graph nothing says that a tangent is as large as its result, unless its size is a symbol alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from symshape.frontend.bridge.symbolic_sizes import expression_of
from symshape.frontend.patches.patch import Changes


def tangents_are_as_large_as_results(changes: Changes) -> None:
    """Where the joint trace compares each result's shape with its tangent's."""
    from torch._functorch._aot_autograd import graph_capture_wrappers

    changes.wrap(graph_capture_wrappers, "sym_eq", _renaming)


@functools.cache
def _renaming(original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    @functools.wraps(original)
    def sym_eq(result: Any, tangent: Any) -> Any:
        for found, known in zip(result, tangent):
            if isinstance(found, torch.SymInt) and isinstance(known, torch.SymInt):
                _rename(known, expression_of(known), expression_of(found))
        return original(result, tangent)

    return sym_eq


def _rename(size: torch.SymInt, old: Any, new: Any) -> None:
    """The unbacked symbols of an expression are those of another that was made by the same calls, in their order."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    olds, news = (
        sorted(free_unbacked_symbols(one) - free_unbacked_symbols(other), key=_number)
        for one, other in ((old, new), (new, old))
    )
    pairs = dict(zip(olds, news))
    if len(olds) != len(news) or old.xreplace(pairs) != new:
        return
    env = size.node.shape_env
    for symbol, now in pairs.items():
        env._rename_unbacked_to(symbol, now)


def _number(symbol: Any) -> tuple[int, str]:
    """Symbols are numbered in the order in which they are made."""
    digits = symbol.name.lstrip("uzf")
    return (int(digits) if digits.isdigit() else -1, symbol.name)
