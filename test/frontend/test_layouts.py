"""Results have eager mode's strides where PyTorch's decompositions and tracing rules have others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import symshape

ORDERS = (((3, 2, 1, 0), (0, 1, 3, 2)), ((0, 2, 3, 1), (0, 1, 2, 3)))  # of the operands' dims in memory
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "logsigmoid": lambda x, y, i: F.logsigmoid(x),
    "adaptive_max_pool3d": lambda x, y, i: F.adaptive_max_pool3d(x, (2, 1, 2)),
    "nll_loss": lambda x, y, i: F.nll_loss(x, (i % x.shape[1])[:, 0], reduction="none"),
    "fmax": lambda x, y, i: torch.fmax(x, y),
    "fmin": lambda x, y, i: torch.fmin(x, y),
    "heaviside": lambda x, y, i: torch.heaviside(x, y),
    "lerp": lambda x, y, i: torch.lerp(x, y, y),
    "logaddexp": lambda x, y, i: torch.logaddexp(x, y),
    "xlogy": lambda x, y, i: torch.xlogy(x, y),
    "xlog1py": lambda x, y, i: torch.special.xlog1py(x, y),
    "floor_divide": lambda x, y, i: x // (y + 1),
    "logical": lambda x, y, i: (torch.logical_and(x, y), torch.logical_or(y, x), torch.logical_xor(x, y)),
    "copysign": lambda x, y, i: torch.copysign(x, y),
    "div": lambda x, y, i: torch.div(x, y + 1, rounding_mode="trunc"),
    "broadcast": lambda x, y, i: (torch.xlogy(x, y[0]), torch.fmax(x[:, :1], y[:, 0])),
    "repeated": lambda x, y, i: torch.logical_and(x[..., :1], y),
    "batch_norm": lambda x, y, i: (F.batch_norm(x, None, None, training=True), F.instance_norm(x)),
    "batch_norm of 3 dims": lambda x, y, i: F.batch_norm(x[:, :, 0], x[0, :, 0, 0], y[0, :, 0, 0].abs()),
    "channel_shuffle": lambda x, y, i: F.channel_shuffle(x.repeat_interleave(2, 1), 2),
    "put": lambda x, y, i: x.put(i[0, 0, 0], y[0, 0, 0]),
    "cat": lambda x, y, i: (torch.cat([x.new_empty(0), x]), torch.stack([x], 1), torch.cat([x, y])),
    "index": lambda x, y, i: (x.reshape(-1)[i], x[i % 2], x[:, i % 2], x[..., i[0] % 2], x[:, :, i[0, 0] % 2]),
    "index by two": lambda x, y, i: (x[i[0, 0] % 2, :, i[0, 0] % 2], x[:, i[0] % 2, i[0, 0] % 2]),
    "roll": lambda x, y, i: (x.roll(1, 2), y.roll((1, x.shape[2] % 2), (3, 2)), x.roll(x.shape[2] % 2, 0)),
    "index in front": lambda x, y, i: x[i[0] % 2, i[0] % 2],
}


def operands(order: tuple[int, ...], other: tuple[int, ...], n: int) -> list[torch.Tensor]:
    """Two tensors of sizes (2, 3, n, 5) whose dims have these orders in memory, and indices like the second."""
    generator = torch.Generator().manual_seed(n)
    made = []
    for dims in (order, other):
        sizes = [(2, 3, n, 5)[d] for d in dims]
        made.append(torch.rand(sizes, generator=generator).permute([dims.index(d) for d in range(4)]))
    return [*made, (made[1] * 1000).long() % made[1].numel()]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("order", "other"), ORDERS)
def test_strides_are_those_of_eager_mode(order: tuple[int, ...], other: tuple[int, ...]) -> None:
    def all_of_them(*given: torch.Tensor) -> list[Any]:
        return [function(*given) for function in FUNCTIONS.values()]

    torch._dynamo.reset()
    compiled = torch.compile(all_of_them, backend="symshape", dynamic=True, fullgraph=True)
    for n in (4, 7):
        given = operands(order, other, n)
        for name, actual, expected in zip(FUNCTIONS, compiled(*given), all_of_them(*given)):
            sides = [x if isinstance(x, tuple) else (x,) for x in (actual, expected)]
            for k, (x, y) in enumerate(zip(*sides)):
                torch.testing.assert_close(x, y, msg=lambda text, name=name: f"{name}: {text}")
                strides = [[s for s, size in zip(t.stride(), t.shape) if size > 1] for t in (x, y)]
                assert strides[0] == strides[1], f"{name}, result {k} of sizes {tuple(x.shape)}"


PADS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "behind": lambda x: F.pad(x, (0, x.shape[-1] % 2)),
    "in two dims": lambda x: F.pad(x, (x.shape[-1] % 2, 0, (-x.shape[2]) % 2, 0)),
    "cut or nothing": lambda x: F.pad(x, (0, -(x.shape[-1] // 2), -(x.shape[2] % 2), 0)),
    "cut or more": lambda x: F.pad(x, (0, x.shape[2] - x.shape[3])),
    "nothing": lambda x: F.pad(x, (0, 0)),
    "seen by a view": lambda x: F.pad(x, (0, x.shape[-1] % 2)).neg().flatten(2),
}
PADDED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda x: x,
    "reversed": lambda x: x.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0),
    "channels-last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "cut": lambda x: x.repeat(1, 1, 1, 2)[..., x.shape[3] :],
    "expanded": lambda x: x[..., :1].expand_as(x),
}


@pytest.mark.parametrize("layout", PADDED)
def test_padding_by_nothing_is_a_clone(layout: str) -> None:
    def all_of_them(x: torch.Tensor) -> list[torch.Tensor]:
        return [pad(x) for pad in PADS.values()]

    torch._dynamo.reset()
    compiled = torch.compile(all_of_them, backend="symshape", dynamic=True, fullgraph=True)
    for rows, columns in ((4, 6), (4, 3), (3, 4), (5, 5), (1, 1)):
        x = PADDED[layout](torch.arange(6.0 * rows * columns).reshape(2, 3, rows, columns))
        for name, actual, expected in zip(PADS, compiled(x), all_of_them(x)):
            assert torch.equal(actual, expected), name
            strides = [[s for s, size in zip(t.stride(), t.shape) if size > 1] for t in (actual, expected)]
            # a tensor of 1x1 images is contiguous in either format: one graph has the layout of larger images
            general = layout == "channels-last" and rows == columns == 1
            assert expected.numel() == 0 or general or strides[0] == strides[1], f"{name} at {rows}, {columns}"


ROLLS: dict[str, Callable[[torch.Tensor], Any]] = {
    "one dim": lambda x: x.roll(1, 2),
    "two": lambda x: x.roll((1, 2), (2, 3)),
    "rows": lambda x: x.roll(-1, 0),
    "nothing": lambda x: x.roll(0, 2),
    "flat": lambda x: x.roll(1),
    "padding": lambda x: F.pad(x, (0, x.shape[-1] % 2)),
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("first", [(2, 3, 4, 5), (1, 3, 4, 5), (2, 3, 1, 5), (2, 3, 4, 1), (3, 3, 4, 4)], ids=str)
@pytest.mark.parametrize("name", ROLLS)
def test_channels_last_whatever_came_first(name: str, first: tuple[int, ...]) -> None:
    """That a shift is no multiple of a size, and an amount is 0, is a guard: the layout depends on it."""
    compiled = symshape.jit(ROLLS[name])
    for sizes in (first, (2, 3, 4, 5), (4, 3, 2, 2), (1, 3, 4, 4), (2, 2, 1, 1), (2, 2, 2, 2)):
        x = torch.randn(sizes).to(memory_format=torch.channels_last)
        found, wanted = compiled(x), ROLLS[name](x)
        torch.testing.assert_close(found, wanted)
        assert [s for n, s in zip(wanted.shape, found.stride()) if n > 1] == [
            s for n, s in zip(wanted.shape, wanted.stride()) if n > 1
        ]


OF_STRIDES_IN_ANY_ORDER: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "every third column": lambda x: x.t()[::3] + 1,
    "flipped": lambda x: x.t()[::3].flip(0),
    "sum of two": lambda x: x.t()[::3] + x.t()[::3].flip(0),
    "windows": lambda x: x.unfold(0, 2, 1) + 1,
    "minima of windows": lambda x: torch.minimum(x.unfold(0, 2, 1), x.unfold(0, 2, 1).flip(0)),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("first", [(2, 1), (70, 1), (3, 0), (2, 3), (3, 3)], ids=str)
@pytest.mark.parametrize("name", OF_STRIDES_IN_ANY_ORDER)
def test_an_order_of_dims_that_sizes_decide(name: str, first: tuple[int, int]) -> None:
    """Strides 3 and n, or equal strides: which dim is the outer one depends on the sizes."""
    function = OF_STRIDES_IN_ANY_ORDER[name]
    compiled = symshape.compile(function)
    for sizes in (first, (16, 16), (3, 4), (2, 5), (5, 2), (33, 40)):
        x = torch.randn(sizes)
        found, wanted = compiled(x), function(x)
        torch.testing.assert_close(found, wanted)
        strides = zip(wanted.shape, found.stride(), wanted.stride(), strict=True)
        assert all(n < 2 or a == b for n, a, b in strides) or wanted.numel() == 0


@pytest.mark.parametrize(
    "function", [lambda x: torch.cat([x]), lambda x: x.movedim(0, 1) + 1, lambda x: torch.einsum("ij->ji", x)]
)
def test_a_stride_that_was_a_size_is_none_where_there_is_nothing(function: Callable[..., Any]) -> None:
    """After a layout of each kind strides are symbols: a size must be read off the size."""
    for compile in (symshape.compile, symshape.jit):
        compiled: Any = compile(function)  # type: ignore[operator]
        for rows, columns in ((5, 5), (5, 2), (3, 0), (5, 0), (5, 1), (1, 5), (0, 4)):
            layouts = (
                torch.randn(rows, columns),
                torch.randn(columns, rows).t(),
                torch.randn(rows, 2 * columns)[:, ::2],
            )
            for x in layouts:
                torch.testing.assert_close(compiled(x), function(x))


@pytest.mark.parametrize("training", [False, True])
def test_what_is_made_of_a_normalised_pixel(training: bool) -> None:
    """Pooled channels-last images of 1 x 1 are contiguous as well: a batch norm returns them with the strides of a new
    tensor, by which the layout of enlarged images is chosen."""

    def pyramid(x: torch.Tensor) -> Any:
        mean, var = torch.zeros(4), torch.ones(4)
        pixel = F.batch_norm(F.adaptive_avg_pool2d(x, 1), mean, var, training=training).relu()
        wide = F.interpolate(pixel, size=x.shape[2:], mode="bilinear")
        return pixel, wide, torch.cat([wide, wide], 1) + 1, F.batch_norm(x.expand(2, -1, -1, -1, -1)[0], mean, var)

    compiled = symshape.compile(pyramid)
    for n, size in ((2, 6), (3, 5)):
        x = torch.randn(n, 4, size, size).to(memory_format=torch.channels_last)
        found, wanted = compiled(x), pyramid(x)
        torch.testing.assert_close(found, wanted)
        assert [y.stride() for y in found] == [y.stride() for y in wanted]


def one_row_of_a_cache(x: torch.Tensor) -> list[torch.Tensor]:
    row = x.unflatten(-1, (1, 4, 2)).transpose(1, 2)
    image = x.unflatten(-1, (1, 4, 2)).permute(0, 2, 1, 3)[:, :1]
    return [torch.cat([x.new_empty(0), row], -2), torch.cat([row]), torch.cat([image]), torch.cat([row[:0], row])]


def test_a_join_of_one_tensor_has_the_strides_of_a_new_one() -> None:
    """Also in dims of size 1: they say where a graph that reads the result takes further rows to be."""
    torch._dynamo.reset()
    compiled = symshape.compile(one_row_of_a_cache)
    for n in (3, 1, 2):
        x = torch.randn(n, 8)
        expected = one_row_of_a_cache(x)
        assert [one.stride() for one in compiled(x)] == [one.stride() for one in expected]
        torch.testing.assert_close(compiled(x), expected, rtol=0, atol=0)
