"""Checks of items that the program asserts to equal a size (``torch._check(n == x.shape[0])``) or to be true.

The tracer replaces the item's symbol by that size, and drops the read of the item together with the assertion. Here the
assertion is inserted as an operator on the tensor, before the graph is traced further.
"""

from __future__ import annotations

import torch

from symshape.frontend.bridge.symbolic_sizes import expression_of
from symshape.runtime.eager_errors import EAGER_FORM
from symshape.runtime.torch_c import user_lines


def assert_items(gm: torch.fx.GraphModule) -> None:
    """Adds a ``_assert_async`` behind each ``item`` of a Dynamo graph whose symbol was replaced."""
    changed = False
    for node in list(gm.graph.find_nodes(op="call_method", target="item")):
        number = node.meta.get("example_value")
        bindings = node.meta.get("unbacked_bindings") or {}
        if not isinstance(number, (torch.SymInt, torch.SymBool)) or not bindings or expression_of(number) in bindings:
            continue
        if isinstance(number, torch.SymBool) and expression_of(number).free_symbols:
            continue
        known = node if isinstance(number, torch.SymInt) else bool(number)
        what = "an integer" if isinstance(number, torch.SymInt) else "a boolean"
        file, line = (user_lines(node) or [("", 0)])[-1]
        message = f"runtime assertion failed: {what} is not {expression_of(number)} ({file}:{line})"
        with gm.graph.inserting_after(node):
            equal = gm.graph.call_function(torch.eq, (node.args[0], known))
        with gm.graph.inserting_after(equal):
            whole = gm.graph.call_function(torch.all, (equal,))
        with gm.graph.inserting_after(whole):
            check = gm.graph.call_function(torch.ops.aten._assert_async.msg, (whole, message))
        check.meta[EAGER_FORM] = None
        changed = True
    if changed:
        gm.recompile()
