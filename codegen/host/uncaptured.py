"""Decides from the host program whether its launches can be captured as a CUDA graph, and if not, why.

A replay repeats what was enqueued, with the host's decisions at capture. So no decision may depend on data that the
host reads, nothing may run on the host or on another device, and nothing may wait for the GPU: that would end the
capture with an error that leaves PyTorch's allocator in an invalid state. Library calls are therefore limited to a list
of operators whose CUDA code only enqueues work. Operators that read values for their sizes (`nonzero`, `unique`,
`index_put`, whose index may be a mask), factorisations, and operators that are not PyTorch's are not on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from symshape.dialects.accessors import (
    body_of,
    call_target,
    collective_number,
    destinations,
    is_fresh,
    is_read,
    is_subgraph,
    symbol_binding,
)
from symshape.dialects.foreign_tensors import foreign_of
from symshape.dialects.locations import source_line

_DECIDES: Final = {
    "symshape.unbacked_symbol": "the host reads a size, or a number, from the data",
    "host.cond": "the host reads which branch is taken",
    "host.while": "the host reads whether a loop goes on",
    "host.attention": "the host reads a list of blocks",
}
# By the name of the operator, all overloads.
_ENQUEUES: Final = frozenset(
    f"aten.{name}"
    for name in """
    mm addmm bmm baddbmm mv addmv dot _int_mm _scaled_mm
    convolution convolution_backward cudnn_convolution
    native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training native_batch_norm_backward
    native_group_norm native_group_norm_backward native_layer_norm native_layer_norm_backward
    max_pool2d_with_indices max_pool2d_with_indices_backward avg_pool2d avg_pool2d_backward
    avg_pool3d avg_pool3d_backward _adaptive_avg_pool2d _adaptive_avg_pool2d_backward
    upsample_nearest1d upsample_nearest2d upsample_bilinear2d upsample_bicubic2d
    grid_sampler_2d grid_sampler_2d_backward
    _softmax _softmax_backward_data _log_softmax _log_softmax_backward_data
    nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward
    embedding embedding_dense_backward gather index_select index_add scatter scatter_add scatter_reduce
    cumsum cumprod cummax cummin logcumsumexp sort topk
    clone copy _to_copy cat stack constant_pad_nd triu tril flip roll
    full zeros ones full_like zeros_like ones_like arange
    rand randn rand_like randn_like bernoulli native_dropout native_dropout_backward
    """.split()
) | {"symshape.draw", "symshape.constant"}
# The random state among their results lies on the GPU in a capture, and on the CPU outside of one.
_ATTENTION: Final = {
    "aten._scaled_dot_product_flash_attention": 2,
    "aten._scaled_dot_product_efficient_attention": 2,
    "aten._scaled_dot_product_cudnn_attention": 2,
}


def why_uncaptured(functions: Sequence[Any]) -> str:
    """The reason why a program of these functions cannot be captured; "" if it can."""
    for function in functions:
        arguments = set(function.regions[0].blocks[0].arguments)
        for op in body_of(function):
            reason = _reason(op, set() if is_subgraph(function) else arguments)
            if reason:
                return f"{reason} ({source_line(op.location)})"
    return ""


def _reason(op: Any, arguments: set[Any]) -> str:
    if op.name == "symshape.bind":
        foreign = foreign_of(op)
        return f"a tensor is {foreign}" if foreign is not None and foreign.device else ""
    if op.name == "symshape.symbol" and symbol_binding(op).endswith(".offset") and is_read(op.results[0]):
        return "it is read where an input lies in its memory, and copies lie elsewhere"
    if op.name == "host.launch":
        return "an input is written to" if arguments.intersection(destinations(op)) else ""
    return _reason_of_call(op) if op.name == "host.call" else _DECIDES.get(op.name, "")


def _reason_of_call(call: Any) -> str:
    target = call_target(call)
    name = target.rpartition(".")[0] if target.count(".") > 1 else target
    if collective_number(call) is not None:
        return f"{target} meets other processes"
    if name in _ATTENTION:
        drawn = list(call.results)[_ATTENTION[name] :]
        return f"{target} returns a random state" if any(map(is_read, drawn)) else ""
    if name not in _ENQUEUES:
        return f"{target} is not known to do nothing but to enqueue work"
    if target != "symshape.constant" and not is_fresh(call):
        return f"{target} returns or changes memory that is not its own"
    return ""
