"""Views of every kind."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from program import LARGE, NONEMPTY, P, cube, matrix, normal, vector

VIEWS = [
    P("merge after transpose", lambda x: x.transpose(0, 1).reshape(-1) * 2, cube, gradient=True),
    P(
        "split dim",
        lambda x: x.view(x.shape[0] // 4, 4, -1) + 1,
        lambda n: (normal(4 * n, 3),),
        NONEMPTY,
        gradient=True,
    ),
    P("merge first two", lambda x: x.reshape(-1, 5).exp(), cube, gradient=True),
    P("merge last two", lambda x: x.reshape(x.shape[0], -1).sin(), cube, NONEMPTY, gradient=True),
    P("regroup", lambda x: (x + 1).reshape(x.shape[1], x.shape[0]) * 2, matrix, gradient=True),
    P("regroup digits", lambda x: (x + 1).reshape(2, -1, 3).sum(1), lambda n: (normal(n, 6),), gradient=True),
    P("permute", lambda x: x.permute(2, 0, 1) + 1, cube, gradient=True),
    P("permute contiguous", lambda x: x.permute(2, 0, 1).contiguous() + 1, cube, gradient=True),
    P(
        "permute view back",
        lambda x: (x.permute(1, 0, 2).reshape(x.shape[1], -1) * 2).view(x.shape[1], x.shape[0], 5).permute(1, 0, 2),
        cube,
        gradient=True,
    ),
    P("expand", lambda x: x.unsqueeze(1).expand(-1, 4, -1) * 2, matrix, gradient=True),
    P("expand symbolic", lambda x: x[:, None].expand(x.shape[0], x.shape[0]) - x, vector, gradient=True),
    P("expand then merge", lambda x: x[:, None].expand(-1, x.shape[0]).reshape(-1) + 1, vector, gradient=True),
    P(
        "repeat heads",
        lambda x: x[:, :, None].expand(-1, -1, 3, -1).reshape(x.shape[0], -1, x.shape[2]) * 2,
        cube,
        NONEMPTY,
        gradient=True,
    ),
    P("slice half", lambda x: x[: x.shape[0] // 2] * 2, matrix, gradient=True),
    P("slice second half", lambda x: x[x.shape[0] // 2 :] * 2, matrix, gradient=True),
    P(
        "rotate half",
        lambda x: torch.cat([-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]], -1),
        lambda n: (normal(3, 2 * n),),
        gradient=True,
    ),
    P("slice bounds beyond", lambda x: x[2:1000] + x[:3].sum(), matrix, gradient=True),
    P("slice negative", lambda x: x[-3:] + 1, matrix, gradient=True),
    P("slice both negative", lambda x: x[-3:-1] + 1, matrix, gradient=True),
    P("slice negative end", lambda x: x[:-1] * x[1:], lambda n: (normal(n + 1),), gradient=True),
    P("slice step", lambda x: x[::2, 1::3] * 2, matrix, gradient=True),
    P("slice symbolic bounds", lambda x, y: x[: y.shape[0]] * y, lambda n: (normal(n + 4), normal(n)), gradient=True),
    P("slice of slice", lambda x: x[1:][2:][::2] + 1, vector, gradient=True),
    P("flip", lambda x: x.flip(0) + x, matrix, gradient=True),
    P("flip both", lambda x: x.flip(0, 1).cumsum(0), matrix),
    P("roll", lambda x: x.roll(1, 0) - x, matrix, NONEMPTY),
    P("unbind", lambda x: sum(part * i for i, part in enumerate(x.unbind(2))), cube, gradient=True),
    P("chunk", lambda x: [c * 2 for c in x.chunk(2, 1)], lambda n: (normal(n, 10),), gradient=True),
    P("chunk glu", lambda x: F.glu(x, -1), lambda n: (normal(3, 2 * n),), NONEMPTY, gradient=True),
    P("split sizes", lambda x: [p + 1 for p in x.split([1, 2, 3], 1)], lambda n: (normal(n, 6),), gradient=True),
    P(
        "split symbolic",
        lambda x: [p + 1 for p in x.split([x.shape[0] // 3, x.shape[0] - x.shape[0] // 3])],
        matrix,
        gradient=True,
    ),
    P("select last", lambda x: x[-1] + x[0], matrix, NONEMPTY, gradient=True),
    P("select middle", lambda x: x[x.shape[0] // 2] * 2, matrix, NONEMPTY, gradient=True),
    P("squeeze", lambda x: x.unsqueeze(0).squeeze(0) * 2, matrix, gradient=True),
    P("squeeze all", lambda x: x.sum(1, keepdim=True).squeeze() * 2, matrix, LARGE),
    P("unflatten", lambda x: x.unflatten(0, (-1, 2)).sum(1), lambda n: (normal(2 * n, 3),), gradient=True),
    P("flatten", lambda x: x.flatten() + 1, cube, gradient=True),
    P("movedim", lambda x: x.movedim(0, -1) * 2, cube, gradient=True),
    P("diagonal", lambda x: x.diagonal() * 2, lambda n: (normal(n, n),), gradient=True),
    P("narrow", lambda x: x.narrow(0, 1, x.shape[0] - 1) * 2, matrix, NONEMPTY, gradient=True),
    P("as_strided", lambda x: (x + 1).as_strided((x.shape[0] - 2, 3), (1, 1)), lambda n: (normal(n + 2),)),
    P("unfold", lambda x: x.unfold(0, 3, 1).sum(1), lambda n: (normal(n + 2),), NONEMPTY, gradient=True),
    P(
        "space to depth",
        lambda x: x.view(x.shape[0], -1, 2, 3, 2).permute(0, 2, 4, 1, 3).reshape(x.shape[0], 4, -1) * 2,
        lambda n: (normal(n, 12 * n),),
        NONEMPTY,
        gradient=True,
    ),
    P("view dtype", lambda x: x.view(torch.int32) + 1, matrix),
    P(
        "multi head",
        lambda x: (
            x.view(x.shape[0], x.shape[1], 2, 4)
            .transpose(1, 2)
            .softmax(-1)
            .transpose(1, 2)
            .reshape(x.shape[0], x.shape[1], 8)
        ),
        lambda n: (normal(n, n + 1, 8),),
        gradient=True,
    ),
    P("T", lambda x: x.T @ x, matrix, gradient=True),
    P("triu", lambda x: x.triu() + x.tril(-1), matrix, gradient=True),
    P("swap and add", lambda x: x + x.T, lambda n: (normal(n, n),), gradient=True),
    P("transposed out", lambda x: (x * 2).t(), matrix, gradient=True),
    P("stack views", lambda x: torch.stack([x[:, 0], x[:, 1], x.sum(1)], 1), matrix, gradient=True),
    P("window merge", lambda x: x[1:-1, 1:-1].reshape(-1) * 2, lambda n: (normal(n + 2, n + 4),), gradient=True),
    P("reshape of slice", lambda x: (x * 2)[1:, :4].reshape(-1, 2).sum(1), matrix, NONEMPTY, gradient=True),
    P("merge three split two", lambda x: (x + 1).reshape(-1).view(5, -1).sum(1), cube, gradient=True),
    P("view of sum", lambda x: x.sum(2).view(-1)[1:] * 2, cube, NONEMPTY, gradient=True),
]
