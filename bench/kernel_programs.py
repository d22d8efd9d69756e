"""The programs of bench/kernels.py: functions, their inputs, and shapes from 1 to 1e8 elements.

Shapes are (outer, inner), the inner dim is the contiguous one; programs of one dim see the product as one. Among them
are primes, sizes of 1, and both kinds of skinny: few long rows, many short ones. Everything works on any device.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

Shape = tuple[int, ...]
Tensors = tuple[torch.Tensor, ...]

LINES: tuple[Shape, ...] = tuple(
    (n,)
    for n in (
        1,
        7,
        61,
        1009,
        10_007,
        32_768,
        100_003,
        1_000_003,
        4_194_304,
        10_000_019,
        33_554_432,
        100_000_007,
    )
)
PLANES: tuple[Shape, ...] = (
    (1, 1),
    (3, 7),
    (31, 2),
    (1, 1009),
    (1009, 1),
    (32, 64),
    (100, 101),
    (1, 10_007),
    (10_007, 1),
    (3, 33_331),
    (33_331, 3),
    (317, 331),
    (1009, 991),
    (8, 131_072),
    (131_072, 8),
    (1, 1_000_003),
    (4096, 2048),
    (3, 4_000_037),
    (100_000, 128),
    (1_000_003, 31),
    (31, 1_000_003),
    (10_007, 9973),
    (1, 100_000_007),
    (50_000_017, 2),
)
_LONGEST = (1 << 31) - 1  # elements of a dim: a small first size makes Inductor index with int32
FIRST = {1: (96,), 2: (12, 40)}  # by rank: the size that a dynamic compilation meets first


@dataclass(frozen=True)
class KernelProgram:
    """``run`` computes; ``make`` makes its inputs from a function of a shape that gives random numbers, for a shape of
    ``shapes``. ``accesses``: elements read and written per element of the shape, for the least memory traffic."""

    name: str
    run: Callable[..., Any]
    make: Callable[..., Tensors]
    shapes: tuple[Shape, ...]
    accesses: float

    @property
    def first(self) -> Shape:
        """The small shape at which dynamic compilations begin."""
        return FIRST[len(self.shapes[0])]

    def inputs(self, shape: Shape, device: str = "cpu", dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensors:
        """The inputs of the shape, the same for the same seed and device."""
        generator = torch.Generator(device).manual_seed(seed)

        def normal(*sizes: int) -> torch.Tensor:
            return torch.randn(sizes, generator=generator, device=device, dtype=dtype)

        return self.make(normal, *shape)

    def reference(self, inputs: Tensors) -> Any:
        """The result in float64."""
        return self.run(*(x.double() if x.is_floating_point() else x for x in inputs))

    def copy(self) -> Callable[..., Any]:
        """``run`` with a code object of its own: Dynamo keeps its entries with the code, and the first would serve
        every backend."""
        run = self.run
        return types.FunctionType(run.__code__.replace(), run.__globals__, self.name, run.__defaults__, run.__closure__)


def meet(compiled: Callable[..., Any], inputs: Tensors) -> Any:
    """The first call of a dynamic compilation, for which all sizes are dynamic from 1 on: without this, sizes of 1 get
    graphs of their own."""
    import torch.fx.experimental._config as config

    for x in inputs:
        for dim in range(x.ndim):
            torch._dynamo.mark_dynamic(x, dim, min=1, max=_LONGEST)
    with config.patch(backed_size_oblivious=True):  # type: ignore[attr-defined]
        return compiled(*inputs)


def elements(shape: Shape) -> int:
    """The number of elements."""
    count = 1
    for size in shape:
        count *= size
    return count


def pointwise_chain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.relu(x * y + x) * 0.5 - y


def gelu(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, (x.shape[-1],), weight, bias)


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, (x.shape[-1],), weight, 1e-6)


def cross_entropy(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x, target)


def sum_last(x: torch.Tensor) -> torch.Tensor:
    return x.sum(-1)


def sum_first(x: torch.Tensor) -> torch.Tensor:
    return x.sum(0)


def sum_all(x: torch.Tensor) -> torch.Tensor:
    return x.sum()


def variance(x: torch.Tensor) -> torch.Tensor:
    return x.var(-1)


def argmax(x: torch.Tensor) -> torch.Tensor:
    return x.argmax(-1)


def transpose_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return y + x.t()


def layer_norm_backward(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor
) -> Tensors:
    sizes, mean, rstd = (x.shape[-1],), mean[:, None], rstd[:, None]
    return torch.ops.aten.native_layer_norm_backward(grad, x, sizes, mean, rstd, weight, weight, (True, True, True))


def _pair(normal: Callable[..., torch.Tensor], *shape: int) -> Tensors:
    return normal(*shape), normal(*shape)


def _one(normal: Callable[..., torch.Tensor], *shape: int) -> Tensors:
    return (normal(*shape),)


def _with_weight(normal: Callable[..., torch.Tensor], outer: int, inner: int) -> Tensors:
    return normal(outer, inner), normal(inner)


def _with_weights(normal: Callable[..., torch.Tensor], outer: int, inner: int) -> Tensors:
    return normal(outer, inner), normal(inner), normal(inner)


def _with_target(normal: Callable[..., torch.Tensor], outer: int, inner: int) -> Tensors:
    x = normal(outer, inner)
    steps = torch.arange(outer, device=x.device)
    return x, steps * 7919 % inner


def _transposed(normal: Callable[..., torch.Tensor], outer: int, inner: int) -> Tensors:
    return normal(inner, outer), normal(outer, inner)


def _saved(normal: Callable[..., torch.Tensor], outer: int, inner: int) -> Tensors:
    x = normal(outer, inner)
    variance_, mean = torch.var_mean(x.float(), -1, correction=0)
    kept = x.dtype if x.device.type == "cpu" else mean.dtype  # as the forward keeps them
    return normal(outer, inner), x, normal(inner), mean.to(kept), (variance_ + 1e-5).rsqrt().to(kept)


PROGRAMS: dict[str, KernelProgram] = {
    program.name: program
    for program in (
        KernelProgram("pointwise_chain", pointwise_chain, _pair, LINES, 3),
        KernelProgram("gelu", gelu, _one, LINES, 2),
        KernelProgram("softmax", softmax, _one, PLANES, 2),
        KernelProgram("layer_norm", layer_norm, _with_weights, PLANES, 2),
        KernelProgram("rms_norm", rms_norm, _with_weight, PLANES, 2),
        KernelProgram("cross_entropy", cross_entropy, _with_target, PLANES, 1),
        KernelProgram("sum_last", sum_last, _one, PLANES, 1),
        KernelProgram("sum_first", sum_first, _one, PLANES, 1),
        KernelProgram("sum_all", sum_all, _one, LINES, 1),
        KernelProgram("variance", variance, _one, PLANES, 1),
        KernelProgram("argmax", argmax, _one, PLANES, 1),
        KernelProgram("transpose_add", transpose_add, _transposed, PLANES, 3),
        KernelProgram("layer_norm_backward", layer_norm_backward, _saved, PLANES, 3),
    )
}
