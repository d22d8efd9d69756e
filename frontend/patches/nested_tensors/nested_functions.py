"""Rules for functions of nested tensors that PyTorch lacks. They are applied at ``__torch_function__``, above autograd,
so that autograd differentiates them."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch._subclasses import fake_impls
from torch.nested._internal import ops

from symshape.frontend.decompositions.nested_functions import by_rule
from symshape.frontend.patches.patch import Changes


def nested_functions_have_rules(changes: Changes) -> None:
    """Tries the rules of ``frontend/decompositions/nested_functions.py`` before PyTorch's."""
    changes.wrap(ops, "jagged_torch_function", _by_rule_first)


def totals_may_be_zero(changes: Changes) -> None:
    """Takes the number of values that is given for the size of the result, whatever it is."""
    rules: Any = fake_impls.op_implementations_dict
    op: Any = torch.ops.aten._padded_dense_to_jagged_forward.default
    changes.items(rules, {op: _of_given_total(rules[op])})


@functools.cache
def _of_given_total(original: Any) -> Any:
    @functools.wraps(original)
    def sizes(mode: Any, op: Any, padded: Any, offsets: Any, total: Any = None) -> Any:
        if total is None or len(offsets) != 1:
            return original(mode, op, padded, offsets, total)
        return padded.new_empty([total, *padded.shape[2:]])

    return sizes


def _by_rule_first(original: Any) -> Any:
    @functools.wraps(original)
    def function(func: Any, *args: Any, **kwargs: Any) -> Any:
        found = by_rule(getattr(func, "__name__", ""), args, kwargs)
        return original(func, *args, **kwargs) if found is NotImplemented else found

    return function
