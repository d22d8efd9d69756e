"""Draws the random numbers of eager mode: on CPUs a graph calls the operators that eager mode calls, in its order.

The numbers that an operator draws on a CPU depend on the operator, on the layout and the element type of the tensor
that it fills, and on the processor, so only the same call draws the same numbers. Three things would call others:

- decompositions that draw in another way (``native_dropout`` by ``rand``): they are left out for CPU tensors;
- ``dropout``, which the tracer replaces by ``native_dropout``: eager mode on a CPU fills floats by ``bernoulli_``;
- in-place fills (``normal_``), which functionalisation replaces by an operator that fills a contiguous tensor, whatever
  the layout of the operand is: here it is ``symshape::draw``, which fills one of the same layout.

Draws keep their order, and those without users are kept (``draw_order``).

This file touches private PyTorch APIs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from symshape.frontend.bridge.decomposition_tables import draws_taken_apart
from symshape.frontend.bridge.dynamo import is_number_of_random
from symshape.frontend.bridge.fake_tensors import is_in_functional_transform
from symshape.frontend.bridge.operators import missing_arguments
from symshape.runtime.draw import DROPOUT

aten: Any = torch.ops.aten


def with_eager_draws(table: dict[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """A decomposition table without Inductor's decompositions of random operators for CPU tensors; ``table`` must be
    made from ``inductor_table``."""
    changed = draws_taken_apart(table)
    changed += [op for op in (aten.bernoulli.default, aten.bernoulli.p) if op in table and op not in changed]
    contiguous = {op: _contiguous(op, table.get(op)) for op in _CONTIGUOUS}
    return {**table, **{op: _off_cpu(table[op]) for op in changed}, **contiguous}


# Of these the results are contiguous, whatever the operands are; PyTorch's tracing rules say otherwise.
_CONTIGUOUS = (
    aten.normal.Tensor_Tensor,
    aten.normal.Tensor_float,
    aten.normal.float_Tensor,
    aten.rrelu_with_noise_functional.default,
)


def _contiguous(op: Any, elsewhere: Callable[..., Any] | None) -> Callable[..., Any]:
    """The operator called on contiguous operands, for which it draws the same numbers. ``elsewhere``: the decomposition
    for other devices."""

    def decomposition(*args: Any, **kwargs: Any) -> Any:
        if not _draws_on_cpu(args, kwargs):
            return NotImplemented if elsewhere is None else elsewhere(*args, **kwargs)
        operands = [x.contiguous() if isinstance(x, torch.Tensor) else x for x in args]
        same = all(ours is theirs for ours, theirs in zip(operands, args))
        return NotImplemented if same else op(*operands, **kwargs)

    return decomposition


def _off_cpu(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A decomposition that is used for other devices than CPUs only."""

    @functools.wraps(rule)
    def decomposition(*args: Any, **kwargs: Any) -> Any:
        if not _draws_on_cpu(args, kwargs):
            return rule(*args, **kwargs)
        return NotImplemented

    return decomposition


def _draws_on_cpu(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    asked = kwargs.get("device")
    if asked is not None:
        return torch.device(asked).type == "cpu"
    return all(x.is_cpu for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor))


def with_python_numbers(run: Callable[..., Any], gm: torch.fx.GraphModule) -> Callable[..., Any]:
    """Handles results of ``random.random()``, which Dynamo passes to a graph as float64 tensors that were traced as
    float32."""
    dtypes = {
        i: node.meta["example_value"].dtype
        for i, node in enumerate(gm.graph.find_nodes(op="placeholder"))
        if is_number_of_random(node)
    }
    if not dtypes:
        return run

    def call(*args: Any) -> Any:
        return run(*(x.to(dtypes[i]) if i in dtypes else x for i, x in enumerate(args)))

    return call


def all_or_nothing(x: torch.Tensor, p: Any, train: bool) -> torch.Tensor | None:
    """A dropout that draws no numbers: it drops nothing, or all. None for any other."""
    check: Any = torch._check
    check(0 <= p <= 1, lambda: f"dropout probability has to be between 0 and 1, but got {p}")
    if p == 0 or not train:
        return x
    return x * torch.zeros((), dtype=x.dtype) if p == 1 else None


def drop_as_eager(original: Callable[..., Any], x: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    """As ATen does for CPU tensors (``aten/src/ATen/native/Dropout.cpp``)."""
    if not x.is_cpu:
        result: torch.Tensor = original(x, p, train)
        return result
    if (found := all_or_nothing(x, p, train)) is not None:
        return found
    like = torch.empty_like(x)
    if is_in_functional_transform():
        return x * like.bernoulli_(1 - p).div_(1 - p)  # torch.vmap knows what each of its elements draws
    draws: Callable[..., torch.Tensor] = torch.ops.symshape.draw
    return x * draws(DROPOUT, x.size(), like.stride(), [1 - p], None, dtype=x.dtype, device=x.device).div(1 - p)


def fill(name: str, like: torch.Tensor, numbers: Sequence[Any]) -> torch.Tensor:
    """A tensor laid out like another one, filled by an operator whose arguments are these numbers, which may be
    symbolic: "bernoulli_.float", or one of a distribution's name with the overload "default" (``_FROM_UNIFORM``)."""
    if like.is_cpu and not is_in_functional_transform():
        size, stride = like.size(), like.stride()
        draws: Callable[..., torch.Tensor] = torch.ops.symshape.draw
        return draws(name, size, stride, numbers, None, dtype=like.dtype, device=like.device)
    if name in ("normal_.default", "log_normal_.default"):
        normal = torch.randn_like(like) * numbers[1] + numbers[0]
        return normal.exp() if name == "log_normal_.default" else normal
    return _FROM_UNIFORM[name](torch.rand_like(like), *numbers).to(like.dtype)


# Of numbers from 0 to 1, which are less than 1.
_FROM_UNIFORM: Mapping[str, Callable[..., torch.Tensor]] = {
    "bernoulli_.float": lambda x, p: x < p,
    "uniform_.default": lambda x, first, last: x * (last - first) + first,
    "exponential_.default": lambda x, rate: -(1 - x).log() / rate,
    "geometric_.default": lambda x, p: ((1 - x).log() / (x.new_zeros(()) - p).log1p()).ceil().clamp(min=1),
    "cauchy_.default": lambda x, median, sigma: ((x - 0.5) * math.pi).tan() * sigma + median,
}


def fill_functionally(
    op: Any, mode: Any, x: torch.Tensor, *args: Any, generator: Any = None, **kwargs: Any
) -> torch.Tensor:
    """The functional form of an operator that fills a tensor. Called without the mode that functionalises."""
    if generator is not None or not x.is_cpu:
        given = kwargs if generator is None else {**kwargs, "generator": generator}
        original: torch.Tensor = mode.__torch_dispatch__(op, (type(x),), (x, *args), given)
        return original
    values = [*args, *missing_arguments(op, (x, *args), kwargs)]
    p = values[0] if values and isinstance(values[0], torch.Tensor) else None
    numbers = [value for value in values if not isinstance(value, torch.Tensor) and value is not None]
    with mode:
        name = str(op).removeprefix("aten.")
        drawn = torch.ops.symshape.draw(name, x.size(), x.stride(), numbers, p, dtype=x.dtype, device=x.device)
        return x.copy_(drawn)
