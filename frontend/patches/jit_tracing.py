"""Tracing for ``symshape.jit``, without Dynamo: what else of PyTorch takes part in it.

Where PyTorch asks a function, the answer is another one in the tracing thread only. A flag that PyTorch has for a whole
process is set for all of it.
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
    """AOTAutograd does not turn Python scalars into tensors: that is for floats that Dynamo made symbols (here they are
    constants), and relies on sizes that Dynamo made arguments."""
    changes.wrap(graph_compile, "tensorify_python_scalars", _outside_of_this_thread)


def _outside_of_this_thread(usual: Callable[..., None]) -> Callable[..., None]:
    tracing = threading.get_ident()

    def tensorify(graph: torch.fx.GraphModule, env: Any, mode: Any) -> None:
        if threading.get_ident() != tracing:
            usual(graph, env, mode)

    return tensorify


def compiled_functions_are_inlined(changes: Changes) -> None:
    """What ``torch.compile`` made of a function runs as it is where we trace, to be part of the trace. Not in what
    Dynamo reads for a higher-order operator. ``torch.compiler.set_stance("force_eager")`` does it for all threads."""
    changes.wrap(eval_frame, "_callback_from_stance", _no_callback)


def _no_callback(usual: Callable[[Any], Any]) -> Callable[[Any], Any]:
    tracing = threading.get_ident()

    def callback(given: Any) -> Any:
        return None if threading.get_ident() == tracing and not _in_hop_compile() else usual(given)

    return callback


def tensors_keep_their_class(changes: Changes) -> None:
    """``x.as_subclass(torch.Tensor)`` is an alias, as in ``torch/csrc/autograd/python_variable.cpp``."""
    changes.wrap(torch.Tensor, "as_subclass", _alias)


def _alias(usual: Callable[..., Any]) -> Callable[..., Any]:
    tracing = threading.get_ident()

    @functools.wraps(usual)
    def as_subclass(x: torch.Tensor, cls: type) -> Any:
        if cls is not torch.Tensor or threading.get_ident() != tracing:
            return usual(x, cls)
        return torch.ops.aten.alias.default(x)

    return as_subclass


def function_sees_compiler(changes: Changes) -> None:
    """``torch.compiler.is_compiling()`` is true in the user's function."""
    compiler: Any = torch.compiler
    changes.attribute(compiler, "_is_compiling_flag", True)


def generators_are_attributes(changes: Changes) -> None:
    """A generator that a draw is given is an attribute of the graph."""
    for name in ("is_opaque_type", "is_opaque_reference_type"):
        changes.wrap(_symbolic_trace, name, lambda usual: lambda cls: cls is torch._C.Generator or usual(cls))


def frames_are_not_counted(changes: Changes) -> None:
    """A compiled function in the user's function that must be one graph is not told that nothing was compiled."""
    count = eval_frame.set_fullgraph_compiled_frame_count  # returns what was set before; nothing else tells
    before = count(0)
    count(before)
    changes.callback(count, before)
    count(0)


def nested_tensors_are_made(changes: Changes) -> None:
    """``torch.nested.nested_tensor_from_jagged`` refuses fx's symbolic trace, which calls no operators. Ours, which
    does, sets the same flag."""
    changes.wrap(_symbolic_trace, "is_fx_tracing", _not_in_this_thread)


def _not_in_this_thread(usual: Callable[[], bool]) -> Callable[[], bool]:
    tracing = threading.get_ident()
    return lambda: threading.get_ident() != tracing and usual()


def layers_look_at_no_data(changes: Changes) -> None:
    """Transformers compare a mask with a causal one, for a hint to attention that may be left out. Recurrent layers
    compare the number of packed rows, which is in the data, with that of their states; so do the operators."""
    changes.wrap(transformer, "_detect_is_causal_mask", _not_causal)
    changes.wrap(rnn.RNNBase, "check_forward_args", _without_rows)


def _not_causal(usual: Callable[..., bool]) -> Callable[..., bool]:
    tracing = threading.get_ident()

    @functools.wraps(usual)
    def detect(mask: Any, is_causal: bool | None = None, size: Any = None) -> bool:
        if is_causal is None and threading.get_ident() == tracing:
            return False
        return usual(mask, is_causal, size)

    return detect


def _without_rows(usual: Callable[..., None]) -> Callable[..., None]:
    tracing = threading.get_ident()

    @functools.wraps(usual)
    def check(self: Any, input: Any, hidden: Any, batch_sizes: Any) -> None:
        if batch_sizes is None or threading.get_ident() != tracing:
            usual(self, input, hidden, batch_sizes)
        else:
            self.check_input(input, batch_sizes)

    return check
