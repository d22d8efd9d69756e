"""``torch.func.linearize``, traced as the function and its directional derivative.

PyTorch traces the derivative with ``make_fx`` into a module that Dynamo sees for the first time at each call: it breaks
the graph, and compiles that module again. Here ``jvp`` computes the derivative at the same point. What it computes of
the function's values again is a common subexpression. PyTorch's derivative has a gradient for the tangents alone, since
the module holds the function's values as constants; where ``jvp`` would have one for others too, PyTorch's is traced.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo import trace_rules
from torch._dynamo.variables import UserFunctionVariable
from torch.utils._pytree import tree_flatten, tree_leaves

from symshape.frontend.patches.patch import Changes
from symshape.frontend.patches.probes import Named


def linearizations_are_traced(changes: Changes) -> None:
    """Traces ``torch.func.linearize`` as our version of it."""
    changes.items(trace_rules.get_torch_obj_rule_map(), {torch.func.linearize: _Linearize})


# Without an entry in Dynamo's table, so that it is traced as it is.
_usual: Any = types.FunctionType(torch.func.linearize.__code__, torch.func.linearize.__globals__)


class _Linearize(UserFunctionVariable):
    def call_function(self, tx: Any, args: Any, kwargs: Any) -> Any:
        ours: Any = _linearize
        return UserFunctionVariable(ours).call_function(tx, args, kwargs)


def _linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """The value of ``func`` at ``primals``, and the function that takes tangents to its directional derivative there. A
    function that draws numbers draws again for each derivative, where PyTorch draws once for all. RuntimeError, with
    PyTorch's words, of tangents that do not fit."""
    flat_primals, structure = tree_flatten(primals)
    if _differentiable(flat_primals):
        return _usual(func, *primals)
    output = func(*primals)
    if _differentiable(tree_leaves(output)):
        return _usual(func, *primals)

    def jvp_fn(*tangents: Any) -> Any:
        flat_tangents, given = tree_flatten(tangents)
        if given != structure:
            raise RuntimeError(f"Expected the tangents {given} to have the same argspec as the primals {structure}")
        for i, (tangent, primal) in enumerate(zip(flat_tangents, flat_primals)):
            for what in ("shape", "device", "dtype"):
                found, wanted = getattr(tangent, what), getattr(primal, what)
                if found != wanted:
                    raise RuntimeError(
                        f"tangent:{i} with {what} {found} in flattened pytree doesn't match the {what} {wanted} of the "
                        "corresponding primal."
                    )
        return torch.func.jvp(func, primals, tangents)[1]

    return output, jvp_fn


def _differentiable(values: Sequence[Any]) -> bool:
    return torch.is_grad_enabled() and any(isinstance(one, torch.Tensor) and one.requires_grad for one in values)


def _rule(function: Any) -> Any:
    return trace_rules.get_torch_obj_rule_map().get(function)


# The entry of Dynamo's rule table.
LINEARIZE = Named(
    "torch._dynamo.trace_rules.get_torch_obj_rule_map()[linearize]", functools.partial(_rule, torch.func.linearize)
)
