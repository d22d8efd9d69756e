"""Runs backward graphs for a batch of tangents.

``torch.autograd.grad(is_grads_batched=True)`` and ``torch.autograd.functional.jacobian(vectorize=True)`` pass one.

Compiled code reads memory, which a batched tensor does not expose. So the graph runs once for each element of the
batch, and its results are stacked. (Under ``torch.func.vmap`` AOTAutograd refuses to run a compiled backward graph.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from symshape.frontend.bridge.aot_autograd import takes_boxed_arguments
from symshape.runtime.torch_c import batched, in_function, is_in_batch, outside_batch, unbatched

Run = Callable[[list[Any]], Any]


def takes_batches(run: Run) -> Run:
    """Wraps ``run`` of a backward graph, which takes its inputs as one list, so that tangents may be batched."""

    def call(args: list[Any]) -> Any:
        if not is_in_batch():
            return run(args)
        with outside_batch() as level:
            assert level is not None
            parts = [unbatched(one, level) if isinstance(one, torch.Tensor) else one for one in args]
            of = [one for one in args if isinstance(one, torch.Tensor) and one.requires_grad]
            args.clear()  # as a graph does
            results = _for_each(call, parts)
            results = [_not_differentiated(one, of) if in_function() else one for one in results]
        return [batched(one, level) if isinstance(one, torch.Tensor) else one for one in results]

    takes_boxed_arguments(call)
    return call


def _not_differentiated(result: Any, of: Sequence[torch.Tensor]) -> Any:
    """A gradient of ``create_graph=True``, computed of these tensors. It must be one that requires a gradient, or what
    is computed of it would lose a term without an error: AOTAutograd's function around a backward graph, which raises
    it, gives only the batched tensor a gradient, and not the tensor in it, which the caller gets."""
    if not isinstance(result, torch.Tensor) or not (result.is_floating_point() or result.is_complex()):
        return result
    with torch.enable_grad():
        return _Refusal.apply(result, torch.empty(0, requires_grad=True), *of)  # type: ignore[no-untyped-call]


class _Refusal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, *differentiated: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise RuntimeError("torch.compile with aot_autograd does not currently support double backward")


def _for_each(call: Run, parts: list[Any]) -> list[Any]:
    """Results for each element of the batch, stacked. The first dim of an input is the batch, or 1 if it has none."""
    size = max(one.size(0) for one in parts if isinstance(one, torch.Tensor))

    def element(value: Any, i: int) -> Any:
        return value[i % value.size(0)] if isinstance(value, torch.Tensor) else value

    samples = [call([element(one, i) for one in parts]) for i in range(size)]
    return [torch.stack(row) if isinstance(row[0], torch.Tensor) else row[0] for row in zip(*samples)]
