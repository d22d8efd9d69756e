"""Attention over the tiles of a block mask: matrix products by the library, everything between them by kernels.

A tile is a block of rows and a run of adjacent columns, for some heads. One buffer for its scores serves all tiles, and
fits into the second-level cache. The results of several runs of a row are combined by their maxima, as in Milakov and
Gimelshein, "Online normalizer calculation for softmax" (2018).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from symshape.runtime.cpu.kept_memory import empty_strided_cpu
from symshape.runtime.torch_c import reinterpret_tensor

Function = Callable[[list[Any]], Any]  # of the host program
Tensors = Sequence[torch.Tensor]
Run = tuple[int, int]  # from the first to the one after the last
# Values summed by their weights, the sum of the weights, and the maximum of the scores, of each row.
Tile = tuple[torch.Tensor, torch.Tensor, torch.Tensor]

_ROWS: Final = 128  # of a tile, at most
_COLUMNS: Final = 2048  # likewise
_ELEMENTS: Final = _ROWS * _COLUMNS  # with all of its heads: 1 MiB, half of a second-level cache
_SHORT: Final = 1 << 19  # multiplications of a product: up to here kernels alone are faster than the library's calls


def tiled_attention(
    scores: Function,
    weights: Function,
    whole: Function | None,
    tensors: Tensors,
    lists: Tensors,
    block: tuple[int, int],
    captured: tuple[Any, ...],
    results: Tensors,
    written: tuple[bool, bool, bool],
) -> None:
    """Fills ``results`` (see ``host.attention``). ``tensors``: query, key and value, (batch, heads, length, features);
    the first may have a multiple of the others' heads, and their batch may be 1. ``lists``: of blocks of ``block`` rows
    and columns, (batch or 1, heads or 1, blocks of rows[, blocks of columns]).

    Raises IndexError, as eager mode does, if there are no keys, and ValueError if the lists do not cover the last rows.
    """
    if whole is not None and _is_short(tensors, lists, block, results):
        made = whole([*tensors, *captured, *(results[:1] if written[2] else ())])
        for result, one in zip(results[written[2] :], made[written[2] :]):
            result.copy_(one)
        return
    query, key, value = tensors
    if query.dtype not in (torch.float32, torch.float64):
        query, key, value = query.float(), key.float(), value.float()
    batches, heads, length, _ = query.shape
    if key.size(0) != batches:
        key, value = key.expand(batches, -1, -1, -1), value.expand(batches, -1, -1, -1)
    if key.size(2) == 0:
        raise IndexError("attention without keys: a row of scores has no maximum")
    if results[0].numel() == 0:
        return
    of_batches, of_heads, blocks, most = lists[1].shape
    if blocks * block[0] < length:
        raise ValueError(f"the block mask is for {blocks * block[0]} rows at most, but there are {length}")
    run = _Tiles(scores, weights, query, key, value, captured, results, written)
    if of_batches == of_heads == blocks == most == 1 and run.is_one(block[1]):
        run.rows_of(query, key, value, results, (0, 0, 0), [(0, key.size(2))] if _is_listed(lists) else [])
        return
    for (batch, head), rows in _row_blocks(lists, block, key.size(2)):
        some_batches = (0, batches) if of_batches == 1 else (batch, batch + 1)
        some_heads = (0, heads) if of_heads == 1 else (head, head + 1)
        for number, columns in enumerate(rows):
            if number * block[0] >= length:
                break
            run.block(some_batches, some_heads, number * block[0], min((number + 1) * block[0], length), columns)


def _is_short(tensors: Tensors, lists: Tensors, block: tuple[int, int], results: Tensors) -> bool:
    """Whether all is one block that is listed, and so little that products by the library would be mostly calls."""
    query, key, value = tensors
    batches, heads, rows, features = query.shape
    of_batches, _, columns, _ = key.shape
    return (
        0 < batches * heads * rows * columns * features <= _SHORT
        and lists[1].numel() == 1
        and rows <= block[0]
        and columns <= block[1]
        and of_batches == batches
        and value.shape[:3] == key.shape[:3]
        and results[0].numel() > 0
        and _is_listed(lists)
    )


def _is_listed(lists: Tensors) -> bool:
    """Whether the only block is in one of the lists."""
    return any(counts.item() for counts in lists[::2])


def _row_blocks(
    lists: Tensors, block: tuple[int, int], length: int
) -> Iterator[tuple[tuple[int, int], list[list[Run]]]]:
    """For each batch and head of the lists, the runs of columns of each block of rows."""
    pairs = [(counts.tolist(), positions.tolist()) for counts, positions in zip(lists[::2], lists[1::2])]
    for batch, of_heads in enumerate(pairs[0][0]):
        for head, of_rows in enumerate(of_heads):
            found = []
            for row in range(len(of_rows)):
                blocks: list[int] = []
                for counts, positions in pairs:
                    blocks += positions[batch][head][row][: counts[batch][head][row]]
                found.append(_runs(blocks, block[1], length))
            yield (batch, head), found


def _runs(blocks: list[int], width: int, length: int) -> list[Run]:
    """Adjacent blocks of columns merged into runs that fit into a tile."""
    runs: list[Run] = []
    for position in sorted(blocks):
        first, end = position * width, min((position + 1) * width, length)
        while first < end:
            last = runs[-1] if runs else None
            if last is not None and last[1] == first and last[1] - last[0] < _COLUMNS:
                some = min(end, last[0] + _COLUMNS)
                runs[-1] = last[0], some
            else:
                some = min(end, first + _COLUMNS)
                runs.append((first, some))
            first = some
    return runs


@dataclass
class _Tiles:
    """The values that all tiles of a call share."""

    scores: Function
    weights: Function
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    captured: tuple[Any, ...]
    results: Tensors
    written: tuple[bool, bool, bool]
    memory: tuple[torch.Tensor, torch.Tensor] | None = None

    def is_one(self, width: int) -> bool:
        """Whether all scores are one tile, in one block of this many columns."""
        batches, heads, rows, _ = self.query.shape
        columns = self.key.size(2)
        return rows <= _ROWS and columns <= min(_COLUMNS, width) and batches * heads * rows * columns <= _ELEMENTS

    def block(self, batches: Run, heads: Run, first: int, end: int, runs: list[Run]) -> None:
        """Computes a block of rows of some batches and heads, which have the same runs of columns."""
        each = self.query.size(1) // self.key.size(1)
        width = max((run[1] - run[0] for run in runs), default=1)
        for row in range(first, end, _ROWS):
            rows = row, min(row + _ROWS, end)
            for batch, head in self._groups(batches, heads, (rows[1] - rows[0]) * width):
                query = _cut(self.query, batch, head, rows)
                of_key = head[0] // each, (head[1] - 1) // each + 1
                key, value = (_cut(tensor, batch, of_key) for tensor in (self.key, self.value))
                results = [_cut(result, batch, head, rows) for result in self.results]
                self.rows_of(query, key, value, results, (batch[0], head[0], row), runs)

    def _groups(self, batches: Run, heads: Run, size: int) -> Iterator[tuple[Run, Run]]:
        """Batches and heads whose tiles, each of ``size`` elements, are computed together: all heads of some batches,
        or some heads of one, which read whole heads of the key."""
        count, each = heads[1] - heads[0], self.query.size(1) // self.key.size(1)
        together = max(_ELEMENTS // size, 1)
        if together >= count:
            step = together // count
            for batch in range(*batches, step):
                yield (batch, min(batch + step, batches[1])), heads
            return
        step = together // each * each or together
        for batch in range(*batches):
            head = heads[0]
            while head < heads[1]:
                # Less than the heads that share one of the key end where those do.
                last = min(head + step, heads[1]) if step >= each else min(head + step, (head // each + 1) * each)
                yield (batch, batch + 1), (head, last)
                head = last

    def rows_of(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        results: Tensors,
        place: tuple[int, int, int],
        runs: list[Run],
    ) -> None:
        """Computes the results of some rows: key and value are whole, the others slices that start at ``place``."""
        if not runs:
            for result, empty in zip(results, (0.0, -math.inf, -math.inf)):
                result.fill_(empty)
            return
        made = []
        for run in runs:
            k, v = (_columns(tensor, run) for tensor in (key, value))
            made.append(self._tile(query, k, v, (*place, run[0])))
        output, sums, maxima = made[0] if len(made) == 1 else functools.reduce(_combined, made)
        torch.div(output, sums, out=results[0])
        if len(results) > 1:
            torch.div((maxima + sums.log()).squeeze(3), math.log(2), out=results[1])
            torch.div(maxima.squeeze(3), math.log(2), out=results[2])

    def _tile(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, place: tuple[int, int, int, int]
    ) -> Tile:
        """Heads that share one of the key are one below the other in the products."""
        (batches, heads, rows, features), (_, of_key, columns, _) = query.shape, key.shape
        products, tall = batches * of_key, heads // of_key * rows
        shape = batches, heads, rows, columns
        tile, scores = self._memory(shape, (heads * rows * columns, rows * columns, columns, 1))
        product = tile.view(products, tall, columns)
        keys = key.reshape(products, columns, features).transpose(1, 2)
        torch.bmm(query.reshape(products, tall, features), keys, out=product)
        scores, largest = self.scores([tile, *place, *self.captured, *([scores] if self.written[0] else ())])
        weights, total = self.weights([scores, largest, *([tile] if self.written[1] else ())])
        weights = product if weights is tile else weights.view(products, tall, columns)
        each = value.size(3)
        made = torch.bmm(weights, value.reshape(products, columns, each))
        return made.view(batches, heads, rows, each), total, largest

    def _memory(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        """Room for a tile, twice: for products, and for what kernels make of them; each is written to while the other
        is read. What the first tile gets serves the largest."""
        if self.memory is None:
            batches, heads, rows, _ = self.query.shape
            size = min(_ELEMENTS, batches * heads * min(rows, _ROWS) * min(self.key.size(2), _COLUMNS))
            if size == math.prod(shape):
                dtype = self.query.dtype
                return empty_strided_cpu(shape, strides, dtype), empty_strided_cpu(shape, strides, dtype)
            made = [empty_strided_cpu((size,), (1,), self.query.dtype) for _ in range(2)]
            self.memory = made[0], made[1]
        first, second = self.memory
        return reinterpret_tensor(first, shape, strides), reinterpret_tensor(second, shape, strides)


def _combined(one: Tile, other: Tile) -> Tile:
    """The result of the same rows over the columns of both parts."""
    (output, sums, maxima), (made, total, largest) = one, other
    joint = torch.maximum(maxima, largest)
    centre = torch.where(joint == -math.inf, 0.0, joint)
    before, now = torch.exp(maxima - centre), torch.exp(largest - centre)
    sums = torch.where(joint == -math.inf, 1.0, sums * before + total * now)
    return output.mul_(before).add_(made.mul_(now)), sums, joint


def _columns(tensor: torch.Tensor, run: Run) -> torch.Tensor:
    """The columns of a run of a key or value."""
    count = run[1] - run[0]
    return tensor if count == tensor.size(2) else tensor.narrow(2, run[0], count)


def _cut(tensor: torch.Tensor, *parts: Run) -> torch.Tensor:
    """A slice of a tensor along its first dims."""
    for dim, (first, end) in enumerate(parts):
        if end - first != tensor.size(dim):
            tensor = tensor.narrow(dim, first, end - first)
    return tensor
