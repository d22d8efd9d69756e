"""Convolutions by code of our own: what torch.convolution computes in float64, at any size, of any layout, on any
number of threads, with every level of instructions. Inputs and results end at guard pages."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import poison
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from symshape.machine.instruction_sets import NATIVE, held
from symshape.runtime.cpu import convolution_code, kept_objects
from symshape.runtime.cpu.convolutions import convolution, pack_weight, supports
from symshape.runtime.epilogues import Epilogue, bounded
from symshape.tools.cache_report import show

Tensor = torch.Tensor
LEVELS = (NATIVE, *held())
KERNELS = (1, 1), (3, 3), (7, 7), (1, 5), (2, 1)
DENSE = [(ci, co, 1) for ci in (1, 3, 8, 17, 64) for co in (1, 5, 16, 24, 33, 64)]
GROUPED = [(32, 32, 4), (64, 96, 4), (68, 40, 4), (18, 36, 2)]
DEPTHWISE = [(n, n, n) for n in (2, 5, 16, 24, 33, 64, 150)]
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x.contiguous(),
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "some channels": lambda x: torch.cat([x, x], 1).contiguous(memory_format=torch.channels_last)[:, : x.shape[1]],
    "some columns": lambda x: torch.cat([x, x, x], 3).contiguous(memory_format=torch.channels_last)[..., : x.shape[3]],
    "every second row": lambda x: x.repeat_interleave(2, 2)[:, :, ::2],
    "transposed": lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
    "expanded": lambda x: x[:, :1, :, :].expand(x.shape),
}


@dataclass(frozen=True)
class Geometry:
    channels: tuple[int, int, int]  # inputs, outputs, groups
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)

    def fits(self, height: int, width: int) -> bool:
        sizes = zip((height, width), self.kernel, self.padding, self.dilation)
        return all(size + 2 * pad > apart * (taps - 1) for size, taps, pad, apart in sizes)

    def weight(self) -> Tensor:
        inputs, outputs, groups = self.channels
        return torch.randn(outputs, inputs // groups, *self.kernel)

    def exact(self, x: Tensor, weight: Tensor) -> Tensor:
        parts = self.stride, self.padding, self.dilation
        return torch.nn.functional.conv2d(x.double(), weight.double(), None, *parts, self.channels[2])

    def run(self, x: Tensor, weight: Tensor, bias: Any = None, other: Any = None, **more: Any) -> Tensor:
        steps = [] if other is None else [("add", "a0")]
        steps += [
            (name, str(bound)) for name, bound in (("low", more.pop("low", None)), ("high", more.pop("high", None)))
        ]
        lines: list[str] = []
        for name, operand in steps:
            if operand != "None":
                lines.append(f"{name} {f'v{len(lines) - 1}' if lines else 'y'} {operand}")
        return self.apply("; ".join(lines), x, weight, bias, [] if other is None else [other], **more)

    def apply(self, epilogue: str, x: Tensor, weight: Tensor, bias: Any, operands: list[Tensor], **more: Any) -> Tensor:
        packed = pack_weight(weight, self.channels[2], more.get("level", NATIVE))
        first, kept, added, scale, *given = poison.guarded([x, packed, bias, more.pop("scale", None), *operands])
        shifts = [list(part) for part in (self.kernel, self.stride, self.padding, self.dilation)]
        return convolution(
            first, kept, added, scale, given, self.channels[1], *shifts, self.channels[2], epilogue, **more
        )


def check(geometry: Geometry, x: Tensor, level: str = NATIVE, low: float = -math.inf, high: float = math.inf) -> None:
    """To the probable error of a sum of rounded products (Higham and Mary, 2019), and the layout."""
    weight, bias = geometry.weight(), torch.randn(geometry.channels[1])
    product, size = geometry.exact(x, weight), geometry.exact(x.abs(), weight.abs())
    other = torch.randn(product.shape)
    for added, more in ((bias, None), (None, other), (bias, other)):
        expected, bound = product, size
        for one in (None if added is None else added[:, None, None], more):
            if one is not None:
                expected, bound = expected + one.double(), bound + one.double().abs()
        found = geometry.run(x, weight, added, more, level=level, low=low, high=high)
        assert (found.dtype, found.shape) == (torch.float32, product.shape)
        assert found.stride() == torch.empty(product.shape, memory_format=torch.channels_last).stride()
        error = (found.double() - expected.clamp(low, high)).abs()
        terms = math.prod(weight.shape[1:]) + 2
        assert bool((error <= 5 * terms**0.5 * 2**-24 * bound).all())


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("kind", [DENSE, GROUPED, DEPTHWISE], ids=["dense", "grouped", "depthwise"])
def test_sizes(kind: list[tuple[int, int, int]], kernel: tuple[int, int], level: str) -> None:
    """Strides, dilations and paddings, larger ones than the filter needs too."""
    pick = random.Random(str((kind, kernel)))
    pair = lambda *of: (pick.choice(of), pick.choice(of))  # noqa: E731
    for channels in kind:
        geometry = Geometry(channels, kernel, pair(1, 1, 2, 3), pair(0, 1, 2, 3), pair(1, 1, 2))
        sizes = [size for size in ((1, 1), (7, 7), (13, 5), (2, 29), (14, 11)) if geometry.fits(*size)]
        for height, width in sizes[-2:]:
            check(geometry, torch.randn(pick.choice((1, 3)), channels[0], height, width), level, *pick.choice(BOUNDS))


BOUNDS = (-math.inf, math.inf), (0.0, math.inf), (0.0, 6.0)


@pytest.mark.parametrize("level", LEVELS)
def test_large(level: str) -> None:
    """More tiles than are computed together, sums in several parts, weights of more than a cache."""
    for geometry, height in (
        (Geometry((300, 260, 1), (3, 3), padding=(1, 1)), 19),
        (Geometry((700, 70, 1), (1, 1)), 17),
        (Geometry((64, 512, 1), (1, 1), stride=(2, 2)), 41),
        (Geometry((3, 32, 1), (7, 7), (2, 2), (3, 3)), 224),
        (Geometry((40, 40, 40), (3, 3), padding=(1, 1)), 113),
    ):
        check(geometry, torch.randn(1, geometry.channels[0], height, height + 3), level)


@pytest.mark.parametrize("channels", [(8, 24, 1), (24, 24, 24), (64, 64, 4)], ids=str)
def test_layouts(channels: tuple[int, int, int]) -> None:
    geometry = Geometry(channels, (3, 3), padding=(1, 1))
    weight, bias = geometry.weight(), torch.randn(channels[1] * 2)[::2]
    for shape in ((2, channels[0], 6, 5), (1, channels[0], 1, 1), (1, channels[0], 1, 4), (3, channels[0], 4, 1)):
        x = torch.randn(shape)
        other = torch.randn(geometry.exact(x, weight).shape)
        for layout in LAYOUTS.values():
            some, added = layout(x), layout(other)
            expected = geometry.run(some.contiguous(), weight, bias.contiguous(), added.contiguous())
            assert torch.equal(geometry.run(some, weight, bias, added), expected)


def test_one_channel_and_one_pixel() -> None:
    """Of such sizes strides say nothing: a tensor that counts as channels last may have any."""
    for shape in ((2, 1, 6, 5), (3, 4, 1, 1), (1, 1, 1, 1)):
        geometry = Geometry((shape[1], 3, 1), (1, 1))
        x = torch.randn(shape)
        strange = torch.empty_strided(shape, [1000 if n == 1 else s for n, s in zip(shape, x.stride())]).copy_(x)
        weight = geometry.weight()
        assert torch.equal(geometry.run(strange, weight), geometry.run(x, weight))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("channels", [(8, 20, 1), (20, 20, 20)], ids=str)
def test_special_values(channels: tuple[int, int, int], level: str) -> None:
    """NaN stays NaN between bounds, infinities become them; what follows reads and writes no other channel."""
    geometry = Geometry(channels, (1, 1))
    weight = torch.ones_like(geometry.weight())
    x = torch.ones(1, channels[0], 3, 5)
    x[0, :, 0, 0], x[0, :, 1, 2], x[0, :, 2, 4] = math.nan, math.inf, -math.inf
    bias = torch.zeros(channels[1])
    bias[3], bias[19] = math.nan, -math.inf
    other = torch.zeros(1, channels[1], 3, 5)
    other[0, 5], other[0, 18] = math.inf, math.nan
    for low, high in (*BOUNDS, (-math.inf, 2.0), (-1.0, 1.0)):
        found = geometry.run(x, weight, bias, other, level=level, low=low, high=high)
        sums = torch.nn.functional.conv2d(x, weight, None, groups=channels[2])
        expected = torch.clamp(sums + bias[:, None, None] + other, low, high)
        assert torch.equal(found.isnan(), expected.isnan())
        assert torch.equal(found.nan_to_num(), expected.nan_to_num())


# An expression, and what it is of the convolution's value and the operands.
EPILOGUES: dict[str, Callable[..., Tensor]] = {
    "neg y; exp v0; add v1 1.0; div y v2": lambda y, *_: y / (y.neg().exp() + 1),
    "sigmoid y; mul y v0; mul v1 a1": lambda y, a, b, c: y * y.sigmoid() * b,
    "mul y 0.7; erf v0; add v1 1.0; mul y v2; sub v3 a0": lambda y, a, b, c: y * ((y * 0.7).erf() + 1) - a,
    "gt y 0.0; mul y a2; where v0 y v1": lambda y, a, b, c: torch.where(y > 0, y, y * c),
    "ge y a0; lt y 0.5; tanh y; where v1 v2 a0; where v0 v3 y": lambda y, a, b, c: torch.where(
        y >= a, torch.where(y < 0.5, y.tanh(), a), y
    ),
    "abs y; log1p v0; expm1 v1; sub v2 1.0; minimum v3 a1; maximum v4 a2": lambda y, a, b, c: torch.maximum(
        torch.minimum(y.abs() - 1, b), c
    ),
    "abs y; add v0 1.0; log v1; sqrt v2; le v3 1.0; where v4 v3 0.25; add v5 1.0; rsqrt v6": lambda y, *_: (
        torch.where((s := (y.abs() + 1).log().sqrt()) <= 1, s, torch.tensor(0.25).double()).add(1).rsqrt()
    ),
    "add y a0; low v0 0.0; high v1 2.0; mul v2 a0; add v3 a1": lambda y, a, b, c: (y + a).clamp(0, 2) * a + b,
    "high y -1.0; low v0 1.0; add v1 y": lambda y, *_: y + 1,
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize("channels", [(8, 37, 1), (37, 37, 37), (300, 20, 1), (32, 48, 4)], ids=str)
def test_epilogues(channels: tuple[int, int, int], epilogue: str, level: str) -> None:
    """Operands of the result's shape, and with numbers for channels, of each image and of all; any layout."""
    geometry = Geometry(channels, (3, 3), padding=(1, 1))
    weight, bias = geometry.weight(), torch.randn(channels[1])
    weight /= math.prod(weight.shape[1:]) ** 0.5
    for batch, height, width in ((3, 7, 5), (1, 1, 1), (2, 1, 19), (0, 4, 4)):
        x = torch.randn(batch, channels[0], height, width)
        given = [torch.randn(batch, channels[1], *size) for size in ((height, width), (1, 1))]
        given.append(torch.randn(1, channels[1], 1, 1))
        used = given[: Epilogue.parse(epilogue).tensors]
        exact = geometry.exact(x, weight) + bias.double()[:, None, None]
        expected = EPILOGUES[epilogue](exact, *(one.double() for one in given))
        found = geometry.apply(epilogue, x, weight, bias, used, level=level)
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
        with threads(3):
            assert torch.equal(geometry.apply(epilogue, x, weight, bias, used, level=level), found)


