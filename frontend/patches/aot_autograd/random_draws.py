"""Makes random operators draw the numbers of eager mode, and keeps all of them (``random_numbers``, ``draw_order``)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._C import DispatchKey
from torch._functorch import partitioners
from torch._subclasses.functional_tensor import FunctionalTensorMode
from torch.utils import checkpoint

from symshape.frontend.decompositions.random_numbers import drop_as_eager, fill_functionally
from symshape.frontend.graph_rewrites.draw_order import is_drawing_subgraph, reordered, with_states
from symshape.frontend.patches.patch import Changes
from symshape.runtime.draw import FILLING

_DROPOUT: Any = torch.ops.aten.dropout.default


def dropout_as_eager(changes: Changes) -> None:
    """Traces ``dropout`` on a CPU as the operators that eager mode runs there."""
    original = {key: _DROPOUT.py_kernels[key] for key in (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)}
    own = {key: functools.partial(drop_as_eager, kernel) for key, kernel in original.items()}
    changes.kernels(_DROPOUT, _DROPOUT.py_kernels, own)


def fills_as_eager(changes: Changes) -> None:
    """Traces in-place fills so that they draw in the order of the tensor's layout."""
    for op in FILLING:
        own = {FunctionalTensorMode: functools.partial(fill_functionally, op)}
        changes.kernels(op, op.python_key_table, own)


def fill_targets() -> list[str]:
    """Names of the tables that ``fills_as_eager`` changes."""
    return [f"torch.ops.{op}.python_key_table" for op in FILLING]


def draws_are_impure(changes: Changes) -> None:
    """Keeps dead code elimination from removing higher-order operators whose subgraphs draw."""
    changes.wrap(torch.fx.Node, "is_impure", _impure_where_drawing)


def _impure_where_drawing(original: Callable[..., bool]) -> Callable[..., bool]:
    def is_impure(self: torch.fx.Node, impure_random: bool = True) -> bool:
        return original(self, impure_random) or impure_random and is_drawing_subgraph(self)

    return is_impure


def backward_keeps_order(changes: Changes) -> None:
    """Replaces the partitioner's reordering of backward by one that keeps all random draws in order."""
    changes.wrap(
        partitioners, "reordering_to_mimic_autograd_engine", lambda original: lambda gm: reordered(gm, original)
    )


def states_have_values(changes: Changes) -> None:
    """Adds fake values to the calls that the partitioner inserts for random draws in a checkpoint."""
    changes.wrap(partitioners, "functionalize_rng_ops", lambda original: lambda *args: with_states(original, *args))


def conds_in_checkpoints(changes: Changes) -> None:
    """Marks a cond in a checkpoint for recomputation like other operators."""
    modes: Any = checkpoint._CachingTorchDispatchMode
    changes.attribute(modes, "supports_higher_order_operators", True)
