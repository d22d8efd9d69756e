"""Views that custom autograd functions return keep the gradient of their function, and views with hooks their hooks.

AOTAutograd creates an output that shares memory with an input, or with another output, again outside of the compiled
graph, as a view of that memory. The view has the gradient of a view: a function between the two, which reverses, scales
or clips the gradient, is lost, and so is a hook. ``def f(x): h = x * 2; return h, Reverse.apply(h)`` trains in the
wrong direction. PyTorch keeps the function only where an output is its result itself and a view of an input. In the
same way, a view made under ``no_grad`` gets a gradient.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import torch

from symshape.frontend.bridge.fake_tensors import storage_of
from symshape.frontend.patches.patch import Changes


def custom_views_keep_their_gradient(changes: Changes) -> None:
    """Makes such outputs results of the graph, whose gradient the graph has."""
    from torch._functorch import aot_autograd

    changes.wrap(aot_autograd, "create_functional_call", _with_own_results)
    changes.wrap(torch.Tensor, "register_hook", _noting)


# The autograd nodes of the tensors that get a hook while a graph's function runs.
_HOOKED: ContextVar[list[Any] | None] = ContextVar("symshape_hooked", default=None)


@functools.cache
def _noting(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def register_hook(self: torch.Tensor, hook: Any) -> Any:
        handle, hooked = original(self, hook), _HOOKED.get()
        if hooked is not None:
            hooked.append(self.grad_fn)
        return handle

    return register_hook


@functools.cache
def _with_own_results(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def create_functional_call(*how: Any, **options: Any) -> Any:
        call = original(*how, **options)

        @functools.wraps(call)
        def functional_call(*args: Any, **kwargs: Any) -> Any:
            token, with_gradients = _HOOKED.set([]), torch.is_grad_enabled()
            try:
                results = call(*args, **kwargs)
                if not isinstance(results, (tuple, list)):
                    return results
                # Where no gradients are wanted, AOTAutograd makes the views again without them.
                return _own(_without_lost_gradients(results, args) if with_gradients else results, args)
            finally:
                _HOOKED.reset(token)

        return functional_call

    return create_functional_call


def _without_lost_gradients(results: Sequence[Any], args: Sequence[Any]) -> Sequence[Any]:
    """The results, where a view that was made under ``no_grad`` has no gradient outside of the graph either."""
    given = {id(one) for one in args}
    return [one.detach() if id(one) not in given and _is_view_without_gradient(one) else one for one in results]


def _own(results: Sequence[Any], args: Sequence[Any]) -> Sequence[Any]:
    """The results. One with a custom function or a hook between it and the memory that it shares is in the same memory
    still: of an input, as a view that AOTAutograd keeps; of another result, as no view for autograd."""
    custom = [i for i, one in enumerate(results) if isinstance(one, torch.Tensor) and _is_more_than_a_view(one)]
    if not custom:
        return tuple(results)
    outside = {storage_of(one) for one in args if _has_memory(one)}
    sharing = Counter(storage_of(one) for one in {id(one): one for one in results}.values() if _has_memory(one))
    changed = list(results)
    for i in custom:
        memory = storage_of(results[i])
        if memory in outside:
            changed[i] = _Returned.apply(results[i])  # type: ignore[no-untyped-call]
        elif sharing[memory] > 1:
            changed[i] = torch.ops.aten._unsafe_view(results[i], results[i].shape)
    return tuple(changed)


def _has_memory(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided


def _is_view_without_gradient(value: Any) -> bool:
    """Whether a tensor is a view that was made under ``no_grad``: autograd says that it requires a gradient if what it
    is a view of does, and has no function for it."""
    return _has_memory(value) and value._is_view() and value.requires_grad and value.grad_fn is None


def _is_more_than_a_view(result: torch.Tensor) -> bool:
    """Whether a custom function, or one whose result has a hook, is among the functions that made a view of the tensor
    that it is a view of."""
    if not _has_memory(result) or not result.requires_grad or not result._is_view():
        return False
    node, begin = result.grad_fn, result._base.grad_fn if result._base is not None else None
    hooked = _HOOKED.get() or ()
    while node is not None and node is not begin and node.name() != "CopySlices":
        if isinstance(node, torch.autograd.function.BackwardCFunction) or type(node).__name__ == "CppFunction":
            return True
        if any(node is one for one in hooked):
            return True
        node = next((one for one, _ in node.next_functions if one is not None), None)
    return False


class _Returned(torch.autograd.Function):
    """A view of all of a tensor. AOTAutograd keeps the gradient of what a custom function returns."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0]
