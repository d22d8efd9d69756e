"""Modules whose parameters get their sizes at the first call, such as ``torch.nn.LazyConv2d``.

Dynamo initialises them while tracing, from fake inputs with symbolic sizes, from which no parameter can be created; and
it restores the random generators. Here the sizes are those of the call that is being compiled, and the generators
continue after the initialisation, as after a first call in eager mode. (Random numbers that the frame draws before the
module are drawn after its parameters.)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._dynamo.variables import nn_module

from symshape.frontend.bridge.dynamo import unimplemented
from symshape.frontend.patches.patch import Changes
from symshape.runtime.torch_c import first_seen


def lazy_modules_are_initialised(changes: Changes) -> None:
    """Initialises lazy modules with actual sizes, and lets the generators continue from there after the compile."""
    generators = _Generators()
    changes.callback(generators.go_on)
    changes.wrap(nn_module, "initialize_lazy_module", functools.partial(_from_hints, generators))


def _from_hints(generators: _Generators, original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def initialise(tx: Any, lazy: Any, args: Any, kwargs: Any) -> None:
        infer = lazy._infer_parameters

        def from_numbers(owner: Any, given: Any, named: Any = None) -> None:
            with generators:
                infer(owner, *pytree.tree_map(_number, (given, named or {})))

        lazy.__dict__["_infer_parameters"] = from_numbers  # where `original` finds it
        try:
            original(tx, lazy, args, kwargs)
        finally:
            del lazy.__dict__["_infer_parameters"]

    return initialise


def _number(value: Any) -> Any:
    """A traced argument with the actual sizes of this call."""
    if isinstance(value, torch.SymInt):
        seen = first_seen(value)
        if seen is None:
            unimplemented("the first call of a lazy module", "the sizes of its parameters are data-dependent", None)
        return seen
    if not isinstance(value, torch.Tensor) or all(type(n) is int for n in (*value.shape, *value.stride())):
        return value
    mode: Any = getattr(value, "fake_mode")  # noqa: B009 - of fake tensors alone
    with mode:
        sizes, strides = [_number(n) for n in value.shape], [_number(n) for n in value.stride()]
        return torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device)


class _Generators:
    """A context for each initialisation; each continues with the random state in which the previous one ended."""

    def __init__(self) -> None:
        self._after: Any = None

    def __enter__(self) -> None:
        self.go_on()

    def __exit__(self, *_: Any) -> None:
        on_gpu = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        self._after = torch.get_rng_state(), torch.cuda.get_rng_state_all() if on_gpu else []

    def go_on(self) -> None:
        if self._after is not None:
            torch.set_rng_state(self._after[0])
            torch.cuda.set_rng_state_all(self._after[1])
