"""The implementation of ``symshape::packed_convolution``: packing of weights, division of the work, call of the machine
code.

The sizes of a call determine the division (`plan_of`); the machine code is the same for all sizes
(``convolution_code.py``). ``pack_weight`` runs when a parameter has changed (``runtime/parameter_constants.py``).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final

import torch

from symshape.machine.instruction_sets import NATIVE
from symshape.runtime.cpu.convolution_code import object_of
from symshape.runtime.cpu.convolution_words import ADDRESSES, WORDS, Shape, shape_of
from symshape.runtime.cpu.epilogue_code import address_of
from symshape.runtime.cpu.kept_memory import empty_strided_cpu
from symshape.runtime.cpu.load_objects import Library
from symshape.runtime.epilogues import MOST_OPERANDS, Epilogue, bounded
from symshape.runtime.packed_convolutions import channels_last, result_sizes, scales, supports

_CHUNK: Final = 256  # the longest part of a sum that is computed at a time: the inputs of a tile stay in L1
_WEIGHTS: Final = 1 << 15  # elements of a group's weights that stay in L2 while tiles are computed one by one
_INPUTS: Final = 1 << 16  # elements of the inputs of tiles that are computed together, where there are more weights
_SET: Final = 1 << 10  # elements from one line of a set of L1 to the next
_GRAIN: Final = 1 << 19  # multiplications that are worth a thread
_ADDRESSES: Final = struct.Struct(f"={len(ADDRESSES)}q")
_NONE: Final = (0,) * MOST_OPERANDS


def pack_weight(weight: torch.Tensor, groups: int, level: str = NATIVE) -> torch.Tensor:
    """The weights in the order in which the code reads them: for each part of the sums, for each block of output
    channels of a tile, the weights of an input contiguously, padded with zeros to whole vectors of channels."""
    if not supports(weight.shape, groups) or weight.dtype != torch.float32:
        raise ValueError(f"no code for a convolution of {list(weight.shape)}, {weight.dtype}, in {groups} groups")
    shape = shape_of(level)
    channels, inputs, height, width = weight.shape
    if inputs == 1 and groups == channels > 1:
        taps = weight.reshape(channels, height * width).t()
        return torch.nn.functional.pad(taps, (0, -channels % shape.lanes)).reshape(-1).contiguous()
    outputs, length = channels // groups, height * width * inputs
    rows = weight.reshape(groups, outputs, inputs, height, width).permute(0, 3, 4, 2, 1)
    rows = torch.nn.functional.pad(rows.reshape(groups, length, outputs), (0, -outputs % shape.lanes))
    parts = torch.split(rows, _chunk(height, width * inputs), 1)
    blocks = [block for part in parts for block in torch.split(part, shape.width, 2)]
    return torch.cat([block.reshape(groups, -1) for block in blocks], 1).reshape(-1)


def packed_elements(shape: Sequence[int], groups: int, level: str = NATIVE) -> int:
    """The number of elements that `pack_weight` returns for a weight of this shape."""
    channels, inputs, height, width = shape
    lanes = shape_of(level).lanes
    is_depthwise = inputs == 1 and groups == channels > 1
    blocks = _round_up(channels, lanes) if is_depthwise else groups * _round_up(channels // groups, lanes)
    return blocks * inputs * height * width


def convolution(
    x: torch.Tensor,
    packed: torch.Tensor,
    bias: torch.Tensor | None,
    scale: torch.Tensor | None,
    operands: Sequence[torch.Tensor],
    channels: int,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    epilogue: str = "",
    level: str = NATIVE,
) -> torch.Tensor:
    """The epilogue (`runtime/epilogues.py`) of ``convolution(x * scale, weight) + bias`` and the operands, dense with
    channels last. ``scale``: see `scales`; ``channels``: of the result. RuntimeError, as PyTorch's, where the image is
    smaller than the filter; ValueError for tensors that are not of float32 or not of these sizes."""
    shapes = tuple([one.shape for one in operands]) if operands else ()
    scaled = None if scale is None else scale.shape
    plan = plan_of(x.shape, scaled, shapes, channels, *kernel, *stride, *padding, *dilation, groups, epilogue, level)
    if x.stride() != plan.in_strides:
        x = _with_strides(x, plan.in_strides)
    if scale is not None:
        scale = scale.contiguous()
    if operands:
        operands = [_with_strides(*pair) for pair in zip(operands, plan.operand_strides)]
    if not (
        x.dtype is torch.float32
        and packed.dtype is torch.float32
        and packed.numel() == plan.weights
        and packed.is_contiguous()
        and (bias is None or (bias.dtype is torch.float32 and bias.shape == (channels,)))
        and (scale is None or scale.dtype is torch.float32)
        and (not operands or all(one.dtype is torch.float32 for one in operands))
    ):
        raise ValueError("a packed convolution of other types or sizes than the weights were packed for")
    result = empty_strided_cpu(plan.shape, plan.strides, torch.float32)
    if plan.is_empty:
        return result
    if bias is not None and bias.stride(0) != 1:
        bias = bias.contiguous()
    addresses = [one.data_ptr() for one in operands] if operands else ()
    words = _ADDRESSES.pack(
        x.data_ptr(),
        packed.data_ptr(),
        0 if bias is None else bias.data_ptr(),
        0 if scale is None else scale.data_ptr(),
        0 if plan.added is None else addresses[plan.added],
        result.data_ptr(),
        *addresses,
        *_NONE[len(addresses) :],
    )
    plan.call(words + plan.words)
    return result


@dataclass(frozen=True)
class Plan:
    """What follows from the sizes of a convolution. ``call``: the machine code, which is at ``address``;
    ``operand_strides``: those of the epilogue's operands; ``added``: which of them the code of a tile adds;
    ``weights``: number of packed elements; ``words``: see `WORDS`, those behind the addresses, as bytes."""

    call: Callable[[bytes], None]
    address: int
    in_strides: tuple[int, ...]
    operand_strides: tuple[tuple[int, ...], ...]
    added: int | None
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    weights: int
    is_empty: bool
    words: bytes


@lru_cache(maxsize=4096)
def plan_of(
    shape: torch.Size,
    scale: torch.Size | None,
    operands: tuple[torch.Size, ...],
    channels: int,
    kernel_height: int,
    kernel_width: int,
    stride_height: int,
    stride_width: int,
    padding_height: int,
    padding_width: int,
    dilation_height: int,
    dilation_width: int,
    groups: int,
    epilogue: str,
    level: str,
) -> Plan:
    """``scale``, ``operands``: their shapes. RuntimeError and ValueError as `convolution`'s."""
    batch, inputs, height, width = shape
    kernel, stride = (kernel_height, kernel_width), (stride_height, stride_width)
    padding, dilation = (padding_height, padding_width), (dilation_height, dilation_width)
    result = _result_shape(shape, scale, channels, kernel, stride, padding, dilation, groups)
    _, _, out_height, out_width = result
    following = _following(Epilogue.parse(epilogue), operands, result, level)
    values = {
        **following.words,
        **{"height": height, "width": width, "channels": inputs},
        "scale_step": 0 if scale is None or scale[0] == 1 else inputs,
        **{"out_height": out_height, "out_width": out_width, "out_channels": channels},
        **{"kernel_height": kernel_height, "kernel_width": kernel_width},
        **{"stride_height": stride_height, "stride_width": stride_width},
        **{"padding_height": padding_height, "padding_width": padding_width},
        **{"dilation_height": dilation_height, "dilation_width": dilation_width},
    }
    pixels, code = batch * out_height * out_width, shape_of(level)
    is_depthwise = groups == inputs == channels > 1
    if is_depthwise:
        values |= _depthwise_words(batch * out_height, values)
        weights = kernel_height * kernel_width * _round_up(channels, code.lanes)
    else:
        values |= _dense_words(pixels, groups, values, code, scale is None)
        weights = groups * values["length"] * _round_up(channels // groups, code.lanes)
    values["parts"] += pixels * channels * following.steps // _GRAIN
    entry = "depthwise" if is_depthwise else "dense"
    return Plan(
        _function(level, entry),
        _loaded(level).address(entry),
        (height * width * inputs, 1, width * inputs, inputs),
        following.strides,
        following.added,
        result,
        channels_last(result),
        weights,
        pixels == 0,
        struct.pack(f"={len(WORDS) - len(ADDRESSES)}q", *(values.get(name, 0) for name in WORDS[len(ADDRESSES) :])),
    )


def _result_shape(
    shape: torch.Size,
    scale: torch.Size | None,
    channels: int,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
) -> tuple[int, int, int, int]:
    """RuntimeError, as PyTorch's, or ValueError where there is no such convolution."""
    batch, inputs, _, _ = shape
    is_valid = min(*stride, *dilation) > 0 and min(padding) >= 0 and inputs % groups == 0
    out_height, out_width = result_sizes(shape, kernel, stride, padding, dilation) if is_valid else (0, 0)
    if min(out_height, out_width) < 1:
        weight = torch.empty(channels, max(inputs // groups, 1), *kernel)
        torch.convolution(torch.empty(shape), weight, None, stride, padding, dilation, False, [0, 0], groups)
        raise ValueError(f"no convolution of {list(shape)} in {groups} groups")  # if PyTorch has not said why
    if scale is not None and not (
        scales(kernel, padding, groups) and scale[0] in (1, batch) and scale[1:] == (inputs, 1, 1)
    ):
        raise ValueError(f"a convolution does not scale {list(shape)} by {list(scale)}")
    return batch, channels, out_height, out_width


@dataclass(frozen=True)
class _Following:
    """What an epilogue is for sizes: the strides that its operands must have, which of them is added by the code of a
    tile, some of `WORDS`, and the number of steps that are left."""

    strides: tuple[tuple[int, ...], ...]
    added: int | None
    words: dict[str, int]
    steps: int


def _following(
    epilogue: Epilogue, operands: tuple[torch.Size, ...], result: tuple[int, int, int, int], level: str
) -> _Following:
    batch, channels, height, width = result
    if len(operands) != epilogue.tensors:
        raise ValueError(f"{len(operands)} tensors for the epilogue {str(epilogue)!r}")
    strides, words = [], {"image_pixels": height * width}
    for number, shape in enumerate(operands):
        is_full = shape == result
        if not is_full and shape not in ((batch, channels, 1, 1), (1, channels, 1, 1)):
            raise ValueError(f"an epilogue of {list(result)} reads a tensor of {list(shape)}")
        strides.append(channels_last(shape))
        words[f"image_step_{number}"] = 0 if shape[0] == 1 else strides[-1][0]
        words[f"pixel_step_{number}"] = channels if is_full else 0
    parts = bounded(epilogue, tuple(shape == result for shape in operands))
    words["clamp"] = struct.unpack("=q", struct.pack("=Q", _bits(parts.low) | _bits(parts.high) << 32))[0]
    words["follow"] = address_of(parts.rest, level) if parts.rest.steps else 0
    return _Following(tuple(strides), parts.added, words, len(parts.rest.steps))


def _dense_words(pixels: int, groups: int, values: dict[str, int], code: Shape, in_place: bool) -> dict[str, int]:
    """Divides the work: tiles of nearly equal numbers of pixels, parts of sums of nearly equal lengths. ``in_place``:
    whether inputs may be read where they are."""
    inputs, outputs = values["channels"] // groups, values["out_channels"] // groups
    height, width = values["kernel_height"], values["kernel_width"]
    length = height * width * inputs
    chunk = _chunk(height, width * inputs)
    row = _round_up(chunk, 16) + 16
    row += row // 16 % 2 * 16 ^ 16  # an odd number of cache lines: rows are in different sets
    tiles = max(-(-pixels // code.pixels), 1)
    together = 1 if length * outputs <= _WEIGHTS else max(_INPUTS // (code.pixels * row), 1)
    is_run = groups == 1 and values["dilation_width"] == 1  # a row of the filter is a piece of memory
    shifts = (height, width, values["stride_height"], values["stride_width"])
    unpadded = values["padding_height"] == values["padding_width"] == 0
    conflicts = values["channels"] * values["stride_width"] % _SET == 0  # all pixels of a tile in one set of L1
    is_cut_by_rows = height == 1 or chunk % (width * inputs) == 0 or width * inputs % chunk == 0
    blocks = -(-outputs // code.width)
    together = min(together, tiles)
    return {
        **{"group_inputs": inputs, "group_outputs": outputs},
        **{"direct": int(in_place and shifts == (1, 1, 1, 1) and unpadded and not conflicts), "row": row},
        "direct_rows": int(in_place and is_run and is_cut_by_rows and not conflicts),
        **{"tiles": tiles, "together": together, "tile_pixels": pixels // tiles, "larger_tiles": pixels % tiles},
        **{"length": length, "chunk": chunk},
        **{"piece_taps": width if is_run else 1, "row_pieces": 1 if is_run else width},
        "units": groups * -(-tiles // together) * blocks,
        "parts": pixels * length * outputs * groups // _GRAIN,
    }


def _chunk(rows: int, row: int) -> int:
    """The part of a sum, over the rows of a filter, that is computed at a time: some rows, or a part of one."""
    if row > _CHUNK:
        return -(-row // -(-row // _CHUNK))
    some = min(rows, _CHUNK // row)
    return -(-rows // -(-rows // some)) * row


def _depthwise_words(rows: int, values: dict[str, int]) -> dict[str, int]:
    width, out_width, step = values["width"], values["out_width"], values["stride_width"]
    first = -(-values["padding_width"] // step)
    last = width + values["padding_width"] - 1 - (values["kernel_width"] - 1) * values["dilation_width"]
    taps = values["kernel_height"] * values["kernel_width"]
    return {
        **{"inner_first": first, "inner_end": min(out_width, last // step + 1)},
        # Memory is most of the work.
        **{"units": rows, "parts": rows * out_width * values["channels"] * (taps + 8) // _GRAIN},
    }


def _round_up(number: int, to: int) -> int:
    return -(-number // to) * to


def _bits(real: float) -> int:
    bits: int = struct.unpack("=I", struct.pack("=f", real))[0]
    return bits


def is_dense(sizes: Sequence[int], strides: Sequence[int], wanted: Sequence[int]) -> bool:
    """Whether a tensor has the wanted strides; strides of dims of size 1 are ignored."""
    return all(size == 1 or has == want for size, has, want in zip(sizes, strides, wanted, strict=True))


def _with_strides(x: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """The tensor, or a copy that has these strides."""
    if is_dense(x.shape, x.stride(), strides):
        return x
    return empty_strided_cpu(tuple(x.shape), strides, x.dtype).copy_(x)


@cache
def _function(level: str, entry: str) -> Callable[[bytes], None]:
    return _loaded(level).function_of_bytes(entry)


@cache
def _loaded(level: str) -> Library:
    return Library(object_of(level))
