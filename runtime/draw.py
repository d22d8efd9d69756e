"""``symshape::draw``: fills a tensor with random numbers as eager mode does for its layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from symshape.artifact.compiled_program import named

aten: Any = torch.ops.aten


_library: Any = torch.library.Library


_LIBRARY = _library("symshape", "FRAGMENT")
_LIBRARY.define(
    "draw(str operator, SymInt[] size, SymInt[] stride, Scalar[] numbers, Tensor? p, *, ScalarType dtype, "
    "Device device) -> Tensor",
    tags=(torch.Tag.nondeterministic_seeded, torch.Tag.pt2_compliant_tag),
)


# Operators that fill a tensor, whatever was in it, and how many arguments of theirs are numbers.
FILLING = {
    aten.bernoulli_.float: 1,
    aten.bernoulli_.Tensor: 0,
    aten.uniform_.default: 2,
    aten.normal_.default: 2,
    aten.exponential_.default: 1,
    aten.cauchy_.default: 2,
    aten.geometric_.default: 1,
    aten.log_normal_.default: 2,
    aten.random_.default: 0,
    aten.random_.to: 1,
    getattr(aten.random_, "from"): 2,
}


# bernoulli_, but nothing is drawn for no elements: on some processors bernoulli_ draws a seed for them.
DROPOUT = "dropout"


_BY_NAME = {str(op).removeprefix("aten."): op for op in FILLING} | {DROPOUT: aten.bernoulli_.float}


def draw(
    operator: str,
    size: Sequence[int],
    stride: Sequence[int],
    numbers: Sequence[float],
    p: torch.Tensor | None,
    *,
    dtype: torch.dtype,
    device: torch.device,
) -> torch.Tensor:
    """A new tensor of this layout, filled by an operator such as "bernoulli_.float". ``numbers``: its arguments, or
    ``p`` if that is a tensor."""
    op = _BY_NAME[operator]
    made = torch.empty_strided(size, stride, dtype=dtype, device=device)
    if operator == DROPOUT and not made.numel():
        return made
    given: tuple[Any, ...] = (*numbers, *(None for _ in range(FILLING[op] - len(numbers)))) if p is None else (p,)
    filled: torch.Tensor = op(made, *given)
    return filled


@named("symshape.draw_and_save_state")
def draw_and_save_state(op: Any, /, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, Any]:
    """The state of the CPU's generator, and what the operator then draws. PyTorch's version (``rng_prims``) looks for
    the device among the arguments, where it need not be."""
    return torch.get_rng_state(), op(*args, **kwargs)


@named("symshape.draw_from_state")
def draw_from_state(state: torch.Tensor, op: Any, /, *args: Any, **kwargs: Any) -> Any:
    """The operator's draws from this state of the CPU's generator, whose own state is unchanged."""
    now = torch.get_rng_state()
    torch.set_rng_state(state)
    try:
        return op(*args, **kwargs)
    finally:
        torch.set_rng_state(now)


def _fake_draw(
    operator: str,
    size: Sequence[Any],
    stride: Sequence[Any],
    numbers: Sequence[float],
    p: torch.Tensor | None,
    *,
    dtype: torch.dtype,
    device: torch.device,
) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype, device=device)


_LIBRARY.impl("draw", draw, "CompositeExplicitAutograd")
torch.library.register_fake("symshape::draw", _fake_draw, lib=_LIBRARY)
