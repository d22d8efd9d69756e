"""Settings of PyTorch while Dynamo traces a frame, or `symshape.jit` a function. Set again in each scope."""

from __future__ import annotations

from symshape.frontend.patches.patch import Patch
from symshape.frontend.patches.settings import DYNAMO, FX, setting

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
    ),
    setting(DYNAMO, "capture_scalar_outputs", True, ("frame",), "item() would break the graph"),
    setting(
        DYNAMO, "capture_dynamic_output_shape_ops", True, ("frame",), "nonzero() and the like would break the graph"
    ),
    setting(DYNAMO, "use_numpy_random_stream", True, ("frame",), "numpy.random would draw from PyTorch's generator"),
    setting(
        DYNAMO, "allow_rnn", True, ("frame",), "recurrent layers would break the graph; they are calls (recurrent.py)"
    ),
    setting(
        DYNAMO,
        "trace_autograd_ops",
        True,
        ("frame",),
        "torch.autograd.grad would break the graph, and then not find a tensor that became a leaf before the break",
    ),
)