@pytest.mark.parametrize("level", LEVELS)
def test_special_values_of_epilogues(level: str) -> None:
    geometry = Geometry((24, 24, 24), (1, 1))
    values = [math.nan, math.inf, -math.inf, 0.0, 1e38, -1e38, 1e-38, 100.0, -100.0, 3.5]
    x = torch.tensor(values).repeat(2, 24, 1, 1)
    for name in ("neg", "abs", "exp", "expm1", "log", "log1p", "tanh", "erf", "sigmoid", "sqrt", "rsqrt"):
        function = {"log1p": torch.log1p, "erf": torch.erf}.get(name) or getattr(torch, name)
        found = geometry.apply(f"{name} y", x, torch.ones(24, 1, 1, 1), None, [], level=level)
        torch.testing.assert_close(found, function(x), rtol=1e-5, atol=1e-37, equal_nan=True)
    for name, function in (("minimum", torch.minimum), ("maximum", torch.maximum)):
        other = x.flip(3)
        found = geometry.apply(f"{name} y a0", x, torch.ones(24, 1, 1, 1), None, [other], level=level)
        assert torch.equal(found.nan_to_num(7.0), function(x, other).nan_to_num(7.0))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("channels", [(8, 37, 1), (700, 70, 1), (33, 5, 1), (1024, 40, 1)], ids=str)
