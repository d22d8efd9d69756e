"""Programs that draw random numbers: functions of one tensor, whose first size varies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


@dataclass(frozen=True)
class Program:
    """``call`` takes a tensor of shape (n, *shape) and returns tensors. ``exact``: they are what was drawn, to be
    compared bit for bit. ``layout`` makes the argument of a contiguous tensor. ``compiled``: False for what Dynamo
    runs in eager mode as a whole, with every backend: what it does not trace stands in a ``with``, or is all
    there is."""

    call: Callable[[torch.Tensor], Any]
    shape: tuple[int, ...] = (6,)
    sizes: tuple[int, ...] = (5, 17, 64)
    exact: bool = False
    dtype: torch.dtype = torch.float32
    layout: Callable[[torch.Tensor], torch.Tensor] = lambda x: x
    compiled: bool = True


def _transposed(x: torch.Tensor) -> torch.Tensor:
    return x.flip(0).transpose(0, -1).contiguous().transpose(0, -1)


def _strided(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([x, x], -1)[..., 0]


def _channels_last(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous(memory_format=torch.channels_last)


# --- what generators draw --------------------------------------------------------------------------------------------


def _filled(
    name: str, *args: Any, dtype: torch.dtype | None = None, strided: bool = False
) -> Callable[[torch.Tensor], Any]:
    """What a method in place draws, for a tensor laid out as the argument, or for every second element of one."""

    def call(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty(*x.shape, 2, dtype=dtype)[..., 0] if strided else torch.empty_like(x, dtype=dtype)
        drawn: torch.Tensor = getattr(y, name)(*args)
        return drawn

    return call


def _in_part(x: torch.Tensor) -> Any:
    """Fills some rows of a tensor, and another by columns."""
    y = torch.zeros_like(x)
    y[1:].normal_()
    y.t()[::2].exponential_()
    return y


def _sampled(x: torch.Tensor) -> Any:
    weights = x.detach().softmax(-1)
    return torch.multinomial(weights, 2), torch.multinomial(weights, 9, replacement=True), torch.multinomial(weights, 1)


def _counted(x: torch.Tensor) -> Any:
    rate = x.detach().abs() + 1
    return torch.poisson(rate), torch.binomial(rate.round() + 3, torch.full_like(rate, 0.4))


def _created(x: torch.Tensor) -> Any:
    n = x.size(0)
    drawn = torch.rand(n, 3), torch.randn(n), torch.randint(0, 9, (n, 2)), torch.randperm(n)
    return *drawn, torch.normal(0.0, 2.0, (n,))


def _halves(x: torch.Tensor) -> Any:
    return (
        torch.rand(x.size(0), dtype=torch.float16),
        torch.randn(x.size(0), 5, dtype=torch.bfloat16),
        torch.rand_like(x, dtype=torch.float64),
        torch.randn_like(x, dtype=torch.float16),
    )


def _by_tensors(x: torch.Tensor) -> Any:
    y = x.detach()
    return torch.normal(y, y.abs() + 1), torch.normal(y, 2.0), torch.normal(3.0, y.abs()), torch.bernoulli(y.sigmoid())


def _gamma(x: torch.Tensor) -> Any:
    concentration = x.detach().abs() + 0.5
    return torch._standard_gamma(concentration), torch._sample_dirichlet(concentration)


GENERATORS = {
    "created": Program(_created, exact=True),
    "of halves and doubles": Program(_halves, exact=True),
    "rand_like of a transposed tensor": Program(lambda x: torch.rand_like(x), exact=True, layout=_transposed),
    "randn_like of a strided tensor": Program(lambda x: torch.randn_like(x), exact=True, layout=_strided),
    "randint_like": Program(
        lambda x: (torch.randint_like(x, 9), torch.randint_like(x, 3, 50)), exact=True, layout=_transposed
    ),
    "uniform_": Program(_filled("uniform_", -1, 3), exact=True, layout=_transposed),
    "normal_": Program(_filled("normal_", 1, 3), exact=True, sizes=(2, 3, 17)),
    "normal_ strided": Program(_filled("normal_", 1, 3, strided=True), exact=True),
    "normal_ of halves": Program(_filled("normal_", dtype=torch.bfloat16), exact=True, layout=_transposed),
    "bernoulli_": Program(_filled("bernoulli_", 0.3), exact=True, layout=_transposed),
    "bernoulli_ of booleans": Program(_filled("bernoulli_", 0.3, dtype=torch.bool), exact=True),
    "bernoulli_ of doubles": Program(_filled("bernoulli_", dtype=torch.float64, strided=True), exact=True),
    "bernoulli_ by a tensor": Program(
        lambda x: torch.empty_like(x).bernoulli_(x.detach().sigmoid()), exact=True, layout=_transposed
    ),
    "bernoulli with p": Program(lambda x: torch.bernoulli(x.detach(), 0.25), exact=True, layout=_transposed),
    "exponential_": Program(_filled("exponential_", 2.0), exact=True, layout=_transposed),
    "exponential_ of halves": Program(_filled("exponential_", dtype=torch.float16), exact=True),
    "cauchy_": Program(_filled("cauchy_", 1.0, 2.0), exact=True, layout=_transposed),
    "geometric_": Program(_filled("geometric_", 0.3), exact=True, layout=_transposed),
    "log_normal_": Program(_filled("log_normal_", 0.5, 0.3), exact=True, layout=_transposed),
    "random_": Program(_filled("random_", dtype=torch.int64), exact=True),
    "random_ up to": Program(_filled("random_", 7), exact=True, layout=_transposed),
    "random_ between": Program(_filled("random_", 2, 9, dtype=torch.int32), exact=True),
    "multinomial": Program(_sampled, exact=True),
    "poisson and binomial": Program(_counted, exact=True),
    "by tensors": Program(_by_tensors, exact=True, layout=_transposed),
    "gamma and dirichlet": Program(_gamma, exact=True),
    "parts of a tensor": Program(_in_part, exact=True),
    "integers": Program(lambda x: torch.randint(3, 90, (x.size(0) * 2 - 1,), dtype=torch.int32), exact=True),
    "nothing": Program(lambda x: (torch.empty(0, 3).bernoulli_(0.5), torch.rand(0), torch.rand(2)), exact=True),
}

# --- layers ----------------------------------------------------------------------------------------------------------


def _attention(x: torch.Tensor) -> torch.Tensor:
    q = x.view(x.size(0), 2, 3, 4)
    return F.scaled_dot_product_attention(q, q * 2, q + 1, dropout_p=0.3)


def _causal_attention(x: torch.Tensor) -> torch.Tensor:
    q = x.view(1, 2, x.size(0), 4)
    return F.scaled_dot_product_attention(q, q * 2, q + 1, dropout_p=0.3, is_causal=True)


_MULTIHEAD = torch.nn.MultiheadAttention(8, 2, dropout=0.3, batch_first=True)
_ENCODER = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True)
_RECURRENT = torch.nn.LSTM(6, 4, num_layers=3, dropout=0.4, batch_first=True)
_RRELU = torch.nn.RReLU()


def _hard_gumbel(x: torch.Tensor) -> Any:
    return F.gumbel_softmax(x, tau=0.7), F.gumbel_softmax(x, hard=True)


def _drop_path(x: torch.Tensor) -> torch.Tensor:
    """Stochastic depth, as vision models have it."""
    keep = x.new_empty((x.size(0), 1)).bernoulli_(0.8)
    return x + x.exp() * keep.div_(0.8)


def _noisy(x: torch.Tensor) -> torch.Tensor:
    return x * (1 + 0.1 * torch.randn_like(x)) + torch.rand_like(x)


def _in_place(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    F.dropout(y, 0.4, inplace=True)
    return y.sin()


LAYERS = {
    "dropout": Program(lambda x: F.dropout(x.exp(), 0.3)),
    "dropout of a transposed tensor": Program(lambda x: F.dropout(x, 0.3) * 2, layout=_transposed),
    "dropout of a strided tensor": Program(lambda x: F.dropout(x, 0.3) * 2, layout=_strided),
    "dropout in place": Program(_in_place),
    "dropout of doubles": Program(lambda x: F.dropout(x, 0.9), dtype=torch.float64),
    "dropout of halves": Program(lambda x: F.dropout(x, 0.5), dtype=torch.bfloat16),
    "dropout of all and none": Program(lambda x: (F.dropout(x, 1.0), F.dropout(x * 2, 0.0), F.dropout(x, 0.5, False))),
    "dropout1d": Program(lambda x: F.dropout1d(x, 0.4), (4, 5)),
    "dropout2d": Program(lambda x: F.dropout2d(x, 0.4), (4, 3, 3), layout=_channels_last),
    "dropout3d": Program(lambda x: F.dropout3d(x, 0.4), (2, 2, 3, 2)),
    "alpha_dropout": Program(lambda x: F.alpha_dropout(x, 0.3, True), layout=_transposed),
    "feature_alpha_dropout": Program(lambda x: F.feature_alpha_dropout(x, 0.3, True), (4, 5)),
    "rrelu": Program(lambda x: F.rrelu(x, training=True)),
    "rrelu of a transposed tensor": Program(lambda x: _RRELU(x - 0.5), layout=_transposed),
    "gumbel_softmax": Program(_hard_gumbel),
    "attention": Program(_attention, (24,)),
    "causal attention": Program(_causal_attention, (8,)),
    "multi-head attention": Program(lambda x: _MULTIHEAD(x, x, x)[0], (5, 8)),
    "encoder layer": Program(lambda x: _ENCODER(x), (5, 8)),
    "recurrent layers": Program(lambda x: _RECURRENT(x)[0], (5, 6)),
    "stochastic depth": Program(_drop_path),
    "noise": Program(_noisy, layout=_channels_last, shape=(4, 3, 3)),
}

# --- order, and what nothing reads -----------------------------------------------------------------------------------


def _unused(x: torch.Tensor) -> torch.Tensor:
    torch.rand(3)
    y = F.dropout(x, 0.3)
    torch.randn_like(x)
    F.dropout(y.exp(), 0.2)
    return y


def _twice(x: torch.Tensor) -> torch.Tensor:
    return torch.rand(x.shape) * x + torch.rand(x.shape)


def _interleaved(x: torch.Tensor) -> Any:
    """Draws that wait for kernels between draws that need nothing."""
    y = x.softmax(-1)
    first = torch.bernoulli(y.detach())
    second = torch.rand(x.size(0), 1)
    z = x + second
    third = torch.multinomial(z.detach().exp(), 1)
    return first + y, z * F.dropout(z, 0.3), third, torch.randn(2)


class _DrawsInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * torch.rand_like(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        torch.rand(2)
        noise = torch.rand(x.shape) + torch.randn_like(gradient)
        return gradient * noise * F.dropout(torch.ones_like(x), 0.5)


def _drawn_in_backward(x: torch.Tensor) -> torch.Tensor:
    y = _DrawsInBackward.apply(F.dropout(x, 0.2))
    return _DrawsInBackward.apply(y.sin()) * torch.rand(())


def _branches(x: torch.Tensor) -> torch.Tensor:
    y = torch.cond(x.sum() > 0, lambda v: F.dropout(v, 0.5), lambda v: v * torch.rand_like(v), (x,))
    return y + torch.rand(1)


def _reseeded(x: torch.Tensor) -> torch.Tensor:
    y = F.dropout(x, 0.3)
    torch.manual_seed(11)
    return y * torch.rand_like(x)


def _forked(x: torch.Tensor) -> torch.Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        y = F.dropout(x, 0.3)
    return y + torch.rand(1)


def _restored(x: torch.Tensor) -> Any:
    state = torch.get_rng_state()
    first = F.dropout(x, 0.5)
    torch.set_rng_state(state)
    return first, F.dropout(x, 0.5)


_GENERATOR = torch.Generator()


def _with_generator(x: torch.Tensor) -> torch.Tensor:
    _GENERATOR.manual_seed(9)
    return x * torch.rand(3, 1, 1, generator=_GENERATOR) + torch.rand(1)


def _tail(x: torch.Tensor) -> torch.Tensor:
    """A size that is in the data."""
    y = x[x.detach() > 0]
    return F.dropout(y, 0.3) * torch.rand_like(y)


ORDER = {
    "unused": Program(_unused),
    "equal draws": Program(_twice),
    "between kernels": Program(_interleaved),
    "in backward": Program(_drawn_in_backward),
    "in branches": Program(_branches),
    "seeded inside": Program(_reseeded),
    "forked inside": Program(_forked, compiled=False),
    "restored inside": Program(_restored),
    "a generator": Program(_with_generator),
    "a size in the data": Program(_tail),
}

# --- checkpoints -----------------------------------------------------------------------------------------------------


def _block(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(F.dropout(x.exp(), 0.3).sin() * torch.rand_like(x), 0.2)


def _nested(x: torch.Tensor) -> torch.Tensor:
    def inner(y: torch.Tensor) -> torch.Tensor:
        return checkpoint(_block, F.dropout(y, 0.1), use_reentrant=False) * torch.rand(1)

    return checkpoint(inner, x, use_reentrant=False) + torch.rand(1)


_STACK = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Dropout(0.3)) for _ in range(4)))


def _one_after_another(x: torch.Tensor) -> torch.Tensor:
    y = checkpoint(_block, x, use_reentrant=False)
    torch.rand(2)
    return checkpoint(_block, y, use_reentrant=False)


def _saved(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
    policy = torch.utils.checkpoint.CheckpointPolicy
    return policy.MUST_SAVE if op is torch.ops.aten.mm.default else policy.PREFER_RECOMPUTE


def _policies() -> Any:
    return torch.utils.checkpoint.create_selective_checkpoint_contexts(_saved)


def _selected(x: torch.Tensor) -> torch.Tensor:
    def body(y: torch.Tensor) -> torch.Tensor:
        return F.dropout(torch.mm(F.dropout(y, 0.2), y.t()).sin(), 0.3)

    return checkpoint(body, x, use_reentrant=False, context_fn=_policies)


CHECKPOINTS = {
    "checkpoint": Program(lambda x: checkpoint(_block, x, use_reentrant=False)),
    "checkpoints one after another": Program(_one_after_another),
    "checkpoints inside each other": Program(_nested),
    "checkpoint of a selection": Program(_selected),
    "checkpoint of a sequence": Program(
        lambda x: checkpoint_sequential(_STACK, 2, x, use_reentrant=False), compiled=False
    ),
    "checkpoint, new numbers": Program(
        lambda x: checkpoint(_block, x, use_reentrant=False, preserve_rng_state=False) * torch.rand(1)
    ),
    "reentrant checkpoint": Program(lambda x: checkpoint(_block, x, use_reentrant=True)),
    "checkpoint of attention": Program(lambda x: checkpoint(_ENCODER, x, use_reentrant=False), (5, 8)),
}

PROGRAMS = {**GENERATORS, **LAYERS, **ORDER, **CHECKPOINTS}
