"""Batching rules in Python: an operator in a ``vmap`` gets tensors with the batch as dim 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree


class NoRule(Exception):
    """Raised by a rule that does not support its arguments: PyTorch's own rule is used."""


class Batch:
    """The batch of the innermost ``vmap`` at one call: how many there are, and which tensors have it as dim 0."""

    def __init__(self, size: Any, tensors: list[torch.Tensor]) -> None:
        self.size = size
        self._tensors = tensors

    def has(self, x: Any) -> bool:
        """Whether a tensor has the batch as dim 0."""
        return any(one is x for one in self._tensors)

    def rank(self, x: torch.Tensor) -> int:
        """The number of dims of each in the batch."""
        return x.dim() - self.has(x)

    def full(self, x: torch.Tensor) -> torch.Tensor:
        """A tensor with the batch as dim 0; one without a batch is expanded."""
        return x if self.has(x) else x.expand(self.size, *x.shape)


def batching_kernel(op: Any, rule: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel that runs ``rule(batch, *args, **kwargs)`` for an operator in a ``vmap``. The rule gets batched tensors
    with the batch as dim 0, others as they are, and returns results with the batch as dim 0."""
    from torch._functorch.pyfunctorch import retrieve_current_functorch_interpreter

    def kernel(*args: Any, **kwargs: Any) -> Any:
        interpreter: Any = retrieve_current_functorch_interpreter()
        level, batched = interpreter.level(), list[torch.Tensor]()

        def unwrapped(x: Any) -> Any:
            if not isinstance(x, torch.Tensor):
                return x
            value, dim = torch._C._functorch._unwrap_batched(x, level)
            if dim is not None:
                value = value.movedim(dim, 0) if dim else value
                batched.append(value)
            return value

        with _below():
            plain_args, plain_kwargs = pytree.tree_map(unwrapped, (args, kwargs))
            if not batched:
                return op(*plain_args, **plain_kwargs)
            try:
                result = rule(Batch(interpreter.batch_size(), batched), *plain_args, **plain_kwargs)
            except NoRule:
                result = NoRule
        if result is NoRule:
            return original(*args, **kwargs)
        if op._schema.is_mutable:
            return args[0]
        return pytree.tree_map_only(torch.Tensor, lambda x: torch._C._functorch._add_batch_dim(x, 0, level), result)

    def original(*args: Any, **kwargs: Any) -> Any:
        return op._op_dk(BATCHED, *args, **kwargs)

    return kernel


def kernel_above_layers(op: Any, rule: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel that runs ``rule(*args, **kwargs)`` for an operator that PyTorch takes apart before the layers of
    ``torch.func`` see it."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        try:
            return rule(*args, **kwargs)
        except NoRule:
            return op._op_dk(ABOVE_LAYERS, *args, **kwargs)

    return kernel


def _below() -> Any:
    """While entered, the dispatch key of ``vmap`` is excluded: operators run on the tensors inside of the batched
    ones."""
    return torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(BATCHED))


BATCHED: Any = torch._C.DispatchKey.FuncTorchBatched
ABOVE_LAYERS: Any = torch._C.DispatchKey.FuncTorchDynamicLayerFrontMode