def test_scaled_images(channels: tuple[int, int, int], level: str) -> None:
    """By numbers for channels, of each image and of all: what the product would give, to the last bit."""
    for stride in ((1, 1), (2, 1)):
        geometry = Geometry(channels, (1, 1), stride)
        weight, bias = geometry.weight(), torch.randn(channels[1])
        for shape in ((3, 7, 5), (1, 1, 1), (2, 1, 19), (0, 4, 4)):
            x = torch.randn(shape[0], channels[0], *shape[1:])
            for scale in (torch.randn(shape[0], channels[0], 1, 1), torch.randn(1, channels[0], 1, 1)):
                found = geometry.apply("low y 0.0", x, weight, bias, [], level=level, scale=scale)
                for number in (1, 3):
                    with threads(number):
                        expected = geometry.apply("low y 0.0", x * scale, weight, bias, [], level=level)
                        assert torch.equal(found, expected)
    geometry = Geometry((8, 24, 1), (3, 3))
    with pytest.raises(ValueError, match="does not scale"):
        geometry.apply("", torch.randn(1, 8, 5, 5), geometry.weight(), None, [], scale=torch.randn(1, 8, 1, 1))


def test_text_of_epilogues() -> None:
    for text in EPILOGUES:
        assert str(Epilogue.parse(text)) == text
    parts = bounded(Epilogue.parse("add y a1; low v0 0.0; high v1 6.0; mul v2 a0; add v3 v2"), (False, True))
    assert (parts.added, parts.low, parts.high, str(parts.rest)) == (1, 0.0, 6.0, "mul y a0; add v0 y")
    for text in ("add y", "sin y", "add y v0", "add y a9", "neg b0"):
        with pytest.raises(ValueError):
            Epilogue.parse(text)


