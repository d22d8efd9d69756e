"""Functions whose C++ takes a float: one graph for all numbers that are made of sizes, with eager mode's results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.utils import counters

import symshape

Tensor = torch.Tensor
WEIGHT, LABELS = torch.linspace(0.5, 2, 4), torch.tensor([3, 0, -100, 1])


def normalisations(x: Tensor) -> tuple[Tensor, ...]:
    eps, running = 1 / (x.shape[1] + 1), [torch.zeros(4), torch.ones(4)]
    y = x.t()
    return (
        F.layer_norm(y, (4,), WEIGHT, eps=eps),
        F.rms_norm(x, (x.shape[1],), eps=eps),
        F.group_norm(x[None], 2, WEIGHT, WEIGHT, eps),
        F.batch_norm(y, WEIGHT, WEIGHT, WEIGHT, training=False, eps=eps),
        F.batch_norm(torch.cat([y, y]), *running, training=True, momentum=eps),
        F.instance_norm(torch.stack([x, x + 1], -1).transpose(0, 1), eps=eps),
        F.cosine_similarity(x, x + 2, eps=eps),
        *running,
    )


def losses(x: Tensor) -> tuple[Tensor, ...]:
    number, y = 1 / (x.shape[1] + 1), x * 2 + 1
    signs = torch.tensor([1.0, -1, -1, 1])
    return (
        F.huber_loss(x, y, delta=number),
        F.smooth_l1_loss(x, y, beta=number, reduction="sum"),
        F.margin_ranking_loss(x, y, signs[:, None], margin=number),
        F.hinge_embedding_loss(x, signs[:, None].expand(x.shape), margin=number),
        F.cosine_embedding_loss(x, y, signs, margin=number),
        F.triplet_margin_loss(x, y, x.flip(0), margin=number, p=1 + number, swap=True),
        F.poisson_nll_loss(x.exp(), y.abs(), log_input=False, eps=number, full=True),
        F.pairwise_distance(x, y, p=1 + number, eps=number),
    )


def smoothed(x: Tensor) -> tuple[Tensor, ...]:
    number, y = 1 / (x.shape[1] + 1), x[:, :1] * WEIGHT + x.sum(1, True)
    return (
        F.cross_entropy(y, LABELS, label_smoothing=number),
        F.cross_entropy(y, LABELS, WEIGHT, label_smoothing=number),
        F.cross_entropy(y, LABELS, reduction="none", label_smoothing=number),
        F.cross_entropy(y, y.softmax(1), label_smoothing=number),
        F.cross_entropy(y[0], LABELS[0], label_smoothing=number, reduction="sum"),
    )


def distances(x: Tensor) -> tuple[Tensor, ...]:
    """Of each row from itself too."""
    order = 1.6 + 1 / (x.shape[1] + 1)
    return torch.cdist(x, x.flip(0), p=order), F.pdist(x * 2, p=order)


def selected(x: Tensor) -> tuple[Tensor, ...]:
    number, gaps = 1 / (x.shape[1] + 1), x / (x > 0)
    return (
        x.quantile(number),
        torch.quantile(x, number, 1, True, interpolation="nearest"),
        torch.nanquantile(gaps, 1 - number, dim=0),
        gaps.nan_to_num(number, neginf=-number),
        x.sigmoid().logit(number),
        torch.isclose(x, x * 1.1, rtol=number, atol=number * 0.1).float(),
        torch.float_power(x, 2 + number),
        torch.trapezoid(x, dx=number, dim=0),
        torch.cumulative_trapezoid(x, dx=number, dim=0),
        torch.fft.fftfreq(8, d=number) * torch.kaiser_window(8, True, number),
    )


def attention(x: Tensor) -> Tensor:
    y = x.t()[None, None].contiguous()
    return F.scaled_dot_product_attention(y, y + 1, y * 2, is_causal=True, scale=1 / (x.shape[1] + 1))


def resized(x: Tensor) -> tuple[Tensor, ...]:
    factor = (x.shape[1] + 3) / x.shape[1]
    images = x[None, None]
    return (
        F.interpolate(x[None], scale_factor=factor),
        F.interpolate(images, scale_factor=(2.0, factor), mode="nearest-exact"),
        F.interpolate(images, scale_factor=factor, mode="bilinear"),
        F.interpolate(images, scale_factor=factor, mode="bicubic", align_corners=True),
    )


def drawn(x: Tensor) -> tuple[Tensor, ...]:
    number = 1 / (x.shape[1] + 1)
    return (
        F.dropout(x, number),
        F.alpha_dropout(x, number, training=True),
        F.dropout1d(x[None], number),
        F.dropout(x, number, training=False),
        torch.bernoulli(x.detach(), number),
        x.detach().clone().bernoulli_(number),
        x.detach().clone().uniform_(-number, to=number),
        torch.empty(3).normal_(number, std=number),
        torch.normal(0.0, number, (5,)) + torch.normal(torch.arange(5.0), number),
        torch.empty(3).exponential_(number),
    )


def strides(x: Tensor) -> list[int]:
    return [stride for stride, size in zip(x.stride(), x.shape) if size != 1]


FUNCTIONS = (normalisations, losses, smoothed, distances, selected, attention, resized, drawn)
OF_ONE = (normalisations, resized)  # the norm of one number, an image that keeps its height


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "area"])
def test_images_grow_by_any_integer(mode: str) -> None:
    """Also where a dim keeps its size, and where it is doubled."""

    def function(x: Tensor, factor: int) -> Tensor:
        return F.interpolate(x, scale_factor=factor, mode=mode) + F.interpolate(x, None, (factor, factor), mode)

    torch._dynamo.reset()
    counters.clear()
    compiled = symshape.compile(function)
    for factor in (3, 2, 1, 5):
        x = torch.randn(1, 2, 3, 4)
        torch.testing.assert_close(compiled(x, factor), function(x, factor))
    assert counters["stats"]["unique_graphs"] == 1 and not counters["graph_break"]


@pytest.mark.sample(7)
@pytest.mark.parametrize("compile", [symshape.compile, symshape.jit])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_numbers_made_of_sizes(function: Callable[..., Any], compile: Callable[..., Any]) -> None:
    torch._dynamo.reset()
    compiled: Any = compile(function)
    counters.clear()
    for size in (5, 1, 2, 19):
        found = []
        for run in (compiled, function):
            torch.manual_seed(size)
            x = torch.linspace(-2, 3, 4 * size).sin().view(4, size).requires_grad_()
            results = run(x)
            results = results if isinstance(results, tuple) else (results,)
            sum(one.nan_to_num().square().sum() for one in results if one.requires_grad).backward()
            found.append((*results, x.grad))
            assert [*map(strides, results)] == [*map(strides, found[0][:-1])]
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5, equal_nan=True)
    graphs = len(compiled.entries) if compile is symshape.jit else counters["stats"]["unique_graphs"]
    assert graphs == (2 if function in OF_ONE else 1)


def test_numbers_that_are_arguments() -> None:
    def function(x: Tensor, number: float) -> tuple[Tensor, ...]:
        return F.layer_norm(x, (4,), eps=number), F.huber_loss(x, x * 2, delta=number), x.quantile(number)

    torch._dynamo.reset()
    counters.clear()
    compiled = symshape.compile(function)
    for number in (0.5, 0.25, 0.7):
        x = torch.randn(3, 4)
        torch.testing.assert_close(compiled(x, number), function(x, number))
    assert counters["stats"]["unique_graphs"] == 1


def arguments_of_operators(x: Tensor, number: float) -> tuple[Tensor, ...]:
    return (
        x.clamp(-number, number),
        F.hardtanh(x, -number, number),
        x.abs().pow(number),
        x.masked_fill(x > 0, number),
        x.sigmoid().logit(number),
        torch.tensor(number) * x,
    )


def factors(x: Tensor, number: float) -> tuple[Tensor, ...]:
    y = x.detach().cos() + 2
    return (
        torch.lerp(x, y, 1 - number),
        torch.add(x, y, alpha=number),
        torch.sub(y, x, alpha=number),
        x.addcmul(x, y, value=number),
        x.addcdiv(x, y, value=number),
        F.threshold(x, number, 0.5),
        F.threshold(x, 0.1, number),
        x.scatter(1, torch.tensor([[0], [2], [1]]), number),
        torch.index_add(x, 0, torch.tensor([1, 0]), y[:2], alpha=number),
        *torch._foreach_add([x, y], [y, x], alpha=number),  # a list of tensors that an optimizer writes
        x + (y.half() * 0 + 1).add(y.half() * 0, alpha=number),
    )


def rounded_and_raised(x: Tensor, number: float) -> tuple[Tensor, ...]:
    y = x.detach() * 3
    return number**x, y.fmod(number), y % number, y // number, y.copysign(-number), torch.xlogy(y.abs(), number)


def filled(x: Tensor, number: float) -> tuple[Tensor, ...]:
    y = torch.empty_like(x)
    return (
        torch.full((x.shape[0],), number),
        x.new_full((3,), number),
        F.dropout(x, number),
        y.uniform_(0, number) * 1,
        y.normal_(0, number) * 1,
        y.geometric_(number) * 1,
        y.cauchy_(number, number) * 1,
        y.log_normal_(number, number) * 1,
        x.fill_diagonal_(number),
    )


def products(x: Tensor, number: float) -> tuple[Tensor, ...]:
    return torch.addmm(x.new_ones(4, 4), x, x.t(), beta=number, alpha=number), torch.addmv(
        x[:, 0], x, x[0], alpha=number
    )


def corrections(x: Tensor, number: float) -> tuple[Tensor, ...]:
    return (
        x.var(1, correction=6 * number),
        x.std(correction=number),
        *torch.var_mean(x, (0, 1), correction=number, keepdim=True),
        *torch.std_mean(x.double(), 0, correction=number),
        F.pad(x, (1, -1, 0, 2), value=number),
        F.pad(x.t(), (1, 2), value=-number),
        x.detach().histc(4, -number, number),
    )


def sizes(x: Tensor, number: float) -> tuple[Tensor, ...]:
    kept = max(1, x.shape[1] - int(x.shape[1] * number))
    return (
        x[:, : int(number * x.shape[1])].sum(1),
        x.topk(kept, 1).values,
        x.new_zeros(kept, round(number * 10)) + number,
        torch.arange(0, 2, number),
        F.interpolate(x[None], scale_factor=number, mode="linear", recompute_scale_factor=True),
    )


def unread(x: Tensor, number: float) -> tuple[Tensor, ...]:
    running = torch.zeros(6), torch.ones(6)
    F.batch_norm(x, *running, training=True, momentum=number)
    return F.dropout(x, number, training=False) * 2, F.poisson_nll_loss(x, x, eps=number)


PROGRAMS = (arguments_of_operators, factors, rounded_and_raised, filled, products, corrections, sizes, unread)


@pytest.mark.parametrize(
    ("function", "gradient"),
    [(one, gradient) for one in PROGRAMS for gradient in (False, True)],
)
def test_arguments_that_change_are_one_graph(function: Callable[..., Any], gradient: bool) -> None:
    """Under plain ``torch.compile`` a second one, for the value of the first call."""
    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(function, backend="symshape", fullgraph=True)
    for number in (0.5, 0.25, 0.75, 0.3):
        x, found = torch.randn(4, 6), []
        for run in (function, compiled):
            torch.manual_seed(0)
            leaf = x.clone().requires_grad_(gradient)
            results = run(leaf * 1, number)
            if gradient:
                sum(one.square().sum() for one in results if one.requires_grad).backward()
            found.append([*results, leaf.grad, torch.get_rng_state()])
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
    assert counters["stats"]["unique_graphs"] == 2


def test_sizes_that_are_made_of_an_argument() -> None:
    torch._dynamo.reset()
    counters.clear()
    compiled = symshape.compile(lambda number: torch.ones(int(10 * number)) * number)
    for number in (0.5, 0.3, 0.5):
        assert torch.equal(compiled(number), torch.ones(int(10 * number)) * number)
    assert counters["stats"]["unique_graphs"] == 1


def test_sizes_are_rounded_as_in_eager_mode() -> None:
    """As an expression ``10 * (1 - number)`` is ``10 - 10 * number``, which is 1 for 0.9, and not 0.99...: each value
    has a graph."""
    compiled = symshape.compile(lambda number: torch.ones(int(10 * (1 - number))), fullgraph=True)
    for number in (0.5, 0.9, 0.3, 0.7):
        assert compiled(number).shape == (int(10 * (1 - number)),)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.layer_norm(x, (x.shape[1] + 1,), eps=1 / x.shape[1]),
        lambda x: torch.dropout(x, 1.0 + 1 / x.shape[1], True),
        lambda x: x.quantile(1.0 + 1 / x.shape[1]),
        lambda x: F.huber_loss(x, x, delta=-1 / x.shape[1]),
    ],
)
def test_errors_are_eager_modes(function: Callable[..., Any]) -> None:
    x = torch.randn(4, 3)
    with pytest.raises((RuntimeError, ValueError)) as expected:
        function(x)
    with pytest.raises(expected.type) as found:
        symshape.compile(function)(x)
    assert str(expected.value) in str(found.value)


def test_images_that_keep_a_size_are_copied() -> None:
    """Whatever the factor is, in eager mode on a CPU."""

    def function(x: Tensor) -> tuple[Tensor, ...]:
        return (
            F.interpolate(x, scale_factor=1.1, mode="bilinear"),
            F.interpolate(x, scale_factor=1.1),
            F.interpolate(x, scale_factor=(2.1, 1.5)),
        )

    compiled = symshape.compile(function)
    for height, width in ((4, 25), (30, 7)):
        found = []
        for run in (compiled, function):
            x = torch.arange(1.0 * height * width).sin().view(1, 1, height, width).requires_grad_()
            results = run(x)
            sum(one.square().sum() for one in results).backward()
            found.append((*results, x.grad))
        torch.testing.assert_close(*found)


def test_gradients_of_parameters_of_draws_are_zero() -> None:
    """As in eager mode: ``torch.normal`` passes no gradient on."""

    def draws(x: Tensor) -> Tensor:
        number = 1 / (x.shape[1] + 1)
        return torch.normal(number, x) + torch.normal(x, number)

    compiled = symshape.compile(draws, fullgraph=True)
    for rows, columns in ((2, 3), (1, 4)):
        results = []
        for run in (draws, compiled):
            x = torch.rand(rows, columns, requires_grad=True)
            torch.manual_seed(0)
            run(x).sum().backward()
            results.append(x.grad)
        assert torch.equal(*results) and not results[0].any()


def test_a_negative_deviation_is_an_error() -> None:
    def noise(deviation: Tensor) -> Tensor:
        return torch.normal(1 / (deviation.shape[0] + 1), deviation)

    compiled = symshape.compile(noise, fullgraph=True)
    for deviation in (torch.ones(3), torch.zeros(0), torch.tensor([0.0, 2.0])):
        assert compiled(deviation).shape == deviation.shape
    for run in (noise, compiled):
        with pytest.raises(RuntimeError, match="normal expects all elements of std >= 0.0"):
            run(torch.tensor([1.0, -0.5]))


def test_normalisations_of_an_empty_batch() -> None:
    def function(x: Tensor, eps: float) -> tuple[Tensor, ...]:
        groups = F.group_norm(x, 2, WEIGHT, WEIGHT, eps), F.group_norm(x[..., None], 2, eps=eps)
        return *groups, F.layer_norm(x, (4,), eps=eps), F.batch_norm(x, WEIGHT, WEIGHT, eps=eps)

    torch._dynamo.reset()
    compiled = torch.compile(function, backend="symshape", dynamic=True, fullgraph=True)
    for batch, eps in ((0, 0.5), (3, 0.25), (1, 0.125)):
        x = torch.randn(batch, 4)
        torch.testing.assert_close(compiled(x, eps), function(x, eps))


def test_distances_along_an_empty_dim() -> None:
    def function(x: Tensor, number: float) -> tuple[Tensor, ...]:
        return torch.trapezoid(x, dx=number), torch.cumulative_trapezoid(x, dx=number), F.dropout1d(x[None], number)

    compiled = symshape.compile(function)
    for columns in (0, 1, 3):
        x, found = torch.randn(2, columns), []
        for run in (function, compiled):
            torch.manual_seed(0)
            found.append((*run(x, 0.25), torch.get_rng_state()))
        torch.testing.assert_close(*found)
