"""Draws whose generators are operands of the graph (``functionalize_rng_ops``), a mode of AOTAutograd that is off."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._decomp.decompositions_for_rng import PhiloxState
from torch._functorch import config

from symshape.frontend.patches.patch import Changes

_NONE = torch.tensor(())  # what the state of no generator is


def unused_states_are_shared(changes: Changes) -> None:
    """Sets states of generators that nothing reads to one empty tensor. AOTAutograd sets them around each trace, inside
    of its modes: a dozen tensors, each of which is dispatched through functionalisation and the tracer."""
    changes.wrap(PhiloxState, "reset", _shared)


@functools.cache
def _shared(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def reset(self: Any) -> None:
        if config.functionalize_rng_ops:
            original(self)
            return
        self.seed = self.base_offset = _NONE
        self.relative_offset = 0
        self.offset_advanced_at_least_once = False

    return reset
