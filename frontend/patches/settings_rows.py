"""Settings of PyTorch while Dynamo traces a frame, or `symshape.jit` a function. Set again in each scope."""

from __future__ import annotations

from symshape.frontend.patches.patch import Patch, Scope
from symshape.frontend.patches.settings import DYNAMO, FX, setting


def _by_our_rules(scope: Scope) -> bool:
    """Not where plain ``torch.compile`` traces a frame by PyTorch's own rules, since one of ours has failed."""
    return not (scope.plain and scope.only_settings)


def _of_symshape_compile(scope: Scope) -> bool:
    """Not where the user's ``dynamic=`` says it."""
    return not scope.plain


ROWS: tuple[Patch, ...] = (
    setting(
        FX,
        "use_duck_shape",
        False,
        ("frame",),
        "two sizes that happen to be equal at the first call would become one symbol, and a guard on their equality",
    ),
    setting(
        DYNAMO,
        "assume_static_by_default",
        False,
        ("frame",),
        "dynamic sizes; `dynamic=True` sets and reverts it at every call, which takes 5 us",
        when=_of_symshape_compile,
    ),
    setting(DYNAMO, "capture_scalar_outputs", True, ("frame",), "item() would break the graph", when=_by_our_rules),
    setting(
        DYNAMO,
        "capture_dynamic_output_shape_ops",
        True,
        ("frame",),
        "nonzero() and the like would break the graph; in a loop, the function would not be compiled",
        when=_by_our_rules,
    ),
    setting(
        DYNAMO,
        "use_numpy_random_stream",
        True,
        ("frame",),
        "numpy.random would draw from PyTorch's generator",
        when=_by_our_rules,
    ),
    setting(
        DYNAMO,
        "allow_rnn",
        True,
        ("frame",),
        "recurrent layers would break the graph; they are calls (recurrent.py)",
        when=_by_our_rules,
    ),
    setting(
        DYNAMO,
        "trace_autograd_ops",
        True,
        ("frame",),
        "torch.autograd.grad would break the graph, and then not find a tensor that became a leaf before the break",
        when=_by_our_rules,
    ),
)
