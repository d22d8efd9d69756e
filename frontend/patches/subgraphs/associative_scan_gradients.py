"""Gradients of ``associative_scan``, computed step by step in a ``scan`` in reverse order.

Let y[t] = f(y[t-1], x[t]), and G[t] be the total gradient of y[t]. Differentiating f at step t maps G[t] to the
gradient of x[t] and to a contribution to G[t-1], to which the caller's gradient of y[t-1] is added; the gradient of
x[0] is G[0]. Memory is linear in the length. PyTorch's own rule multiplies a matrix of all pairs of steps, is correct
only if f has one operand, and gives no gradients for what f closes over.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch._higher_order_ops.associative_scan import associative_scan_op
from torch._higher_order_ops.scan import scan_op
from torch._higher_order_ops.utils import (
    materialize_as_graph,
    save_values_for_backward,
    saved_values,
    split_into_chunks,
)

from symshape.frontend.patches.patch import Changes

Tensor = torch.Tensor


def gradients_step_by_step(changes: Changes) -> None:
    """Registers ``_AssociativeScan`` as the operator's autograd kernel."""
    table, cached = associative_scan_op.py_kernels, associative_scan_op._dispatch_cache
    key = torch._C.DispatchKey.Autograd
    keys = (key, torch._C.DispatchKey.AutogradCPU, torch._C.DispatchKey.AutogradCUDA)

    def forget() -> None:
        for one in keys:
            cached.pop(one, None)

    changes.callback(forget)
    changes.items(table, {key: _differentiated})
    forget()


def _differentiated(combine: Any, xs: Sequence[Tensor], additional: Sequence[Any]) -> Any:
    if not torch.is_grad_enabled() or not any(
        isinstance(one, Tensor) and one.requires_grad for one in (*xs, *additional)
    ):
        with torch._C._AutoDispatchBelowAutograd():
            return associative_scan_op(combine, xs, additional)
    found: Any = _AssociativeScan.apply(combine, len(xs), *xs, *additional)
    return found


class _AssociativeScan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, combine: Any, count: int, *operands: Any) -> Any:
        ctx.combine, ctx.count = combine, count
        ctx.included, ctx.excluded = (
            torch._C._dispatch_tls_local_include_set(),
            torch._C._dispatch_tls_local_exclude_set(),
        )
        with torch._C._AutoDispatchBelowAutograd():
            results = associative_scan_op(combine, operands[:count], operands[count:])
        ctx.mark_non_differentiable(*(one for one in results if not _has_gradient(one)))
        save_values_for_backward(ctx, [*operands, *results])
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        count = ctx.count
        saved = saved_values(ctx)
        xs, additional, ys = split_into_chunks(saved, [count, len(saved) - 2 * count, count])
        carried = [i for i, x in enumerate(xs) if _has_gradient(x)]
        closed = [i for i, one in enumerate(additional) if isinstance(one, Tensor) and _has_gradient(one)]
        step = _Step(ctx.combine, count, len(additional), carried, closed)
        given = [torch.zeros_like(xs[i]) if gradients[i] is None else gradients[i] for i in carried]
        start = [torch.zeros_like(xs[i].select(0, 0)) for i in carried] + [
            torch.zeros_like(additional[i]) for i in closed
        ]
        first = torch.arange(xs[0].shape[0], device=xs[0].device) == 0
        # The step at 0 has no previous result: what it reads there is not used.
        sliced = [torch.flip(one, (0,)) for one in (first, *given, *(y.roll(1, 0) for y in ys), *xs)]
        samples = (*start, *(torch.select_copy(one, 0, 0) for one in sliced), *additional)
        body = materialize_as_graph(step, samples, ctx.included, ctx.excluded, force_enable_grad=True)
        found = scan_op(body, start, sliced, additional)
        of_closed, of_xs = found[len(carried) : len(start)], found[len(start) :]
        results: list[Any] = [None] * (count + len(additional))
        for i, one in zip(carried, of_xs, strict=True):
            results[i] = torch.flip(one, (0,))
        for i, one in zip(closed, of_closed, strict=True):
            results[count + i] = one
        return None, None, *results


class _Step:
    """One step of backward, as the function of a ``scan``.

    It carries the gradient of the previous result and the sums of gradients of captured tensors. Its slices are:
    whether this is forward's first step, the caller's gradient of its result, the previous result, and the element.
    ``carried`` and ``closed`` are the positions of operands and captured tensors that have gradients."""

    def __init__(self, combine: Any, count: int, additional: int, carried: list[int], closed: list[int]) -> None:
        self.combine, self.count, self.additional, self.carried, self.closed = (
            combine,
            count,
            additional,
            carried,
            closed,
        )

    def __call__(self, *arguments: Any) -> list[Any]:
        kept, count = len(self.carried), self.count
        sizes = [kept, len(self.closed), 1, kept, count, count, self.additional]
        later, totals, (first,), given, before, element, additional = split_into_chunks(arguments, sizes)
        gradients = [a + b for a, b in zip(given, later)]
        found = self._differentiate([*before, *element, *additional], gradients)
        of_before, of_element, of_additional = split_into_chunks(found, [count, count, self.additional])
        next_later = [of_before[i] for i in self.carried]
        added = [torch.where(first, 0, of_additional[i]) for i in self.closed]
        next_totals = [a + b for a, b in zip(totals, added, strict=True)]
        of_x = [torch.where(first, g, of_element[i]) for i, g in zip(self.carried, gradients, strict=True)]
        return list(itertools.chain(next_later, next_totals, of_x))

    def _differentiate(self, operands: Sequence[Any], gradients: Sequence[Tensor]) -> list[Any]:
        """Gradients of the operands: zeros if none flows, None for operands without gradients."""
        count = self.count
        wanted = [*self.carried, *(count + i for i in self.carried), *(2 * count + i for i in self.closed)]
        given = list(operands)
        for i in wanted:
            given[i] = given[i].detach().requires_grad_()
        results = self.combine(*given)
        flowing = [(results[i], g) for i, g in zip(self.carried, gradients, strict=True) if results[i].requires_grad]
        sources = [given[i] for i in wanted]
        found = torch.autograd.grad([y for y, _ in flowing], sources, [g for _, g in flowing], allow_unused=True)
        all_: list[Any] = [None] * len(operands)
        for i, one in zip(wanted, found, strict=True):
            all_[i] = torch.zeros_like(operands[i]) if one is None else one
        return all_


def _has_gradient(x: Tensor) -> bool:
    return x.dtype.is_floating_point or x.dtype.is_complex
