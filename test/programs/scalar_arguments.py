"""Programs in which a number argument of an operator comes from a size: an int, or a float that is computed of one."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

aten = torch.ops.aten


def _mask(x: Tensor) -> Tensor:
    return torch.arange(x.numel()).reshape(x.shape) % 2 == 0


def _index(x: Tensor) -> Tensor:
    return torch.zeros(1, x.shape[1], dtype=torch.int64)


# Of a matrix x and a number n; both dtypes of x, and both types of n.
ANY: dict[str, Callable[..., Tensor]] = {
    "add": lambda x, n: x + n,
    "add_alpha": lambda x, n: torch.add(x, x, alpha=n),
    "sub": lambda x, n: x - n,
    "rsub": lambda x, n: n - x,
    "mul": lambda x, n: x * n,
    "div": lambda x, n: x / n,
    "true_divide": lambda x, n: n / (x.abs() + 1),
    "floor_divide": lambda x, n: x // n,
    "div_trunc": lambda x, n: torch.div(x, n, rounding_mode="trunc"),
    "remainder": lambda x, n: x % n,
    "fmod": lambda x, n: torch.fmod(x, n),
    "pow_scalar": lambda x, n: torch.pow(n, x.abs()),
    "eq": lambda x, n: x == n,
    "ne": lambda x, n: x != n,
    "lt": lambda x, n: x < n,
    "ge": lambda x, n: x >= n,
    "clamp": lambda x, n: torch.clamp(x, -n, n),
    "clamp_min": lambda x, n: torch.clamp_min(x, n),
    "clamp_max": lambda x, n: torch.clamp_max(x, n),
    "full": lambda x, n: torch.full((3, 2), n) + x.sum(),
    "full_like": lambda x, n: torch.full_like(x, n),
    "new_full": lambda x, n: x.new_full((2,), n),
    "fill": lambda x, n: x.clone().fill_(n),
    "scalar_tensor": lambda x, n: torch.scalar_tensor(n) + x,
    "where_other": lambda x, n: torch.where(_mask(x), x, n),
    "where_self": lambda x, n: torch.where(_mask(x), n, x),
    "where_both": lambda x, n: torch.where(_mask(x), n, 2),
    "masked_fill": lambda x, n: x.masked_fill(_mask(x), n),
    "index_fill": lambda x, n: x.index_fill(0, torch.tensor([0]), n),
    "threshold": lambda x, n: F.threshold(x, n, n),
    "scatter": lambda x, n: x.scatter(0, _index(x), n),
    "scatter_cols": lambda x, n: x.scatter(1, _index(x).t(), n),
    "scatter_many": lambda x, n: x.scatter(0, torch.zeros(2, x.shape[1], dtype=torch.int64), n),
    "scatter_add": lambda x, n: x.scatter(0, _index(x), n, reduce="add"),
    "scatter_multiply": lambda x, n: x.scatter(0, _index(x), n, reduce="multiply"),
    "pad": lambda x, n: F.pad(x, (1, 2), value=n),
    "hardtanh": lambda x, n: F.hardtanh(x, -n, n),
    "addcmul": lambda x, n: torch.addcmul(x, x, x, value=n),
    "arange": lambda x, n: torch.arange(n) + x.sum(),
    "arange_step": lambda x, n: torch.arange(0, 20, n) + x.sum(),
    "linspace": lambda x, n: torch.linspace(0, n, 5),
    "linspace_from": lambda x, n: torch.linspace(n, 50, 5),
    "logical_xor": lambda x, n: x.logical_xor(x == n),
    "isclose": lambda x, n: torch.isclose(x, torch.full_like(x, n)),
    "maximum": lambda x, n: x.maximum(x.new_tensor(3) * n),
    "copysign": lambda x, n: torch.copysign(x, n),
    "xlogy": lambda x, n: torch.xlogy(x.abs(), n),
    "xlogy_self": lambda x, n: torch.xlogy(n, x.abs() + 1),
    "float_power": lambda x, n: torch.float_power(x.abs(), n),
    "fill_slice": lambda x, n: x.clone().index_put((torch.tensor([0]),), x.new_tensor(1) * n),
    "index_put": lambda x, n: torch.ops.aten.index_put(x, [torch.tensor([0])], torch.full((), n, dtype=x.dtype)),
    "select_scatter": lambda x, n: x.select_scatter(torch.full_like(x[0], n), 0),
    "threshold_backward": lambda x, n: aten.threshold_backward(x, x, n),
    "hardtanh_backward": lambda x, n: aten.hardtanh_backward(x.float(), x.float(), -n, n),
    "zeta": lambda x, n: torch.special.zeta(x.abs() + 2, n),
    "zeta_self": lambda x, n: torch.special.zeta(n + 1, x.abs()),
    "xlog1py": lambda x, n: torch.special.xlog1py(x.abs(), n),
    "atan2": lambda x, n: torch.atan2(x, torch.full_like(x, n)),
    "addmm_beta": lambda x, n: torch.addmm(x, x[:, :1], x[:1], beta=n, alpha=n),
    "baddbmm": lambda x, n: torch.baddbmm(x[None], x[None, :, :1], x[None, :1], beta=n, alpha=n),
    "index_add": lambda x, n: x.index_add(0, torch.tensor([0]), x[:1], alpha=n),
    "embedding_norm": lambda x, n: torch.renorm(x.float(), 2, 0, n),
}
# Of floating-point numbers.
FLOATING: dict[str, Callable[..., Tensor]] = {
    "pow": lambda x, n: x.abs() ** n,
    "leaky_relu": lambda x, n: F.leaky_relu(x, n),
    "elu": lambda x, n: F.elu(x, n),
    "celu": lambda x, n: F.celu(x, n),
    "softplus": lambda x, n: F.softplus(x, n, n),
    "lerp": lambda x, n: x.lerp(x * 2, n),
    "addcdiv": lambda x, n: torch.addcdiv(x, x, x.abs() + 1, value=n),
    "softshrink": lambda x, n: F.softshrink(x, n),
    "hardshrink": lambda x, n: F.hardshrink(x, n),
    "logit": lambda x, n: torch.logit(x.sigmoid(), 1 / (n + 5)),
    "huber": lambda x, n: F.huber_loss(x, -x, delta=n),
    "smooth_l1": lambda x, n: F.smooth_l1_loss(x, -x, beta=n),
    "nan_to_num": lambda x, n: torch.nan_to_num(x / 0, n, n, n),
    "norm": lambda x, n: torch.linalg.vector_norm(x, n),
    "normalize": lambda x, n: F.normalize(x, eps=n),
    "layer_norm": lambda x, n: F.layer_norm(x, x.shape[1:], eps=n),
    "group_norm": lambda x, n: F.group_norm(x, 1, eps=n),
    "dist": lambda x, n: torch.dist(x, -x, n),
    "cdist": lambda x, n: torch.cdist(x, -x, n),
    "std": lambda x, n: torch.std(x, correction=n),
    "var": lambda x, n: torch.var(x, 1, correction=n),
    "cosine": lambda x, n: F.cosine_similarity(x, -x, eps=n),
    "leaky_relu_backward": lambda x, n: aten.leaky_relu_backward(x, x, n, False),
    "elu_backward": lambda x, n: aten.elu_backward(x, n, n, n, False, x),
    "softplus_backward": lambda x, n: aten.softplus_backward(x, x, n, n),
    "logit_backward": lambda x, n: aten.logit_backward(x, x.sigmoid(), 1 / (n + 5)),
    "rms_norm": lambda x, n: F.rms_norm(x, x.shape[1:], eps=n),
    "softmax": lambda x, n: (x / n).softmax(-1),
    "batch_norm": lambda x, n: F.batch_norm(x, None, None, training=True, eps=n),
    "dropout_backward": lambda x, n: aten.native_dropout_backward(x, x > 0, n),
    "prelu": lambda x, n: F.prelu(x, x.new_full((1,), n)),
    "rrelu": lambda x, n: F.rrelu(x, n, n),
    "mish": lambda x, n: F.mish(x * n),
    "margin": lambda x, n: F.margin_ranking_loss(x, -x, x.sign(), margin=n),
    "triplet": lambda x, n: F.triplet_margin_loss(x, -x, x * 2, margin=n),
    "cosine_loss": lambda x, n: F.cosine_embedding_loss(x, -x, x[:, 0].sign(), margin=n),
    "hinge": lambda x, n: F.hinge_embedding_loss(x, x.sign(), margin=n),
    "gaussian": lambda x, n: F.gaussian_nll_loss(x, -x, x.abs() + 1, eps=n),
    "poisson": lambda x, n: F.poisson_nll_loss(x, x.abs(), log_input=False, eps=n),
}
