"""``symshape::opaque_call``: a call that cannot be traced with unbacked sizes, as one operator.

Its first argument is the call as text (`symshape/artifact/call_text.py`). Results are new contiguous tensors. Gradients
are one operator too, by the operands that ``wanted`` marks, and no others: some functions reject an operand that
requires a gradient. ``opaque_call_kept`` keeps the autograd graph of its call; its last result is a ticket
(`runtime/kept_graph.py`), with which the gradient differentiates that graph. Without it, the function runs again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from symshape.artifact.call_text import made_from, parse, result_size, run
from symshape.runtime.kept_graph import KeptGraph, graph_of, new_ticket, ticket_for
from symshape.runtime.torch_c import differentiated

Size = int | torch.SymInt
_library: Any = torch.library.Library
LIBRARY = _library("symshape", "FRAGMENT")
LIBRARY.define("opaque_call(str call, Tensor[] tensors, SymInt[] sizes) -> Tensor[]")
LIBRARY.define("opaque_call_kept(str call, Tensor[] tensors, SymInt[] sizes, bool[] wanted) -> Tensor[]")
LIBRARY.define(
    "opaque_call_gradient(str call, Tensor[] tensors, SymInt[] sizes, bool[] wanted, Tensor?[] gradients, "
    "Tensor? ticket=None) -> Tensor[]"
)


def results_of_call(call: str, tensors: Sequence[torch.Tensor], sizes: Sequence[int]) -> list[torch.Tensor]:
    return _checked(call, run(call, tensors, sizes), tensors, sizes)


def kept_results_of_call(
    call: str, tensors: Sequence[torch.Tensor], sizes: Sequence[int], wanted: Sequence[bool]
) -> list[torch.Tensor]:
    """The results, then the ticket."""
    graph, results = _graph_of_call(call, tensors, sizes, wanted)
    return [*_checked(call, results, tensors, sizes), ticket_for(graph)]


def _graph_of_call(
    call: str, tensors: Sequence[torch.Tensor], sizes: Sequence[int], wanted: Sequence[bool]
) -> tuple[KeptGraph, list[torch.Tensor]]:
    """What differentiates the call, and its results."""
    with differentiated():
        copies = [t.detach().requires_grad_(by) for t, by in zip(tensors, wanted, strict=True)]
        results = run(call, copies, sizes)
    return KeptGraph(results, [t for t, by in zip(copies, wanted) if by]), results


def _checked(
    call: str, results: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor], sizes: Sequence[int]
) -> list[torch.Tensor]:
    _check_sizes(call, results, tensors, sizes)
    # The view's strides of dims of 1 are those that were promised.
    return [own.detach().view(own.shape) for own in _in_own_memory(results, tensors)]


def _in_own_memory(results: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The results, contiguous; copies of those that share memory with an earlier one or with the others."""
    taken = {t.untyped_storage().data_ptr() for t in others}
    found = []
    for result in results:
        own = result.contiguous()
        own = own.clone() if own.untyped_storage().data_ptr() in taken else own
        taken.add(own.untyped_storage().data_ptr())
        found.append(own)
    return found


def _check_sizes(
    call: str, results: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor], sizes: Sequence[int]
) -> None:
    """RuntimeError if a result's size differs from the traced one: compiled code would read out of bounds."""
    parsed = parse(call)
    for result, (_, origins) in zip(results, parsed["results"], strict=True):
        wanted = [result_size(origin, tensors, sizes, lambda: None) for origin in origins]
        if any(size not in (None, actual) for size, actual in zip(wanted, result.shape, strict=True)):
            raise RuntimeError(f"{parsed['function']} returned {list(result.shape)} instead of {wanted}")


def gradients_of_call(
    call: str,
    tensors: Sequence[torch.Tensor],
    sizes: Sequence[int],
    wanted: Sequence[bool],
    gradients: Sequence[torch.Tensor | None],
    ticket: torch.Tensor | None = None,
) -> list[torch.Tensor]:
    """One gradient for each operand that ``wanted`` marks."""
    graph = graph_of(ticket) or _graph_of_call(call, tensors, sizes, wanted)[0]
    leaves = [t for t, by in zip(tensors, wanted, strict=True) if by]
    found = graph.gradients(gradients)
    made = [torch.zeros_like(t) if g is None else g for g, t in zip(found, leaves, strict=True)]
    return _in_own_memory(made, [*tensors, *(g for g in gradients if g is not None)])


def _fake(call: str, tensors: Sequence[torch.Tensor], sizes: Sequence[Size]) -> list[torch.Tensor]:
    context = torch.library.get_ctx()
    return made_from(call, tensors, sizes, context.new_dynamic_size)


def _fake_kept(
    call: str, tensors: Sequence[torch.Tensor], sizes: Sequence[Size], wanted: Sequence[bool]
) -> list[torch.Tensor]:
    return [*_fake(call, tensors, sizes), new_ticket()]


def sizes_of_gradient(
    call: str,
    tensors: Sequence[torch.Tensor],
    sizes: Sequence[Size],
    wanted: Sequence[bool],
    gradients: Any,
    ticket: torch.Tensor | None = None,
) -> list[torch.Tensor]:
    return [t.new_empty(t.size()) for t, by in zip(tensors, wanted, strict=True) if by]


def remember(ctx: Any, inputs: Any, output: Any) -> None:
    call, tensors, sizes = inputs
    ctx.call, ctx.sizes = call, sizes
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, gradients: Any) -> Any:
    wanted = ctx.needs_input_grad[1]
    run_again = torch.ops.symshape.opaque_call_gradient
    return of_inputs(ctx, run_again(ctx.call, list(ctx.saved_tensors), ctx.sizes, wanted, list(gradients)))


def of_inputs(ctx: Any, found: Sequence[torch.Tensor]) -> Any:
    """The gradients of ``call, tensors, sizes``."""
    gradients = iter(found)
    of_sizes: Any = None if ctx.sizes else []  # an empty list is taken for one of tensors
    return None, [next(gradients) if by else None for by in ctx.needs_input_grad[1]], of_sizes


LIBRARY.impl("opaque_call", results_of_call, "CompositeExplicitAutograd")
LIBRARY.impl("opaque_call_kept", kept_results_of_call, "CompositeExplicitAutograd")
LIBRARY.impl("opaque_call_gradient", gradients_of_call, "CompositeExplicitAutograd")
torch.library.register_fake("symshape::opaque_call", _fake, lib=LIBRARY)
torch.library.register_fake("symshape::opaque_call_kept", _fake_kept, lib=LIBRARY)
torch.library.register_fake("symshape::opaque_call_gradient", sizes_of_gradient, lib=LIBRARY)
torch.library.register_autograd("symshape::opaque_call", _backward, setup_context=remember, lib=LIBRARY)
opaque_call: Any = torch.ops.symshape.opaque_call.default
opaque_call_kept: Any = torch.ops.symshape.opaque_call_kept.default
opaque_call_gradient: Any = torch.ops.symshape.opaque_call_gradient.default
