"""Control flow, graph breaks, autocast, transforms, other dtypes and layouts."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from program import BF16, NONEMPTY, P, integers, matrix, normal, vector


def conditional(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos() * 2, (x,))


def conditional_on_size(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.shape[0] > 10, lambda x: x * 2, lambda x: x - 1, (x,))


def loop(x: torch.Tensor) -> torch.Tensor:
    from torch._higher_order_ops.while_loop import while_loop

    return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2 + 1), (torch.tensor(0), x))[1]


def broken(x: torch.Tensor) -> torch.Tensor:
    y = x.exp() + x.shape[0]
    torch._dynamo.graph_break()
    return y.sum(0) * y.shape[0]


def autocast(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=BF16):
        return F.softmax(x @ w, -1) + F.gelu(x @ w)


def without_gradient(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    with torch.no_grad():
        y = x * 2
    return y, x * y


def autograd_inside(x: torch.Tensor) -> torch.Tensor:
    return torch.func.grad(lambda t: (t**3).sum())(x) + torch.func.vmap(lambda row: row.softmax(0))(x)


W4, B4 = torch.full((16, 4), 0.1), torch.zeros(16)
WORLD = [
    P("cond", conditional, matrix),
    P("cond on size", conditional_on_size, matrix),
    P("while loop", loop, matrix),
    P("graph break", broken, matrix, gradient=True),
    P("autocast", autocast, lambda n: (normal(n, 8), normal(8, n + 3)), NONEMPTY),
    P("no grad inside", without_gradient, matrix, gradient=True),
    P("functional transforms", autograd_inside, matrix, NONEMPTY),
    P(
        "checkpoint",
        lambda x: torch.utils.checkpoint.checkpoint(lambda t: t.exp().softmax(1), x, use_reentrant=False),
        matrix,
        gradient=True,
    ),
    P("complex", lambda x: torch.fft.fft(x).abs() + x, matrix, NONEMPTY),
    P(
        "complex arithmetic",
        lambda x: (x * (1 + 2j)).real + torch.view_as_real(x)[..., 1],
        lambda n: (torch.complex(normal(n, 3), normal(n, 3)),),
    ),
    P(
        "rotary complex",
        lambda x: torch.view_as_real(torch.view_as_complex(x.view(x.shape[0], -1, 2)) * 1j).flatten(1),
        lambda n: (normal(n, 6),),
        NONEMPTY,
    ),
    P("sparse", lambda x: (x @ torch.ones(x.shape[1], 2)) * 2, lambda n: (normal(n, 4).relu().to_sparse(),), NONEMPTY),
    P("unsigned wide", lambda x: x.to(torch.int64) + 1, lambda n: (integers(n, low=0, high=99).to(torch.uint32),)),
    P("float8", lambda x: x.to(torch.float8_e4m3fn).float() * 2, matrix),
    P("set data", lambda x: torch.tensor([1.0, 2.0, 3.0]) + x, lambda n: (normal(n, 3),)),
    P("numpy", lambda x: torch.from_numpy(x.numpy() * 2) + 1, matrix),
    P("linalg", lambda x: torch.linalg.solve(x @ x.T + torch.eye(x.shape[0]), x), matrix, (7, 16, 2, 1)),
    P(
        "lstm",
        lambda x, h: torch.lstm_cell(x, (h, h), W4, W4, B4, B4)[0] * 2,
        lambda n: (normal(n, 4), normal(n, 4)),
        NONEMPTY,
    ),
    P("bincount", lambda x: torch.bincount(x, minlength=5) + 1, lambda n: (integers(n, low=0, high=5),), NONEMPTY),
    P("histogram", lambda x: torch.histc(x, 5) + 1, vector, NONEMPTY),
    P(
        "ctc shaped loop",
        lambda x: torch.stack([x[:, i].logsumexp(0) for i in range(3)]),
        matrix,
        NONEMPTY,
        gradient=True,
    ),
]
