"""Traces the gradients and sizes of some operators with functions of ``frontend/decompositions``.

Tracing differentiates an operator by its ``py_kernels`` at the autograd keys, and finds sizes by
``decomposition_table``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._ops import OpOverload
from torch._subclasses import fake_impls

from symshape.frontend.bridge.decomposition_tables import inductor_table
from symshape.frontend.bridge.operators import AutogradKernel, in_transform
from symshape.frontend.decompositions.batch_norm_sizes import functional_sizes, inference_sizes, training_sizes
from symshape.frontend.decompositions.broadcasting import broadcasting_kernels, transformed_kernels
from symshape.frontend.decompositions.data_dependent import gradient_kernels, logsumexp_sizes, size_kernels
from symshape.frontend.decompositions.margin_losses import margin_loss_kernels
from symshape.frontend.decompositions.padding import cloned_sizes, constant_pad_sizes
from symshape.frontend.decompositions.result_types import with_eager_types
from symshape.frontend.decompositions.softmax import log_softmax_of_empty_dims, softmax_of_empty_dims
from symshape.frontend.patches.patch import Changes
from symshape.frontend.patches.probes import Exists, Says, Takes

aten: Any = torch.ops.aten
_AUTOGRAD = (torch._C.DispatchKey.AutogradCPU, torch._C.DispatchKey.AutogradCUDA)
_LEVEL = torch._C.DispatchKey.FuncTorchDynamicLayerFrontMode
_DIFFERENTIATING = (*_AUTOGRAD, _LEVEL)


def sizes_of_composites(changes: Changes) -> None:
    """While Dynamo traces: decomposes composite operators whose C++ asks for sizes."""
    differentiate_by(changes, size_kernels())


def gradients_of_unknown_sizes(changes: Changes) -> None:
    """While AOTAutograd traces: differentiates these operators without asking for unbacked sizes, and some that PyTorch
    has no rule for."""
    differentiate_by(changes, gradient_kernels())


def margin_losses(changes: Changes) -> None:
    """Ignores targets after the first -1."""
    differentiate_by(changes, margin_loss_kernels())


def gradients_of_broadcasts(changes: Changes) -> None:
    """Expands operands that may be broadcast before they are differentiated, so that their gradients are summed."""
    differentiate_by(changes, broadcasting_kernels())


def broadcasts_in_transforms(changes: Changes) -> None:
    """Expands such operands inside of transforms of ``torch.func`` too, which differentiate while Dynamo traces."""
    transform_by(changes, transformed_kernels())


def transform_by(changes: Changes, kernels: Mapping[Any, AutogradKernel]) -> None:
    """Makes transforms of ``torch.func`` call ``kernel(original, *args, **kwargs)`` for these operators.

    To call a Python kernel, PyTorch reads the value of a number that C++ passes as a tensor; a number wrapped by a
    level of a transform has no memory to read. Kernels of operators that may get a number therefore run before a level
    wraps their operands, and not at the autograd keys where it may be wrapped.
    """
    changed = [op for op in kernels if _may_have_numbers(op)]
    differentiate_by(changes, {op: kernel for op, kernel in kernels.items() if op not in changed})

    def remove() -> None:
        for op in changed:
            _remove(op, _LEVEL)

    changes.callback(remove)
    for op in changed:
        op.py_kernels[_LEVEL] = functools.partial(kernels[op], functools.partial(op._op_dk, _LEVEL))
        op._dispatch_cache.pop(_LEVEL, None)
    changes.wrap(OpOverload, "_get_dispatch", functools.partial(_where_numbers_have_memory, frozenset(changed)))


def _where_numbers_have_memory(ops: frozenset[Any], original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Wraps ``_get_dispatch``, which each call of ``ops`` then asks, to hide our kernels from wrapped numbers."""

    @functools.wraps(original)
    def _get_dispatch(self: Any, key: Any) -> Any:
        if key not in _DIFFERENTIATING or self not in ops:
            return original(self, key)
        ours = self.py_kernels.pop(key, None) if _may_be_wrapped(key) else None
        try:
            return original(self, key)
        finally:
            self._dispatch_cache.pop(key, None)
            if ours is not None:
                self.py_kernels[key] = ours

    return _get_dispatch


def _may_have_numbers(op: Any) -> bool:
    """Whether an operator may be called with a number in place of a tensor: only if it has several tensor operands."""
    return sum(str(argument.type) == "Tensor" for argument in op._schema.arguments) > 1


def _may_be_wrapped(key: Any) -> bool:
    """Whether a number may be wrapped by a level that differentiates, which keeps the wrapper for its backward. All
    operands are expanded already there."""
    if key == _LEVEL:
        return bool(torch._C._current_graph_task_id() != -1)
    return in_transform()


def differentiate_by(changes: Changes, kernels: Mapping[Any, AutogradKernel]) -> None:
    """Makes tracing differentiate these operators by ``kernel(original, *args, **kwargs)``."""
    changed = [(op, key) for op in kernels for key in _AUTOGRAD if key not in op.py_kernels]

    def add(op: Any, key: Any) -> None:
        op.py_kernels[key] = functools.partial(kernels[op], functools.partial(original, op, key))
        op._dispatch_cache.pop(key, None)

    def original(op: Any, key: Any, *args: Any, **kwargs: Any) -> Any:
        """Redispatches from the top: below this key nothing would be differentiated."""
        _remove(op, key)
        try:
            return op(*args, **kwargs)
        finally:
            add(op, key)

    def remove() -> None:
        for op, key in changed:
            _remove(op, key)

    changes.callback(remove)
    for op, key in changed:
        add(op, key)


