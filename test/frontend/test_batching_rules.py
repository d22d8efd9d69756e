"""``vmap`` of operators whose batching rules in C++ make numbers of sizes: one graph serves batches of all sizes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import grad, jacfwd, jacrev, jvp, vmap

import symshape
from symshape.errors import CompileError
from symshape.tools.measure import Graphs

Function = Callable[[Tensor, Tensor], Tensor]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield
    torch._dynamo.reset()


def _scattered(x: Tensor, w: Tensor) -> Tensor:
    rows = torch.tensor([[0, 1, 0]])
    added = x.scatter_add(0, rows, w).scatter(-1, rows[:, :2], 3.0)
    return x.scatter_reduce(0, rows, w, "sum") + added + x.scatter(0, rows, w)


def _indexed(x: Tensor, w: Tensor) -> Tensor:
    rows = torch.tensor([0, 2])
    added = x.index_add(1, rows, w[:, :2].expand(2, 2)).index_copy(0, rows[:1], w).index_fill(1, rows[1:], 0.5)
    return added.index_select(1, rows) + x.gather(1, torch.tensor([[0, 0], [2, 1]])) + x[:, 0].gather(0, rows[0])


def _pooled(x: Tensor, w: Tensor) -> Tensor:
    small = F.avg_pool2d(x, 2) * w + F.max_pool2d(x, 2) + F.adaptive_avg_pool2d(x, 2)
    return small + F.adaptive_max_pool2d(x, 2) + F.interpolate(small, size=(2, 2), mode="bicubic")


def _padded(x: Tensor, w: Tensor) -> Tensor:
    wide = F.pad(x, (1, 2, 1, 1), mode="reflect") * w + F.pad(x, (1, 2, 1, 1), mode="replicate")
    return F.interpolate(wide, scale_factor=2, mode="bilinear").mean() + F.interpolate(wide, size=(5, 3))


def _patches(x: Tensor, w: Tensor) -> Tensor:
    columns = F.unfold(x, 2) * w
    return F.fold(columns, (4, 4), 2) + F.grid_sample(x, x[:, :2].movedim(1, -1).tanh(), align_corners=False)


def _attended(x: Tensor, w: Tensor) -> Tensor:
    causal = F.scaled_dot_product_attention(x, x * w[0], x, is_causal=True)
    return causal + F.scaled_dot_product_attention(x, x, x, attn_mask=w[:, :3])


def _normalised(x: Tensor, w: Tensor) -> Tensor:
    layers = F.layer_norm(x.movedim(1, -1), (4,), w, w).movedim(-1, 1)
    return layers + F.batch_norm(x, None, None, w, w, True) + F.group_norm(x, 2, w, w) + F.instance_norm(x, weight=w)


def _looked_up(x: Tensor, w: Tensor) -> Tensor:
    return F.embedding(torch.tensor([[0, 2], [2, 1]]), w, padding_idx=1) * x.sum() / x.size(0)


def _activated(x: Tensor, w: Tensor) -> Tensor:
    gates = F.glu(x, -1) + F.logsigmoid(x)[..., :2]
    return gates * w + F.gelu(x)[..., :2] + F.gelu(x, approximate="tanh")[..., 2:]


def _fitted(x: Tensor, w: Tensor) -> Tensor:
    found = F.bilinear(x, x.sin(), w, w[:, 0, 0]) * x.quantile(0.3, dim=1, keepdim=True)
    return found + torch.linalg.lstsq(x[:, :2], x[:, 2:]).solution.mT + torch.nanquantile(w, 0.7)


def _cross_entropies(x: Tensor, w: Tensor) -> Tensor:
    likely, target = x.sigmoid(), w.sigmoid()
    weighted = F.binary_cross_entropy(likely, target, w.detach().exp(), reduction="sum")
    whole = F.binary_cross_entropy(likely, target) + weighted
    return whole + F.binary_cross_entropy(likely, target.detach(), reduction="none")


def _with_written_rows(x: Tensor, w: Tensor) -> Tensor:
    y = x + w
    y[0] = y[1] + w
    y[:, 1:].mul_(2)
    return y


# A function, and the sizes of its two arguments for one in the batch.
PROGRAMS: dict[str, tuple[Function, tuple[int, ...], tuple[int, ...]]] = {
    "convolution": (lambda x, w: F.conv2d(x, w, w[:, 0, 0, 0], padding=1), (2, 3, 5, 4), (4, 3, 3, 3)),
    "of groups": (lambda x, w: F.conv1d(x, w, groups=2, stride=2), (2, 4, 6), (4, 2, 3)),
    "transposed": (lambda x, w: F.conv_transpose2d(x, w, stride=2), (2, 3, 4, 4), (3, 4, 3, 3)),
    "transposed, of groups": (lambda x, w: F.conv_transpose1d(x, w, groups=2), (2, 4, 6), (4, 2, 3)),
    "one image": (lambda x, w: F.conv2d(x, w), (3, 5, 4), (4, 3, 3, 3)),
    "scatter": (_scattered, (2, 3), (1, 3)),
    "gather": (_indexed, (2, 3), (1, 3)),
    "pooling": (_pooled, (2, 3, 4, 4), (2,)),
    "padding": (_padded, (2, 3, 4, 4), (7,)),
    "patches": (_patches, (2, 3, 4, 4), (9,)),
    "attention": (_attended, (2, 2, 3, 4), (3, 4)),
    "attention of one": (_attended, (3, 4), (3, 4)),
    "norms": (_normalised, (3, 4, 5), (4,)),
    "embedding": (_looked_up, (3,), (4, 3)),
    "linear": (lambda x, w: F.linear(x, w, w[:, 0]), (3, 5, 4), (2, 4)),
    "cross entropy": (lambda x, w: F.cross_entropy(x, torch.tensor([0, 2, 1])) * w, (3, 4), (2,)),
    "solve": (lambda x, w: torch.linalg.solve(x @ x.mT + 2 * torch.eye(3), w), (3, 3), (3,)),
    "solve for columns": (lambda x, w: torch.linalg.solve(x @ x.mT + 2 * torch.eye(3), w), (2, 3, 3), (2, 3, 4)),
    "cat": (lambda x, w: torch.cat([x, w, x], -1).cross(torch.hstack([w, x, x]), dim=0), (3, 2), (3, 1)),
    "masked_scatter": (lambda x, w: x.masked_scatter(x > 0, w), (2, 3), (6,)),
    "fitted": (_fitted, (4, 3), (2, 3, 3)),
    "kl_div": (lambda x, w: F.kl_div(x, w.sigmoid(), reduction="batchmean"), (2, 3), (2, 3)),
    "activations": (_activated, (3, 4), (2,)),
    "binary cross entropy": (_cross_entropies, (2, 3), (2, 3)),
    "writes": (_with_written_rows, (2, 3), (3,)),
    "pixels": (lambda x, w: F.pixel_shuffle(x, 2) * w, (2, 4, 3, 3), (6,)),
}

# A transform, and which of the arguments have the batch.
TRANSFORMS: dict[str, tuple[Callable[[Function], Any], tuple[bool, bool]]] = {
    "the second": (lambda f: vmap(f, in_dims=(None, 0)), (False, True)),
    "gradients": (lambda f: vmap(grad(lambda x, w: f(x, w).sin().sum(), (0, 1))), (True, True)),
}


def _arguments(name: str, has_batch: tuple[bool, bool], batch: int) -> list[Tensor]:
    _, *sizes = PROGRAMS[name]
    return [torch.randn(batch, *size) if has else torch.randn(size) for has, size in zip(has_batch, sizes)]


def _check(compiled: Any, transformed: Any, name: str, has_batch: tuple[bool, bool]) -> None:
    torch.manual_seed(0)
    for batch in (3, 5, 1):
        given = _arguments(name, has_batch, batch)
        torch.testing.assert_close(compiled(*given), transformed(*given), rtol=1e-4, atol=1e-4)


@pytest.mark.sample(5)
@pytest.mark.parametrize("how", TRANSFORMS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_entry(name: str, how: str) -> None:
    transform, has_batch = TRANSFORMS[how]
    transformed = transform(PROGRAMS[name][0])
    jitted = symshape.jit(transformed)
    _check(jitted, transformed, name, has_batch)
    assert len(jitted.entries) == 1


@pytest.mark.parametrize("name", ["convolution", "gather", "scatter", "solve", "attention", "norms", "padding"])
def test_one_graph(name: str) -> None:
    transform, has_batch = TRANSFORMS["gradients"]
    transformed = transform(PROGRAMS[name][0])
    with Graphs() as graphs:
        _check(symshape.compile(transformed), transformed, name, has_batch)
    assert graphs.graphs == 1 and not graphs.breaks


def test_one_graph_of_a_linear_layer() -> None:
    transform, has_batch = TRANSFORMS["the second"]
    transformed = transform(PROGRAMS["linear"][0])
    with Graphs() as graphs:
        _check(symshape.compile(transformed), transformed, "linear", has_batch)
    assert graphs.graphs == 1 and not graphs.breaks


def test_second_derivatives_through_what_forward_saved() -> None:
    curvature = vmap(jacfwd(jacrev(lambda x: F.logsigmoid(x).sum())))
    x = torch.randn(3, 4)
    expected = torch.diag_embed(x.sigmoid() * (x.sigmoid() - 1))
    torch.testing.assert_close(symshape.compile(curvature)(x), expected)


@pytest.mark.long
def test_a_batch_of_batches_and_other_dims() -> None:
    def transformed(x: Tensor, w: Tensor) -> Any:
        function = PROGRAMS["convolution"][0]
        tangents = vmap(lambda a, b: jvp(function, (a, b), (a, b))[1], in_dims=(1, 0))
        return tangents(x, w), vmap(vmap(function, in_dims=(None, 0)), in_dims=(1, None), out_dims=1)(x, w)

    jitted = symshape.jit(transformed)
    for batch in (3, 2):
        x, w = torch.randn(2, batch, 3, 5, 4), torch.randn(batch, 4, 3, 3, 3)
        torch.testing.assert_close(jitted(x, w), transformed(x, w), rtol=1e-4, atol=1e-4)
    assert len(jitted.entries) == 1


def test_what_is_written_in_place() -> None:
    def each(x: Tensor, w: Tensor) -> Tensor:
        rows = torch.tensor([[0, 1, 0]])
        y = x.clone().scatter_add_(0, rows, w).scatter_(1, rows[:, :1], 7.0)
        return y.index_add_(1, torch.tensor([2, 0]), w[:, :2].expand(2, 2)).index_fill_(0, torch.tensor([1]), 2.0)

    jitted = symshape.jit(vmap(each))
    for batch in (3, 1):
        x, w = torch.randn(batch, 2, 3), torch.randn(batch, 1, 3)
        torch.testing.assert_close(jitted(x, w), vmap(each)(x, w))
    assert len(jitted.entries) == 1


def test_what_has_no_rule_is_an_error_of_ours() -> None:
    with pytest.raises(CompileError, match="with symbolic sizes"):
        symshape.jit(vmap(lambda x: torch.linalg.multi_dot([x, x, x])))(torch.randn(4, 3, 3))


def test_the_users_own_words_stay() -> None:
    def refuses(x: Tensor) -> Tensor:
        raise ValueError(f"no {x}")

    x = torch.ones(2)
    with pytest.raises(ValueError, match=re.escape(f"no {x}")):
        symshape.jit(refuses)(x)
