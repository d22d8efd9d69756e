"""Functions of ``torch.nn.utils.rnn`` that Dynamo skips: it has no rules for the operators that they call, which
``frontend/decompositions/packed_rows.py`` has."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch._dynamo import trace_rules
from torch._dynamo.variables import UserFunctionVariable
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from symshape.frontend.patches.patch import Changes
from symshape.frontend.patches.probes import Named


def packed_rows_are_traced(changes: Changes) -> None:
    """Like functions of the user's; to pad is one of ours."""
    rules = trace_rules.get_torch_obj_rule_map()
    changes.items(rules, {pack_padded_sequence: UserFunctionVariable, pad_packed_sequence: _PadPacked})


class _PadPacked(UserFunctionVariable):
    def call_function(self, tx: Any, args: Any, kwargs: Any) -> Any:
        ours: Any = _pad_packed_sequence
        return UserFunctionVariable(ours).call_function(tx, args, kwargs)


def lengths_are_asserted(changes: Changes) -> None:
    """Also where no Dynamo traces. Programs import the function by its name: it is its code that changes."""
    changes.callback(setattr, pad_packed_sequence, "__code__", pad_packed_sequence.__code__)
    pad_packed_sequence.__code__ = _pad_packed_sequence.__code__


def _pad_packed_sequence(
    sequence: Any, batch_first: bool = False, padding_value: float = 0.0, total_length: Any = None
) -> Any:
    """Whether the rows fit into ``total_length`` is checked at call time. The names are those that the module of
    PyTorch's function has, too."""
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


# Entries of a table that a function returns.
PACKED_ROWS = tuple(
    Named(f"torch._dynamo.trace_rules.get_torch_obj_rule_map()[{one.__name__}]", functools.partial(_rule, one))
    for one in (pack_padded_sequence, pad_packed_sequence)
)

PADDING = Named(
    "torch.nn.utils.rnn.pad_packed_sequence.__code__", lambda: getattr(pad_packed_sequence, "__code__", None)
)