def _remove(op: Any, key: Any) -> None:
    op.py_kernels.pop(key, None)
    op._dispatch_cache.pop(key, None)


LEVEL_PROBES = (
    Exists("torch._C.DispatchKey.FuncTorchDynamicLayerFrontMode"),
    Exists("torch._C._functorch.peek_interpreter_stack"),
    Exists("torch._C._current_graph_task_id"),
)
KERNEL_PROBES = (
    Exists("torch.ops.aten.mm.default.py_kernels", "dict"),
    Exists("torch.ops.aten.mm.default._dispatch_cache", "dict"),
    Takes("torch._ops.OpOverload._get_dispatch", "self, key"),
    Says("torch._ops.OpOverload._get_dispatch", "py_kernels"),
    Says("torch._ops.OpOverload._get_dispatch", "_dispatch_cache"),
    Exists("torch._C.DispatchKey.AutogradCPU"),
    Exists("torch._C.DispatchKey.AutogradCUDA"),
)


def kernel_targets(kernels: Callable[[], Mapping[Any, AutogradKernel]]) -> Callable[[], list[str]]:
    """Names of the tables that ``differentiate_by`` changes."""
    return lambda: [f"torch.ops.{op}.py_kernels" for op in kernels()]


def transform_targets(kernels: Callable[[], Mapping[Any, AutogradKernel]]) -> Callable[[], list[str]]:
    """Names of what ``transform_by`` changes."""
    return lambda: [*kernel_targets(kernels)(), "torch._ops.OpOverload._get_dispatch"]


def sizes_of_logsumexp(changes: Changes) -> None:
    """Traces sizes of ``logsumexp`` without asking whether there are elements."""
    trace_sizes_by(changes, {aten.logsumexp.default: logsumexp_sizes})


def sizes_of_softmax(changes: Changes) -> None:
    """Traces sizes of ``softmax`` without asking whether there are elements."""
    trace_sizes_by(
        changes,
        {aten._softmax.default: softmax_of_empty_dims, aten._log_softmax.default: log_softmax_of_empty_dims},
    )


def sizes_of_batch_norms(changes: Changes) -> None:
    """Traces sizes of batch norms without running the decompositions."""
    trace_sizes_by(changes, _BATCH_NORMS)


def batch_norm_targets() -> list[str]:
    """The entries that ``sizes_of_batch_norms`` replaces."""
    return [f"torch._decomp.decomposition_table[{op}]" for op in _BATCH_NORMS]


_BATCH_NORMS: Mapping[Any, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    aten._native_batch_norm_legit_no_training.default: inference_sizes,
    aten._native_batch_norm_legit.default: training_sizes,
    aten._native_batch_norm_legit_functional.default: functional_sizes,
}


def layouts_of_paddings(changes: Changes) -> None:
    """Traces paddings whose amounts may be 0. Replaces the decomposition and the fake rule."""
    trace_sizes_by(changes, {aten.constant_pad_nd.default: constant_pad_sizes})
    rules: Any = fake_impls.op_implementations_dict
    changes.items(rules, {aten.constant_pad_nd.default: lambda _mode, _op, x, pad, value=0: cloned_sizes(x, pad)})


def types_of_results(changes: Changes) -> None:
    """Gives results the types that eager mode gives them."""
    trace_sizes_by(changes, with_eager_types())


def trace_sizes_by(changes: Changes, wraps: Mapping[Any, Callable[[Callable[..., Any]], Callable[..., Any]]]) -> None:
    """Wraps the decompositions by which results of these operators are traced, if they have one.

    Inductor's table copies from the same table when it is imported. It is imported first, unpatched, since our rules
    only need to give the right sizes, not values.
    """
    inductor_table()
    table: Any = decomposition_table
    changes.items(table, {op: wrap(table[op]) for op, wrap in wraps.items() if op in table})


def type_targets() -> list[str]:
    """The entries that ``types_of_results`` replaces."""
    return [f"torch._decomp.decomposition_table[{op}]" for op in with_eager_types()]


TYPE_PROBES = tuple(
    Takes(f"torch._decomp.decomposition_table[{op}]", parameters)
    for op, parameters in {
        "aten.block_diag.default": "tensors, out",
        "aten.addr.default": "self, vec1, vec2, beta, alpha, out",
        "aten.index_add.default": "x, dim, index, tensor, alpha, out",
        "aten.threshold_backward.default": "grad_output, self, threshold, grad_input",
        "aten.native_dropout_backward.default": "grad_output, mask, scale, out",
        "aten.huber_loss.default": "input, target, reduction, delta, out",
        "aten.mish_backward.default": "grad_output, input",
        "aten.mse_loss_backward.default": "grad_output, input, target, reduction, grad_input",
        "aten.smooth_l1_loss_backward.default": "grad_output, self, target, reduction, beta",
    }.items()
)
