"""Makes each recurrent layer one library call for all lengths and batches (``symshape::opaque_call``).

PyTorch's decomposition unrolls the steps, so that a graph serves one length. The call runs what eager mode runs; its
gradient runs it again, with the same random numbers if there is dropout between layers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import torch

from symshape.artifact.call_text import run
from symshape.frontend.bridge.operators import AutogradKernel
from symshape.frontend.bridge.running_operators import without_modes
from symshape.frontend.bridge.symbolic_sizes import first_seen_sizes, size_at
from symshape.frontend.opaque_calls.write_calls import text_of
from symshape.runtime.opaque_call import opaque_call
from symshape.runtime.opaque_random_call import opaque_random_call

aten: Any = torch.ops.aten


def recurrent_kernels() -> dict[Any, AutogradKernel]:
    """For ``differentiate_by`` (``frontend/patches/operator_kernels.py``)."""
    layers = (aten.lstm, aten.gru, aten.rnn_tanh, aten.rnn_relu)
    return {one.input: _padded(one.input) for one in layers} | {one.data: _packed(one.data) for one in layers}


def _padded(op: Any) -> AutogradKernel:
    def kernel(
        original: Any,
        x: torch.Tensor,
        states: Any,
        weights: Sequence[torch.Tensor],
        has_biases: bool,
        layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> Any:
        """x: (length, batch, features), or with ``batch_first`` (batch, length, features); so is the first result."""
        draws = dropout != 0 and train and layers > 1
        if not _can_be_opaque(x, draws):
            return original(x, states, weights, has_biases, layers, dropout, train, bidirectional, batch_first)
        by_steps = x.transpose(0, 1) if batch_first else x
        rest = (list(weights), has_biases, layers, dropout, train, bidirectional, False)
        result, *others = _call(op, [by_steps], states, rest, draws, bidirectional)
        return (result.transpose(0, 1) if batch_first else result, *others)

    return kernel


def _packed(op: Any) -> AutogradKernel:
    def kernel(
        original: Any,
        x: torch.Tensor,
        batches: torch.Tensor,
        states: Any,
        weights: Sequence[torch.Tensor],
        has_biases: bool,
        layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
    ) -> Any:
        """x: (elements, features), those of each step after those of the one before; ``batches`` counts them."""
        draws = dropout != 0 and train and layers > 1
        rest = (list(weights), has_biases, layers, dropout, train, bidirectional)
        if not _can_be_opaque(x, draws):
            return original(x, batches, states, *rest)
        return _call(op, [x, batches], states, rest, draws, bidirectional)

    return kernel


def _can_be_opaque(x: torch.Tensor, draws: bool) -> bool:
    """Whether a layer can be an opaque call. Not with dropout between layers on a GPU, whose generator state cannot be
    read."""
    return not draws or x.device.type == "cpu"


def _call(
    op: Any, inputs: list[torch.Tensor], states: Any, rest: Sequence[Any], draws: bool, bidirectional: bool
) -> tuple[torch.Tensor, ...]:
    """The results: one laid out as the first input, with the features of the first state for each direction, and the
    last states."""
    tensors: list[Any] = []
    states = list(states) if isinstance(states, (tuple, list)) else states
    text = text_of(op, (*inputs, states, *rest), tensors, "one call for every length and batch")
    count = len(states) if isinstance(states, list) else 1
    first = tensors[len(inputs)]
    features, sizes = 2 * first.size(2) if bidirectional else first.size(2), []
    if isinstance(features, torch.SymInt):
        sizes.append(features)
    shapes = [[*(["tensor", 0, d] for d in range(inputs[0].dim() - 1)), ["size", 0] if sizes else features]]
    shapes += [[["tensor", len(inputs) + i, d] for d in range(3)] for i in range(count)]
    dtypes = _dtypes(text, tensors, shapes)
    text["results"] = [[dtype, shape] for dtype, shape in zip(dtypes, shapes, strict=True)]
    results = (opaque_random_call if draws else opaque_call)(json.dumps(text), tensors, sizes)
    return tuple(results[: 1 + count])


def _dtypes(text: dict[str, Any], tensors: Sequence[torch.Tensor], results: Sequence[Any]) -> list[str]:
    """The types of the results, found by running a step of one element: under autocast each layer has its own rule."""
    if not any(enabled for _, enabled, _ in text["autocast"]):
        return [str(tensors[0].dtype).removeprefix("torch.")] * len(results)
    fixed, unknown = first_seen_sizes([size for t in tensors for size in t.shape])
    at = fixed | dict.fromkeys(unknown, 1)
    with without_modes(), torch.no_grad(), torch.random.fork_rng(devices=[]):
        made = [torch.ones([size_at(s, at) for s in t.shape], dtype=t.dtype, device=t.device) for t in tensors]
        found = run(json.dumps(text), made, [])
    return [str(one.dtype).removeprefix("torch.") for one in found]