@contextmanager
def threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


WORK = [
    Geometry((64, 96, 1), (3, 3), padding=(1, 1)),
    Geometry((700, 72, 1), (1, 1)),
    Geometry((512, 260, 1), (3, 3), padding=(1, 1)),
    Geometry((128, 128, 4), (3, 3), padding=(1, 1)),
    Geometry((96, 96, 96), (3, 3), padding=(1, 1)),
    Geometry((3, 40, 1), (3, 3), stride=(2, 2)),
]


@pytest.mark.parametrize("geometry", WORK, ids=str)
def test_same_bits(geometry: Geometry) -> None:
    """For every number of threads, and for each image as if it were alone."""
    weight, bias = geometry.weight(), torch.randn(geometry.channels[1])
    for batch, height, width in ((5, 23, 17), (2, 7, 7), (3, 40, 9)):
        x = torch.randn(batch, geometry.channels[0], height, width)
        with threads(1):
            one = geometry.run(x, weight, bias)
            cut = torch.cat([geometry.run(part, weight, bias) for part in (x[:1], x[1:])])
        for number in (2, 3, 7):
            with threads(number):
                assert torch.equal(geometry.run(x, weight, bias), one)
        assert torch.equal(cut, one)


@pytest.mark.parametrize("channels", [(8, 24, 1), (24, 24, 24)], ids=str)
def test_empty(channels: tuple[int, int, int]) -> None:
    geometry = Geometry(channels, (3, 3), padding=(1, 1))
    found = geometry.run(torch.randn(0, channels[0], 5, 4), geometry.weight(), torch.randn(channels[1]))
    assert found.shape == (0, channels[1], 5, 4)


@pytest.mark.parametrize(
    ("geometry", "shape"),
    [
        (Geometry((8, 24, 1), (3, 3)), (1, 8, 2, 5)),
        (Geometry((24, 24, 24), (3, 3), dilation=(1, 3)), (2, 24, 9, 6)),
        (Geometry((8, 24, 1), (3, 3), stride=(0, 1)), (1, 8, 9, 9)),
        (Geometry((8, 24, 1), (3, 3), padding=(-1, 0)), (1, 8, 9, 9)),
    ],
    ids=str,
)
def test_errors_of_pytorch(geometry: Geometry, shape: tuple[int, ...]) -> None:
    x, weight = torch.randn(shape), geometry.weight()
    with pytest.raises(RuntimeError) as expected:
        torch.nn.functional.conv2d(
            x, weight, None, geometry.stride, geometry.padding, geometry.dilation, geometry.channels[2]
        )
    with pytest.raises(RuntimeError) as found:
        geometry.run(x, weight)
    assert str(found.value) == str(expected.value)


