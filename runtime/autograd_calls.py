"""Calls of compiled graphs through autograd, with as little Python between as a plain graph needs.

AOTAutograd puts general code around a graph: for tensor subclasses, results that are views of inputs, inputs that are
written to, states of random generators. A plain graph has none of these. For it the functions here do the same; what
is unusual about a call (a gradient of a gradient, a transform, a first call) is left to AOTAutograd's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from symshape.runtime.torch_c import (
    in_context_of_backward,
    in_transform,
    is_profiling,
    is_view,
    keep_in_context,
    set_grad_enabled,
)

Run = Callable[[list[Any]], Any]  # of a compiled graph: the list of its inputs, which it empties


@dataclass(frozen=True)
class Results:
    """Of a forward graph: the first ``count`` results are the caller's; of these, at the positions ``constant`` are
    those without a gradient, at ``views`` those that must not be views for autograd. ``saved`` and ``symbols`` are the
    tensors and the numbers that are saved for backward."""

    count: int
    constant: tuple[int, ...]
    views: tuple[int, ...]
    saved: slice
    symbols: slice


def forward_of(run: Run, results: Results, mark_saved: Callable[[list[torch.Tensor]], None] | None) -> Any:
    """``forward`` of the autograd function of a plain graph. ``mark_saved`` gets the tensors that are saved."""
    count, constant, views = results.count, results.constant, results.views

    def forward(ctx: Any, *args: Any) -> tuple[Any, ...]:
        found = run(list(args))
        saved = [x.detach() if is_view(x) else x for x in found[results.saved]]
        if mark_saved is not None:
            mark_saved(saved)
        ctx.save_for_backward(*saved)
        ctx.symints = found[results.symbols]
        ctx.opaque_objects = ()
        keep_in_context(ctx)
        returned = list(found[:count])
        for i in views:
            returned[i] = torch.ops.aten._unsafe_view(returned[i], returned[i].shape)
        if constant:
            ctx.mark_non_differentiable(*[x for i in constant if isinstance(x := returned[i], torch.Tensor)])
        return tuple(returned)

    return forward


def backward_of(
    run: Callable[[], Run | None],
    tangents: Sequence[tuple[int, bool]],
    in_layout: Callable[[Any, int], torch.Tensor],
    original: Callable[..., Any],
    deterministic: bool,
) -> Any:
    """``backward`` of the autograd function of a plain graph. ``run()``: the backward graph, None while it is not
    compiled; ``tangents``: the positions of the results whose gradients it takes, and whether it takes them contiguous;
    ``in_layout(x, k)``: the gradient number k as it takes it; ``deterministic``: whether the graph serves deterministic
    algorithms too; ``original``: AOTAutograd's."""

    def backward(ctx: Any, *flat: Any) -> Any:
        program = run()
        if program is None or torch.is_grad_enabled() or in_transform() or len(flat) != 1 or type(flat[0]) is not list:
            return original(ctx, *flat)
        if not deterministic and torch.are_deterministic_algorithms_enabled():
            return original(ctx, *flat)
        (gradients,) = flat
        args = [*ctx.symints, *ctx.saved_tensors]
        for k, (position, contiguous) in enumerate(tangents):
            x = gradients[position]
            args.append(x if contiguous and type(x) is torch.Tensor and x.is_contiguous() else in_layout(x, k))
        x = None  # the graph frees what it has read
        gradients.clear()
        ctx.maybe_clear_saved_tensors()
        return tuple(in_context_of_backward(program, args))

    return backward


def called_plainly(
    run: Run,
    original: Callable[[list[Any]], Any],
    differentiated: bool,
    mark_results: Callable[[Any], None] | None,
) -> Callable[[list[Any]], Any]:
    """What AOTAutograd puts around a plain graph or its autograd function, which is ``run``. ``differentiated``: it is
    the function. ``mark_results`` gets the results. ``original``: AOTAutograd's, for the first call, and where the call
    is made in another mode."""
    is_first = True

    def with_gradients(args: list[Any]) -> Any:
        nonlocal is_first
        if is_first or not torch.is_grad_enabled() or is_profiling():
            is_first = False
            return original(args)
        found = run(args)
        results = list(found) if isinstance(found, tuple | list) else [found]
        if mark_results is not None:
            mark_results(results)
        return results

    def without(args: list[Any]) -> Any:
        nonlocal is_first
        if is_first or is_profiling():
            is_first = False
            return original(args)
        if torch.is_grad_enabled():
            set_grad_enabled(False)
            try:
                results = list(run(args))
            finally:
                set_grad_enabled(True)
        else:
            results = list(run(args))
        if mark_results is not None:
            mark_results(results)
        return results

    return with_gradients if differentiated else without
