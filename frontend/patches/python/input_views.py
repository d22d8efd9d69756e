"""In-place views of a program's inputs, such as ``x.t_()``. Dynamo rejects them, although AOTAutograd supports them.

Dynamo would change the fake value of the input, from which guards and sizes are read. Here that value stays unchanged;
another fake value with the same memory is changed, and the program's variable refers to that. The actual tensor gets
its new sizes and strides after the graph has run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.variables.misc import GetAttrVariable
from torch._dynamo.variables.tensor import TensorVariable
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable

from symshape.frontend.bridge.dynamo import unimplemented
from symshape.frontend.patches.patch import Changes

VIEWS = frozenset({"t_", "transpose_", "swapaxes_", "swapdims_", "squeeze_", "unsqueeze_", "as_strided_"})


def views_of_inputs(changes: Changes) -> None:
    """Makes Dynamo trace in-place views of inputs."""
    changes.wrap(TensorVariable, "call_method", _method)
    changes.wrap(TorchInGraphFunctionVariable, "call_function", _function)


def names_of_views_2_11(changes: Changes) -> None:
    """Lets Dynamo look up such a method by name, where it would already decide to break the graph at the call, and
    tells the shape environment of a program that reads the base of a view."""
    changes.wrap(TensorVariable, "var_getattr", _attribute)


def names_of_views(changes: Changes) -> None:
    """Does the same for PyTorch 2.14 and later, which renamed the function."""
    changes.wrap(TensorVariable, "tp_getattro_impl", _attribute)


def _attribute(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def attribute(self: Any, tx: Any, name: str) -> Any:
        if name == "_base":
            tx.output.shape_env.bases_are_read = True
        if name in VIEWS and _is_input(self):
            return GetAttrVariable(self, name)
        return original(self, tx, name)

    return attribute


def _function(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call_function(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        name = getattr(self.value, "__name__", "")
        of_tensor = name in VIEWS and self.is_tensor_method() and args and args[0].is_tensor()
        if of_tensor and _is_input(args[0].realize()):
            return self.call_tensor_method(tx, list(args), kwargs)
        return original(self, tx, args, kwargs)

    return call_function


def _method(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        if name not in VIEWS:
            return original(self, tx, name, args, kwargs)
        node = self.proxy.node
        before = node.meta["example_value"]
        others = [one for one in node.graph.nodes if one is not node and one.meta.get("example_value") is before]
        if not _is_input(self):
            if any(one.op == "placeholder" for one in others):
                unimplemented(name, _SHOWN_TWICE, None)
            return original(self, tx, name, args, kwargs)
        if others:
            unimplemented(name, _SHOWN_TWICE, None)
        with tx.fake_mode, torch.no_grad():
            node.meta["example_value"] = before.detach()  # shares its memory
        try:
            result = original(self, tx, name, args, kwargs)
        finally:
            node.meta["example_value"] = before
        self.proxy = result.realize().proxy
        self.proxy.node.meta[_MARK] = True
        self.synchronize_attributes(tx)
        return self

    return call_method


def take_layouts_out(gm: torch.fx.GraphModule) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Removes in-place views from Dynamo's graph, in place. Returns a wrapper for the compiled graph, which applies
    them to the arguments.

    Before: ``y = x.t_(); ...; return (y, z)``. After: ``y = x.t(); ...; return (y, z, y)``; the wrapper then gives x
    the layout of y, and returns x in place of y. Left to AOTAutograd, an argument that is also written to would get the
    layout of newly allocated values, although it may be a part of other memory.
    """
    changed = [node for node in gm.graph.nodes if _MARK in node.meta]
    if not changed:
        return lambda run: run
    (output,) = gm.graph.find_nodes(op="output")
    results: Sequence[Any] = output.args[0]
    shown = {node: _position_of_input(node) for node in changed}
    last = {position: node for node, position in shown.items()}
    returned = [shown.get(node) if isinstance(node, torch.fx.Node) else None for node in results]
    for node in changed:
        node.target = str(node.target).removesuffix("_")
    output.args = ((*results, *last.values()),)
    gm.recompile()
    return lambda run: lambda *args: _lay_out(args, run(*args), list(last), returned)


def _position_of_input(node: torch.fx.Node) -> int:
    while node.op != "placeholder":
        node = node.args[0]  # type: ignore[assignment]
    return node.graph.find_nodes(op="placeholder").index(node)


def _lay_out(args: Sequence[Any], found: Sequence[Any], changed: Sequence[int], returned: Sequence[Any]) -> Any:
    """Applies views to arguments and returns the results. The last of ``found`` are the views for the arguments at
    ``changed``; ``returned`` has for each other result the argument that it is, or None."""
    results, views = found[: len(found) - len(changed)], found[len(found) - len(changed) :]
    with torch.no_grad():
        for position, view in zip(changed, views, strict=True):
            args[position].as_strided_(view.size(), view.stride(), view.storage_offset())
    return tuple(x if i is None else args[i] for x, i in zip(results, returned, strict=True))


_MARK = "symshape_view_of_input"
_SHOWN_TWICE = "an argument was written to before, and another variable may show it as it was"


def _is_input(variable: Any) -> bool:
    """Whether a variable is an input tensor that requires no gradient."""
    value = variable.proxy.node.meta.get("example_value")
    return variable.source is not None and isinstance(value, torch.Tensor) and not value.requires_grad
