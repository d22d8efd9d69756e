"""Traces ``x.storage_offset()`` in a compiled frame.

Dynamo breaks the graph there, or returns a number without a guard: an offset that was 0 or 1 at the first call is
constant in the trace, and calls with other offsets would run the same code. Here a constant offset comes with guards on
the offsets of all inputs that share the tensor's storage, so that there are at most three graphs: for 0, for 1, and for
all other offsets, where it is a symbol.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._dynamo.variables import ConstantVariable, base
from torch._dynamo.variables.tensor import TensorVariable

from symshape.frontend.bridge.fake_tensors import storage_of
from symshape.frontend.patches.patch import Changes
from symshape.frontend.patches.probes import MISSING, Exists, Named, Takes


def storage_offsets_are_traced_2_11(changes: Changes) -> None:
    """Adds a method that Dynamo looks up by name."""
    changes.attribute(TensorVariable, "method_storage_offset", _method)


def storage_offsets_are_traced(changes: Changes) -> None:
    """Adds the method to the table that Dynamo uses since PyTorch 2.14. Since 2.15 it has an entry of its own, which
    only guards the offsets of inputs."""
    tensors: Any = TensorVariable
    variables: Any = base
    changes.items(tensors.tp_methods, {"storage_offset": variables.Method(_method)})


def _entry() -> Any:
    tensors: Any = TensorVariable
    return tensors.tp_methods.get("storage_offset", MISSING)


OFFSET_PROBES = (
    Exists("torch._dynamo.source.TensorProperty.STORAGE_OFFSET"),
    Takes("torch._dynamo.guards.GuardBuilder.EQUALS_MATCH", "self, guard, recompile_hint"),
    Takes("torch._dynamo.guards.install_guard", "*guards, skip"),
)
METHOD_ENTRY = Named("torch._dynamo.variables.tensor.TensorVariable.tp_methods['storage_offset']", _entry)


def _method(self: Any, tx: Any) -> Any:
    """The offset as a constant; None lets Dynamo trace the call, whose result is then a symbol."""
    fake = self.as_proxy().node.meta.get("example_value")
    if not _is_strided(fake):
        return None
    memory = storage_of(fake)
    for tracked in tx.output.tracked_fakes:
        if _is_strided(tracked.fake) and storage_of(tracked.fake) == memory:
            _guard_if_constant(tracked)
    number = _number(fake.storage_offset())
    return None if number is None else ConstantVariable.create(number)


def guard_where_absolute(graph: torch.fx.GraphModule, env: Any) -> None:
    """Guards constant storage offsets of inputs if a graph depends on them: ``as_strided`` counts from the beginning of
    the storage. ``graph``: a graph that AOTAutograd traced for the current frame, with this ShapeEnv."""
    context = torch._guards.TracingContext.try_get()
    if context is None or env is None:
        return
    absolute = any(_is_absolute(node) for node in graph.graph.nodes)
    for tracked in env.tracked_fakes or ():
        if _is_strided(tracked.fake) and (absolute or isinstance(tracked.fake.storage_offset(), torch.SymInt)):
            _guard_if_constant(tracked)


def _is_absolute(node: torch.fx.Node) -> bool:
    """Whether a node is an ``as_strided`` with an explicit offset; else the result starts at its operand."""
    if not getattr(node.target, "__name__", "").startswith("as_strided"):
        return False
    op: Any = node.target
    return any(
        a.name == "storage_offset" and (len(node.args) > i and node.args[i] is not None or a.name in node.kwargs)
        for i, a in enumerate(op._schema.arguments)
    )


def _guard_if_constant(tracked: Any) -> None:
    """Guards an input's offset if it is constant at the end of the trace; a symbol also becomes constant if the program
    compares it (``2 <= offset`` and ``offset <= 2``). Dynamo's own check of the tensor compares sizes and strides, but
    not the offset."""
    from torch._dynamo.guards import GuardBuilder, install_guard
    from torch._dynamo.source import TensorProperty, TensorPropertySource

    def create(builder: Any, guard: Any, **how: Any) -> None:
        if _number(tracked.fake.storage_offset()) is not None:
            GuardBuilder.EQUALS_MATCH(builder, guard, **how)

    source = TensorPropertySource(tracked.source, TensorProperty.STORAGE_OFFSET)
    install_guard(source.make_guard(create))


def _is_strided(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided


def _number(offset: Any) -> int | None:
    if not isinstance(offset, torch.SymInt):
        return int(offset)
    return int(offset.node.expr) if offset.node.expr.is_number else None
