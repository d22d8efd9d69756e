"""Patches for tracing without Dynamo (``symshape.jit``).

Patched functions behave differently in the tracing thread only. Flags that PyTorch keeps per process are set for the
whole process.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo import eval_frame
from torch._functorch._aot_autograd import graph_compile
from torch._higher_order_ops.utils import _in_hop_compile
from torch.fx import _symbolic_trace
from torch.nn.modules import rnn, transformer

from symshape.frontend.patches.patch import Changes


def scalars_stay_numbers(changes: Changes) -> None:
    """Keeps AOTAutograd from turning Python scalars into tensors. That pass handles floats that Dynamo made symbols
    (here they are constants), and assumes that Dynamo made sizes arguments."""
    changes.wrap(graph_compile, "tensorify_python_scalars", _outside_of_this_thread)


def _outside_of_this_thread(original: Callable[..., None]) -> Callable[..., None]:
    tracing = threading.get_ident()

    def tensorify(graph: torch.fx.GraphModule, env: Any, mode: Any) -> None:
        if threading.get_ident() != tracing:
            original(graph, env, mode)

    return tensorify


def compiled_functions_are_inlined(changes: Changes) -> None:
    """Runs functions compiled by ``torch.compile`` uncompiled in the tracing thread, so that they become part of the
    trace; but not while Dynamo reads the body of a higher-order operator. ``torch.compiler.set_stance("force_eager")``
    would affect all threads."""
    changes.wrap(eval_frame, "_callback_from_stance", _no_callback)


def _no_callback(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    tracing = threading.get_ident()

    def callback(given: Any) -> Any:
        return None if threading.get_ident() == tracing and not _in_hop_compile() else original(given)

    return callback


def tensors_keep_their_class(changes: Changes) -> None:
    """Traces ``x.as_subclass(torch.Tensor)`` as an alias, as in ``torch/csrc/autograd/python_variable.cpp``."""
    changes.wrap(torch.Tensor, "as_subclass", _alias)


def _alias(original: Callable[..., Any]) -> Callable[..., Any]:
    tracing = threading.get_ident()

    @functools.wraps(original)
    def as_subclass(x: torch.Tensor, cls: type) -> Any:
        if cls is not torch.Tensor or threading.get_ident() != tracing:
            return original(x, cls)
        return torch.ops.aten.alias.default(x)

    return as_subclass


def function_sees_compiler(changes: Changes) -> None:
    """Makes ``torch.compiler.is_compiling()`` true in the user's function."""
    compiler: Any = torch.compiler
    changes.attribute(compiler, "_is_compiling_flag", True)


def generators_are_attributes(changes: Changes) -> None:
    """Makes a generator that is passed to a random operator an attribute of the graph."""
    for name in ("is_opaque_type", "is_opaque_reference_type"):
        changes.wrap(_symbolic_trace, name, lambda original: lambda cls: cls is torch._C.Generator or original(cls))


def frames_are_not_counted(changes: Changes) -> None:
    """Keeps a ``fullgraph=True`` function inside of the trace from reporting that nothing was compiled."""
    count = eval_frame.set_fullgraph_compiled_frame_count  # the only way to read the previous value
    before = count(0)
    count(before)
    changes.callback(count, before)
    count(0)


def nested_tensors_are_made(changes: Changes) -> None:
    """Allows ``torch.nested.nested_tensor_from_jagged``. It rejects fx's symbolic tracing, which runs no operators;
    tracing here does run them, but sets the same flag."""
    changes.wrap(_symbolic_trace, "is_fx_tracing", _not_in_this_thread)


def _not_in_this_thread(original: Callable[[], bool]) -> Callable[[], bool]:
    tracing = threading.get_ident()
    return lambda: threading.get_ident() != tracing and original()


def layers_read_no_data(changes: Changes) -> None:
    """Skips two data-dependent checks. Transformers compare a mask with a causal one, only as a hint for attention.
    Recurrent layers compare the number of packed rows with that of their states; the operators check that as well."""
    changes.wrap(transformer, "_detect_is_causal_mask", _not_causal)
    changes.wrap(rnn.RNNBase, "check_forward_args", _without_rows)


def _not_causal(original: Callable[..., bool]) -> Callable[..., bool]:
    tracing = threading.get_ident()

    @functools.wraps(original)
    def detect(mask: Any, is_causal: bool | None = None, size: Any = None) -> bool:
        if is_causal is None and threading.get_ident() == tracing:
            return False
        return original(mask, is_causal, size)

    return detect


def _without_rows(original: Callable[..., None]) -> Callable[..., None]:
    tracing = threading.get_ident()

    @functools.wraps(original)
    def check(self: Any, input: Any, hidden: Any, batch_sizes: Any) -> None:
        if batch_sizes is None or threading.get_ident() != tracing:
            original(self, input, hidden, batch_sizes)
        else:
            self.check_input(input, batch_sizes)

    return check
