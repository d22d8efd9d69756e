"""Runs backward graphs for a batch of tangents.

``torch.autograd.grad(is_grads_batched=True)`` and ``torch.autograd.functional.jacobian(vectorize=True)`` pass one.

Compiled code reads memory, which a batched tensor does not expose. So the graph runs once for each element of the
batch, and its results are stacked. (Under ``torch.func.vmap`` AOTAutograd refuses to run a compiled backward graph.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from symshape.frontend.bridge.aot_autograd import takes_boxed_arguments
from symshape.runtime.torch_c import batched, outside_batch, unbatched

Run = Callable[[list[Any]], Any]


def takes_batches(run: Run) -> Run:
    """Wraps ``run`` of a backward graph, which takes its inputs as one list, so that tangents may be batched."""

    def call(args: list[Any]) -> Any:
        with outside_batch() as level:
            if level is None:
                return run(args)
            parts = [unbatched(one, level) if isinstance(one, torch.Tensor) else one for one in args]
            args.clear()  # as a graph does
            results = _for_each(call, parts)
        return [batched(one, level) if isinstance(one, torch.Tensor) else one for one in results]

    takes_boxed_arguments(call)
    return call


def _for_each(call: Run, parts: list[Any]) -> list[Any]:
    """Results for each element of the batch, stacked. The first dim of an input is the batch, or 1 if it has none."""
    size = max(one.size(0) for one in parts if isinstance(one, torch.Tensor))

    def element(value: Any, i: int) -> Any:
        return value[i % value.size(0)] if isinstance(value, torch.Tensor) else value

    samples = [call([element(one, i) for one in parts]) for i in range(size)]
    return [torch.stack(row) if isinstance(row[0], torch.Tensor) else row[0] for row in zip(*samples)]