def test_other_tensors() -> None:
    """Than the weights were packed for: an error, not memory that is someone else's."""
    geometry = Geometry((8, 24, 1), (3, 3), padding=(1, 1))
    x, weight = torch.randn(1, 8, 5, 5), geometry.weight()
    with pytest.raises(ValueError, match="packed"):
        geometry.run(torch.randn(1, 9, 5, 5), weight)
    with pytest.raises(ValueError, match="packed"):
        geometry.run(x.double(), weight)
    with pytest.raises(ValueError, match="packed"):
        geometry.run(x, weight, torch.randn(23))
    with pytest.raises(ValueError, match="reads a tensor"):
        geometry.run(x, weight, None, torch.randn(1, 24, 5, 1))
    with pytest.raises(ValueError, match="tensors for the epilogue"):
        geometry.apply("add y 1.0", x, weight, None, [torch.randn(1, 24, 5, 5)])
    with pytest.raises(ValueError, match="packed"):
        geometry.run(x, weight, None, torch.randn(1, 24, 5, 5).double())


def test_code_is_kept_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second process compiles nothing; what is damaged is compiled again."""
    monkeypatch.setenv("SYMSHAPE_CACHE", "1")
    monkeypatch.setenv("SYMSHAPE_CACHE_DIR", str(tmp_path / "cache"))
    compiled: list[str] = []
    usual = kept_objects.object_code

    def counted(text: str, level: str, *, as_written: bool) -> bytes:
        compiled.append(text)
        return usual(text, level, as_written=as_written)

    monkeypatch.setattr(kept_objects, "object_code", counted)
    made = []
    for damage in (False, False, True):
        if damage:
            (file,) = (tmp_path / "cache" / "code").glob("*.entry")
            file.write_bytes(file.read_bytes()[:-1])
        convolution_code.object_of.cache_clear()
        made.append(convolution_code.object_of(NATIVE))
    assert len(compiled) == 2 and made[0] == made[1] == made[2]
    assert "machine code of convolutions" in show()


def test_which_are_supported() -> None:
    assert supports((24, 8, 3, 3), 1) and supports((24, 1, 3, 3), 24) and supports((64, 16, 1, 1), 4)
    assert not supports((48, 1, 3, 3), 24) and not supports((16, 4, 3, 3), 4) and not supports((24, 8, 3), 1)
    assert not supports((0, 8, 3, 3), 1)


@pytest.mark.parametrize("channels", [(8, 24, 1), (24, 24, 24), (32, 48, 4), (1, 5, 1)], ids=str)
def test_operators(channels: tuple[int, int, int]) -> None:
    """Their fake rules: sizes of symbols, and the layouts that come."""
    geometry = Geometry(channels, (3, 5), (2, 1), (1, 2), (2, 1))
    x, weight = torch.randn(2, channels[0], 9, 11), geometry.weight()
    packed = torch.ops.symshape.pack_convolution_weight(weight, channels[2])
    shifts = [list(part) for part in (geometry.kernel, geometry.stride, geometry.padding, geometry.dilation)]
    rest = channels[1], *shifts, channels[2], "low y 0.0"
    found = torch.ops.symshape.packed_convolution(x, packed, None, None, [], *rest)
    assert torch.allclose(found.double(), geometry.exact(x, weight).clamp(0), atol=1e-4)
    shapes = ShapeEnv()
    with FakeTensorMode(shape_env=shapes, static_shapes=False) as mode:
        fake_weight = mode.from_tensor(weight, static_shapes=True)
        fake_packed = torch.ops.symshape.pack_convolution_weight(fake_weight, channels[2])
        made = torch.ops.symshape.packed_convolution(mode.from_tensor(x), fake_packed, None, None, [], *rest)
    assert isinstance(made.shape[2], torch.SymInt) and isinstance(made.shape[3], torch.SymInt)
    assert fake_packed.shape == packed.shape
    assert (made.shape, made.stride()) == (found.shape, found.stride())


def test_call_from_a_program() -> None:
    """A compiled program calls the function itself."""
    from symshape.runtime.program import resolve_target

    assert resolve_target("symshape.packed_convolution.default") is convolution
