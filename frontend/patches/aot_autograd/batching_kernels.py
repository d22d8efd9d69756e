"""Batching rules for operators whose sizes PyTorch's C++ makes constant inside of ``vmap``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import decomposition_table

from symshape.frontend.bridge.batches import ABOVE_LAYERS, BATCHED, batching_kernel, kernel_above_layers
from symshape.frontend.decompositions import batching_rules as rules
from symshape.frontend.patches.patch import Changes
from symshape.frontend.patches.probes import Exists, Takes


def rules_for_any_batch(changes: Changes) -> None:
    """Registers batching rules with which one graph serves all batch sizes."""
    kernels = {(op, key): kernel for (op, key), kernel in _kernels().items() if key not in op.py_kernels}

    def remove() -> None:
        for op, key in kernels:
            op.py_kernels.pop(key, None)
            op._dispatch_cache.pop(key, None)

    changes.callback(remove)
    for (op, key), kernel in kernels.items():
        op.py_kernels[key] = kernel
        op._dispatch_cache.pop(key, None)


@functools.cache
def _kernels() -> dict[tuple[Any, Any], Callable[..., Any]]:
    """(operator, dispatch key) -> kernel."""
    table: Any = decomposition_table
    composite = torch._C.DispatchKey.CompositeImplicitAutograd
    found = {op: rule for op, rule in table.items() if op in rules.TAKEN_APART or _has_no_rule(op)}
    found |= {op: functools.partial(op._op_dk, composite) for op in rules.COMPOSITE}
    found |= {op: batching_kernel(op, rule) for op, rule in rules.batching_rules().items()}
    above = {(op, ABOVE_LAYERS): kernel_above_layers(op, rule) for op, rule in rules.ABOVE_LAYERS.items()}
    return {(op, BATCHED): kernel for op, kernel in found.items()} | above


def _has_no_rule(op: Any) -> bool:
    """Whether PyTorch loops over the batch for an operator, for lack of a rule. False for random operators."""
    if not isinstance(op, torch._ops.OpOverload) or op.namespace != "aten" or op._schema.is_mutable:
        return False
    takes = [str(argument.type) for argument in op._schema.arguments]
    draws = torch.Tag.nondeterministic_seeded in op.tags
    keys = ("FuncTorchBatched", "FuncTorchBatchedDecomposition")
    has_rule = any(torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key) for key in keys)
    return any("Tensor" in one for one in takes) and not draws and not has_rule


def batching_targets() -> list[str]:
    """The tables that ``rules_for_any_batch`` writes to."""
    return [f"torch.ops.{op}.py_kernels" for op, _ in _kernels()]


PROBES = (
    Exists("torch._C.DispatchKey.FuncTorchBatched"),
    Exists("torch._C.DispatchKey.FuncTorchDynamicLayerFrontMode"),
    Exists("torch._C._functorch._unwrap_batched"),
    Exists("torch._C._functorch._add_batch_dim"),
    Exists("torch._C._ExcludeDispatchKeyGuard"),
    Takes("torch._functorch.pyfunctorch.retrieve_current_functorch_interpreter", ""),
    Takes("torch._functorch.pyfunctorch.VmapInterpreter.batch_size", "self"),
)
