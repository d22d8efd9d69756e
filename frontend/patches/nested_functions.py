"""Rules for functions of nested tensors that PyTorch lacks. They are applied at ``__torch_function__``, above autograd,
so that autograd differentiates them."""

from __future__ import annotations

import functools
from typing import Any

from torch.nested._internal import ops

from symshape.frontend.decompositions.nested_functions import by_rule
from symshape.frontend.patches.patch import Changes


def nested_functions_have_rules(changes: Changes) -> None:
    """Tries the rules of ``frontend/decompositions/nested_functions.py`` before PyTorch's."""
    changes.wrap(ops, "jagged_torch_function", _by_rule_first)


def _by_rule_first(usual: Any) -> Any:
    @functools.wraps(usual)
    def function(func: Any, *args: Any, **kwargs: Any) -> Any:
        found = by_rule(getattr(func, "__name__", ""), args, kwargs)
        return usual(func, *args, **kwargs) if found is NotImplemented else found

    return function
