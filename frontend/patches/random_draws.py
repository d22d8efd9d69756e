"""Draws of random numbers as eager mode makes them, and all of them (``random_numbers``, ``draw_order``)."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch._C import DispatchKey
from torch._functorch import partitioners
from torch._subclasses.functional_tensor import FunctionalTensorMode
from torch.utils import checkpoint

from symshape.errors import CompileError
from symshape.frontend.bridge.source_lines import user_line_now
from symshape.frontend.decompositions.random_numbers import drop_as_eager, fill_functionally
from symshape.frontend.graph_rewrites.draw_order import is_drawing_subgraph, reordered, with_states
from symshape.frontend.patches.patch import Changes
from symshape.runtime.draw import FILLING

_DROPOUT: Any = torch.ops.aten.dropout.default


def dropout_as_eager(changes: Changes) -> None:
    """``dropout`` on a CPU is traced as what eager mode does there."""
    usual = {key: _DROPOUT.py_kernels[key] for key in (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)}
    changes.callback(_DROPOUT._dispatch_cache.clear)
    changes.items(_DROPOUT.py_kernels, {key: functools.partial(drop_as_eager, own) for key, own in usual.items()})
    _DROPOUT._dispatch_cache.clear()


def fills_as_eager(changes: Changes) -> None:
    """What fills a tensor in place draws for its layout."""
    for op in FILLING:
        changes.callback(op._dispatch_cache.clear)
        changes.items(op.python_key_table, {FunctionalTensorMode: functools.partial(fill_functionally, op)})
        op._dispatch_cache.clear()


def fill_targets() -> list[str]:
    """The tables that ``fills_as_eager`` writes to."""
    return [f"torch.ops.{op}.python_key_table" for op in FILLING]


def draws_are_impure(changes: Changes) -> None:
    """Dead code elimination keeps the higher-order operators whose subgraphs draw."""
    changes.wrap(torch.fx.Node, "is_impure", _impure_where_drawing)


def _impure_where_drawing(usual: Callable[..., bool]) -> Callable[..., bool]:
    def is_impure(self: torch.fx.Node, impure_random: bool = True) -> bool:
        return usual(self, impure_random) or impure_random and is_drawing_subgraph(self)

    return is_impure


def backward_keeps_order(changes: Changes) -> None:
    """The partitioner's reordering of backward keeps draws, in their order."""
    changes.wrap(partitioners, "reordering_to_mimic_autograd_engine", lambda usual: lambda gm: reordered(gm, usual))


def states_have_values(changes: Changes) -> None:
    """The calls that the partitioner writes for draws in a checkpoint say what they return."""
    changes.wrap(partitioners, "functionalize_rng_ops", lambda usual: lambda *args: with_states(usual, *args))


def conds_in_checkpoints(changes: Changes) -> None:
    """A cond in a checkpoint is marked like other operators."""
    modes: Any = checkpoint._CachingTorchDispatchMode
    changes.attribute(modes, "supports_higher_order_operators", True)


# Modules that put the generator back: a checkpoint's draws are the graph's, and Dynamo, which reads the functions of
# higher-order operators, runs none.
_THEIR_OWN = frozenset({"torch.utils.checkpoint", "torch._dynamo.convert_frame"})


def generator_is_not_asked(changes: Changes) -> None:
    """``torch.manual_seed``, ``torch.get_rng_state`` and their like are a CompileError at the user's line: traced
    without Dynamo, they would be run once, by the trace. A checkpoint may ask: its draws are the graph's."""
    changes.attribute(torch.random, "default_generator", _Generator(torch.random.default_generator))


class _Generator:
    """The generator, for other threads and for ``_THEIR_OWN``."""

    def __init__(self, usual: Any) -> None:
        self.__dict__.update(usual=usual, tracing=threading.get_ident())

    def __getattr__(self, name: str) -> Any:
        if threading.get_ident() != self.tracing:
            return getattr(self.usual, name)
        frame: Any = sys._getframe(1)
        while frame is not None:
            if frame.f_globals.get("__name__") in _THEIR_OWN:
                return getattr(self.usual, name)
            frame = frame.f_back
        raise CompileError(
            f"the function asks the generator of random numbers for `{name}`",
            where=user_line_now(),
            next_step="symshape.compile breaks the graph there; or do it outside of the function",
        )
