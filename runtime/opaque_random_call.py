"""``symshape::opaque_random_call``: an opaque call that draws random numbers.

Its last result is the state of the generator before the call: where the call's graph was not kept, the gradient runs
the function again from there, so that it differentiates the numbers that were drawn. The generator is that of the
operands' device.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from symshape.artifact.call_text import device_of, made_from, parse
from symshape.runtime.kept_graph import graph_of, new_ticket
from symshape.runtime.opaque_call import (
    LIBRARY,
    gradients_of_call,
    kept_results_of_call,
    of_inputs,
    remember,
    results_of_call,
    sizes_of_gradient,
)

LIBRARY.define(
    "opaque_random_call(str call, Tensor[] tensors, SymInt[] sizes) -> Tensor[]",
    tags=(torch.Tag.nondeterministic_seeded,),
)
LIBRARY.define(
    "opaque_random_call_kept(str call, Tensor[] tensors, SymInt[] sizes, bool[] wanted) -> Tensor[]",
    tags=(torch.Tag.nondeterministic_seeded,),
)
LIBRARY.define(
    "opaque_random_call_gradient(str call, Tensor[] tensors, SymInt[] sizes, Tensor state, bool[] wanted, "
    "Tensor?[] gradients, Tensor? ticket=None) -> Tensor[]"
)


def _device(call: str, tensors: Sequence[torch.Tensor]) -> torch.device:
    return device_of(parse(call)["kwargs"]["dict"], tensors)


def _state(device: torch.device) -> torch.Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


@functools.cache
def _state_bytes(kind: str) -> int:
    return 16 if kind == "cuda" else torch.get_rng_state().numel()


@contextlib.contextmanager
def _from_state(device: torch.device, state: torch.Tensor) -> Iterator[None]:
    """While entered, the generator continues from ``state``; afterwards its own state is restored."""
    on_gpu = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if on_gpu else []):
        torch.cuda.set_rng_state(state, device) if on_gpu else torch.set_rng_state(state)
        yield


def _opaque_random_call(call: str, tensors: Sequence[torch.Tensor], sizes: Sequence[int]) -> list[torch.Tensor]:
    state = _state(_device(call, tensors))
    return [*results_of_call(call, tensors, sizes), state]


def _opaque_random_call_kept(
    call: str, tensors: Sequence[torch.Tensor], sizes: Sequence[int], wanted: Sequence[bool]
) -> list[torch.Tensor]:
    """The results, the state, the ticket."""
    state = _state(_device(call, tensors))
    *results, ticket = kept_results_of_call(call, tensors, sizes, wanted)
    return [*results, state, ticket]


def _opaque_random_call_gradient(
    call: str,
    tensors: Sequence[torch.Tensor],
    sizes: Sequence[int],
    state: torch.Tensor,
    wanted: Sequence[bool],
    gradients: Sequence[torch.Tensor | None],
    ticket: torch.Tensor | None = None,
) -> list[torch.Tensor]:
    if graph_of(ticket) is not None:
        return gradients_of_call(call, tensors, sizes, wanted, gradients, ticket)
    with _from_state(_device(call, tensors), state):
        return gradients_of_call(call, tensors, sizes, wanted, gradients)


def _fake(call: str, tensors: Sequence[torch.Tensor], sizes: Sequence[int | torch.SymInt]) -> list[torch.Tensor]:
    found = made_from(call, tensors, sizes, torch.library.get_ctx().new_dynamic_size)
    state = torch.empty([_state_bytes(_device(call, tensors).type)], dtype=torch.uint8, device="cpu")
    return [*found, state]


def _fake_kept(
    call: str, tensors: Sequence[torch.Tensor], sizes: Sequence[int | torch.SymInt], wanted: Sequence[bool]
) -> list[torch.Tensor]:
    return [*_fake(call, tensors, sizes), new_ticket()]


def _fake_gradient(
    call: str,
    tensors: Sequence[torch.Tensor],
    sizes: Sequence[int | torch.SymInt],
    state: torch.Tensor,
    wanted: Sequence[bool],
    gradients: Any,
    ticket: torch.Tensor | None = None,
) -> list[torch.Tensor]:
    return sizes_of_gradient(call, tensors, sizes, wanted, gradients)


def _remember(ctx: Any, inputs: Any, output: Any) -> None:
    remember(ctx, inputs, output)
    ctx.save_for_backward(*inputs[1], output[-1])


def _backward(ctx: Any, gradients: Any) -> Any:
    *tensors, state = ctx.saved_tensors
    run = torch.ops.symshape.opaque_random_call_gradient
    return of_inputs(ctx, run(ctx.call, tensors, ctx.sizes, state, ctx.needs_input_grad[1], list(gradients[:-1])))


LIBRARY.impl("opaque_random_call", _opaque_random_call, "CompositeExplicitAutograd")
LIBRARY.impl("opaque_random_call_kept", _opaque_random_call_kept, "CompositeExplicitAutograd")
LIBRARY.impl("opaque_random_call_gradient", _opaque_random_call_gradient, "CompositeExplicitAutograd")
torch.library.register_fake("symshape::opaque_random_call", _fake, lib=LIBRARY)
torch.library.register_fake("symshape::opaque_random_call_kept", _fake_kept, lib=LIBRARY)
torch.library.register_fake("symshape::opaque_random_call_gradient", _fake_gradient, lib=LIBRARY)
torch.library.register_autograd("symshape::opaque_random_call", _backward, setup_context=_remember, lib=LIBRARY)
opaque_random_call: Any = torch.ops.symshape.opaque_random_call.default
opaque_random_call_kept: Any = torch.ops.symshape.opaque_random_call_kept.default
opaque_random_call_gradient: Any = torch.ops.symshape.opaque_random_call_gradient.default
