"""Functions of ``torch.nn.utils.rnn`` that Dynamo skips, because it lacks rules for the operators that they call;
``frontend/decompositions/packed_sequences.py`` has these rules."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch._dynamo import trace_rules
from torch._dynamo.variables import UserFunctionVariable
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from symshape.frontend.patches.patch import Changes
from symshape.frontend.patches.probes import Named


def packed_sequences_are_traced(changes: Changes) -> None:
    """Traces the functions like user code; ``pad_packed_sequence`` as our version of it."""
    rules = trace_rules.get_torch_obj_rule_map()
    changes.items(rules, {pack_padded_sequence: UserFunctionVariable, pad_packed_sequence: _PadPacked})


class _PadPacked(UserFunctionVariable):
    def call_function(self, tx: Any, args: Any, kwargs: Any) -> Any:
        ours: Any = _pad_packed_sequence
        return UserFunctionVariable(ours).call_function(tx, args, kwargs)


def lengths_are_asserted(changes: Changes) -> None:
    """For `symshape.jit`. Replaces the function's code object, because programs import the function by name."""
    changes.callback(setattr, pad_packed_sequence, "__code__", pad_packed_sequence.__code__)
    pad_packed_sequence.__code__ = _pad_packed_sequence.__code__


def _pad_packed_sequence(
    sequence: Any, batch_first: bool = False, padding_value: float = 0.0, total_length: Any = None
) -> Any:
    """PyTorch's function, but it checks at call time whether the rows fit into ``total_length``. May only use globals
    that PyTorch's module defines too, since its code runs there."""
    steps = sequence.batch_sizes.size(0)
    if total_length is not None:
        torch._check_value(
            total_length >= steps, lambda: "Expected total_length to be at least the length of the longest sequence"
        )
    padded, lengths = torch._VF._pad_packed_sequence(  # type: ignore[attr-defined]
        sequence.data, sequence.batch_sizes, batch_first, padding_value, steps if total_length is None else total_length
    )
    order = sequence.unsorted_indices
    if order is None:
        return padded, lengths
    return padded.index_select(0 if batch_first else 1, order), lengths[order.cpu()]


def _rule(function: Any) -> Any:
    return trace_rules.get_torch_obj_rule_map().get(function)


# The entries of Dynamo's rule table for these functions.
PACKED_SEQUENCES = tuple(
    Named(f"torch._dynamo.trace_rules.get_torch_obj_rule_map()[{one.__name__}]", functools.partial(_rule, one))
    for one in (pack_padded_sequence, pad_packed_sequence)
)

PADDING = Named(
    "torch.nn.utils.rnn.pad_packed_sequence.__code__", lambda: getattr(pad_packed_sequence, "__code__", None)
)
