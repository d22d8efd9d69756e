"""``symshape::packed_convolution``: convolutions of float32 images on CPUs, by generated code that serves every size.

The rewrite ``pack-convolutions`` emits the calls. Weights are packed once (``symshape::pack_convolution_weight``) for
all sizes of images. Images and results are dense and channels-last. ``scale``: what the image is multiplied by
(`scales`). ``epilogue``: a pointwise expression over the sums and the ``operands``, as text (`runtime/epilogues.py`).
``cpu``: the instruction set that the code may use (`symshape/machine/instruction_sets.py`); weights packed for a level
are read by that level's code only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from symshape.machine.instruction_sets import NATIVE

_LEAST_GROUP: Final = 8  # channels

_library: Any = torch.library.Library
_LIBRARY = _library("symshape", "FRAGMENT")
_LIBRARY.define("pack_convolution_weight(Tensor weight, SymInt groups, str cpu='native') -> Tensor")
_LIBRARY.define(
    "packed_convolution(Tensor x, Tensor packed, Tensor? bias, Tensor? scale, Tensor[] operands, SymInt channels, "
    "SymInt[] kernel, SymInt[] stride, SymInt[] padding, SymInt[] dilation, SymInt groups, str epilogue='', "
    "str cpu='native') -> Tensor"
)


def supports(weight_shape: Sequence[int], groups: int) -> bool:
    """Whether there is code for a weight (output channels, input channels of a group, height, width): dense, depthwise
    with as many output as input channels, or groups of at least 8 channels."""
    if len(weight_shape) != 4 or 0 in weight_shape or weight_shape[0] % groups:
        return False
    outputs, inputs = weight_shape[0] // groups, weight_shape[1]
    return groups == 1 or (outputs == inputs == 1) or min(outputs, inputs) >= _LEAST_GROUP


def scales(kernel: Sequence[Any], padding: Sequence[Any], groups: Any) -> bool:
    """Whether there is code for the convolution of a product, ``x * scale``, with one number for each input channel, of
    each image or of all (1, channels, 1, 1): where a filter is one pixel of an image without margins."""
    return groups == 1 and all(size == 1 for size in kernel) and all(size == 0 for size in padding)


def result_sizes(
    shape: Sequence[Any], kernel: Sequence[Any], stride: Sequence[Any], padding: Sequence[Any], dilation: Sequence[Any]
) -> tuple[Any, Any]:
    """The height and width of the result for an image (batch, channels, height, width)."""
    found = [
        (size + 2 * around - apart * (taps - 1) - 1) // step + 1
        for size, taps, step, around, apart in zip(shape[2:], kernel, stride, padding, dilation, strict=True)
    ]
    return found[0], found[1]


def channels_last(shape: Sequence[Any]) -> tuple[Any, Any, Any, Any]:
    """The strides of dense images (batch, channels, height, width)."""
    _, channels, height, width = shape
    return height * width * channels, 1, width * channels, channels


def _pack(*arguments: Any) -> torch.Tensor:
    from symshape.runtime.cpu.convolutions import pack_weight

    return pack_weight(*arguments)


def _convolution(*arguments: Any) -> torch.Tensor:
    from symshape.runtime.cpu.convolutions import convolution

    return convolution(*arguments)


def _fake_pack(weight: torch.Tensor, groups: int, cpu: str = NATIVE) -> torch.Tensor:
    from symshape.runtime.cpu.convolutions import packed_elements

    return weight.new_empty(packed_elements(weight.shape, groups, cpu))


def _fake(
    x: torch.Tensor, packed: torch.Tensor, bias: Any, scale: Any, operands: Any, channels: Any, *sizes: Any
) -> torch.Tensor:
    shape = (x.shape[0], channels, *result_sizes(x.shape, *sizes[:4]))
    return x.new_empty_strided(shape, channels_last(shape))


_LIBRARY.impl("pack_convolution_weight", _pack, "CPU")
_LIBRARY.impl("packed_convolution", _convolution, "CPU")
torch.library.register_fake("symshape::pack_convolution_weight", _fake_pack, lib=_LIBRARY)
torch.library.register_fake("symshape::packed_convolution", _fake, lib=_LIBRARY)
