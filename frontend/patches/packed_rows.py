"""Functions of ``torch.nn.utils.rnn`` that Dynamo skips: it has no rules for the operators that they call, which
``frontend/decompositions/packed_rows.py`` has."""

from __future__ import annotations

import functools
from typing import Any

from torch._dynamo import trace_rules
from torch._dynamo.variables import UserFunctionVariable
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from symshape.frontend.patches.patch import Changes
from symshape.frontend.patches.probes import Named


def packed_rows_are_traced(changes: Changes) -> None:
    """Like functions of the user's."""
    rules = trace_rules.get_torch_obj_rule_map()
    changes.items(rules, dict.fromkeys((pack_padded_sequence, pad_packed_sequence), UserFunctionVariable))


def _rule(function: Any) -> Any:
    return trace_rules.get_torch_obj_rule_map().get(function)


# Entries of a table that a function returns.
PACKED_ROWS = tuple(
    Named(f"torch._dynamo.trace_rules.get_torch_obj_rule_map()[{one.__name__}]", functools.partial(_rule, one))
    for one in (pack_padded_sequence, pad_packed_sequence)
)
