"""Attention over the tiles that a block mask names: products by the library, what lies between them by kernels.

A tile is a block of rows and a run of neighbouring columns, for some heads. The memory for its scores is the same for
all tiles, and fits into the second-level cache. Rows of several runs are combined by their maxima, as in Milakov and
Gimelshein, "Online normalizer calculation for softmax" (2018).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from symshape.runtime.torch_c import empty_strided_cpu, reinterpret_tensor

Function = Callable[[list[Any]], Any]  # of the host program
Tensors = Sequence[torch.Tensor]
Run = tuple[int, int]  # columns, from the first to the one after the last

_ELEMENTS: Final = 1 << 18  # of a tile, where it has more than one head: 1 MiB, half of a second-level cache
_ROWS: Final = 128
_COLUMNS: Final = 2048


def tiled_attention(
    scores: Function,
    weights: Function,
    tensors: Tensors,
    lists: Tensors,
    block: tuple[int, int],
    captured: tuple[Any, ...],
    results: Tensors,
    written: tuple[bool, bool],
) -> None:
    """Fills ``results`` (see ``host.attention``). ``tensors``: query, key and value, (batch, heads, length, features);
    the first may have a multiple of the others' heads, and their batch may be 1. ``lists``: of blocks of ``block`` rows
    and columns, (batch or 1, heads or 1, blocks of rows[, blocks of columns]).

    Raises ValueError where the lists say nothing of the last rows.
    """
    query, key, value = tensors
    if query.dtype not in (torch.float32, torch.float64):
        query, key, value = query.float(), key.float(), value.float()
    if key.size(0) != query.size(0):
        key, value = key.expand(query.size(0), -1, -1, -1), value.expand(query.size(0), -1, -1, -1)
    batches, heads, length, _ = query.size()
    if query.numel() == 0 or results[0].numel() == 0:
        return
    if lists[0].size(2) * block[0] < length:
        raise ValueError(f"the block mask is for {lists[0].size(2) * block[0]} rows at most, but there are {length}")
    run = _Tiles(scores, weights, query, key, value, captured, results, written)
    shared = lists[0].size(0), lists[0].size(1)
    for (batch, head), rows in _row_blocks(lists, block, key.size(2)):
        some_batches = (0, batches) if shared[0] == 1 else (batch, batch + 1)
        some_heads = (0, heads) if shared[1] == 1 else (head, head + 1)
        for number, columns in enumerate(rows):
            if number * block[0] >= length:
                break
            run.block(some_batches, some_heads, number * block[0], min((number + 1) * block[0], length), columns)


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
    """Neighbouring blocks of columns together, as long as they are not too many for a tile."""
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
    """What all tiles of a call need. ``memory``: for scores, and for what the kernels make of them; each is written to
    while the other is read."""

    scores: Function
    weights: Function
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    captured: tuple[Any, ...]
    results: Tensors
    written: tuple[bool, bool]
    memory: tuple[torch.Tensor, torch.Tensor] | None = None

    def block(self, batches: Run, heads: Run, first: int, end: int, runs: list[Run]) -> None:
        """A block of rows of some batches and heads, which have the same runs of columns."""
        if not runs:
            for result, empty in zip(self.results, (0.0, -math.inf, -math.inf)):
                result[batches[0] : batches[1], heads[0] : heads[1], first:end].fill_(empty)
            return
        width = max(run[1] - run[0] for run in runs)
        for row in range(first, end, _ROWS):
            rows = row, min(row + _ROWS, end)
            for some in self._groups(batches, heads, (rows[1] - rows[0]) * width):
                self._rows(*some, rows, runs)

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

    def _rows(self, batches: Run, heads: Run, rows: Run, runs: list[Run]) -> None:
        """The results of some rows of some heads."""
        sums: torch.Tensor | None = None
        for columns in runs:
            made, total, largest = self._tile(batches, heads, rows, columns)
            if sums is None:
                output, sums, maxima = made, total, largest
                continue
            joint = torch.maximum(maxima, largest)
            centre = torch.where(joint == -math.inf, 0.0, joint)
            before, now = torch.exp(maxima - centre), torch.exp(largest - centre)
            output = output.mul_(before).add_(made.mul_(now))
            sums = torch.where(joint == -math.inf, 1.0, sums * before + total * now)
            maxima = joint
        assert sums is not None
        parts = [result[batches[0] : batches[1], heads[0] : heads[1], rows[0] : rows[1]] for result in self.results]
        torch.div(output, sums, out=parts[0])
        if len(parts) > 1:
            torch.div((maxima + sums.log()).squeeze(3), math.log(2), out=parts[1])
            torch.div(maxima.squeeze(3), math.log(2), out=parts[2])

    def _tile(
        self, batches: Run, heads: Run, rows: Run, columns: Run
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The sum of values by their weights, the sum of the weights, and the maximum of the scores, of each row."""
        each = self.query.size(1) // self.key.size(1)
        shape = batches[1] - batches[0], heads[1] - heads[0], rows[1] - rows[0], columns[1] - columns[0]
        keys = heads[0] // each, (heads[1] - 1) // each + 1
        products = shape[0] * (keys[1] - keys[0])  # the heads that share one of the key are one below the other
        tall = shape[0] * shape[1] * shape[2] // products
        query = _cut(self.query, batches, heads, rows).reshape(products, tall, -1)
        key = _cut(self.key, batches, keys, columns).reshape(products, shape[3], -1)
        value = _cut(self.value, batches, keys, columns).reshape(products, shape[3], -1)
        first, second = self._memory(math.prod(shape))
        strides = math.prod(shape[1:]), shape[2] * shape[3], shape[3], 1
        flat = (products, tall, shape[3]), (tall * shape[3], shape[3], 1)
        product, scores = reinterpret_tensor(first, *flat), reinterpret_tensor(second, shape, strides)
        torch.bmm(query, key.transpose(1, 2), out=product)
        tile = reinterpret_tensor(first, shape, strides)
        place = batches[0], heads[0], rows[0], columns[0]
        scores, largest = self.scores([tile, *place, *self.captured, *([scores] if self.written[0] else ())])
        weights, total = self.weights([scores, largest, *([tile] if self.written[1] else ())])
        made = torch.bmm(reinterpret_tensor(weights, *flat), value)
        return made.view(*shape[:3], -1), total, largest

    def _memory(self, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Room for a tile, twice."""
        if self.memory is None or self.memory[0].numel() < size:
            made = [empty_strided_cpu((size,), (1,), self.query.dtype) for _ in range(2)]
            self.memory = made[0], made[1]
        return self.memory


def _cut(tensor: torch.Tensor, batches: Run, heads: Run, rows: Run) -> torch.Tensor:
    """A part of a tensor (batch, heads, rows, features)."""
    whole = (0, tensor.size(0)), (0, tensor.size(1)), (0, tensor.size(2))
    for dim, (part, all_) in enumerate(zip((batches, heads, rows), whole)):
        if part != all_:
            tensor = tensor.narrow(dim, part[0], part[1] - part[0])
    return tensor
