"""Imports ``flex_attention`` as ``host.attention``: score and mask functions become functions of a tile.

``host.attention`` loops over the tiles that the block mask lists.

Both functions are given for a single score. As in PyTorch's own rule they are mapped over batch, heads, rows and
columns, and the result is traced for a tile of any size, at any position.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch_mlir import ir

from symshape.dialects.host import AttentionOp
from symshape.frontend.bridge.decomposition_tables import traced
from symshape.frontend.bridge.fake_tensors import mode_of, new_symbols_are_ignored, shape_env_of_mode
from symshape.frontend.bridge.guards import guard_counts
from symshape.frontend.bridge.shape_env import size_above_one, unbacked_number
from symshape.frontend.decompositions.table import decomposition_table
from symshape.frontend.importer.fake_values import bind, type_of
from symshape.frontend.importer.subgraphs import (
    ImportFunction,
    Kept,
    Subgraph,
    no_function_left,
    operands_of,
)
from symshape.frontend.importer.traced_symbols import layout_of, size_expr
from symshape.prover.numbers.condition import all_of, at_least
from symshape.prover.numbers.expr import product

if TYPE_CHECKING:
    from symshape.frontend.importer.import_fx import Importer

_HALF_TYPES = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class _Attention:
    """The arguments of a ``flex_attention`` node that count. ``lists``: pairs of numbers of blocks and positions;
    ``block``: rows and columns in one. ``kernel_options`` choose among PyTorch's kernels for GPUs: nothing here has
    them."""

    tensors: tuple[torch.fx.Node, ...]
    lists: tuple[torch.fx.Node, ...]
    block: tuple[Any, ...]
    scale: float
    score: Callable[..., Any]
    mask: Callable[..., Any]
    score_captures: tuple[Any, ...]
    mask_captures: tuple[Any, ...]

    @property
    def captures(self) -> list[Any]:
        """The captured values of a tile's function: nodes, each once; numbers are part of the trace."""
        both = (*self.score_captures, *self.mask_captures)
        return list(dict.fromkeys(one for one in both if isinstance(one, torch.fx.Node)))


def import_attention(importer: Importer, node: torch.fx.Node, import_function: ImportFunction) -> list[Any]:
    """The values of output, logsumexp and maxima; of the last two None where nothing reads them. Kept where it has to
    be a library call, and then nothing was written."""
    fakes = list(node.meta["val"])
    read = {user.args[1] for user in node.users if user.target is operator.getitem and user.users}
    returned = fakes if read & {1, 2} else fakes[:1]
    with no_function_left(importer):
        one = _arguments(importer, node)
        operands = operands_of(importer, [*one.tensors, *one.lists, *one.block, *one.captures])
        names = []
        for traced_function in _traced(one, returned):
            names.append(importer.free_name(traced_function.name))
            sizes = [size for tensor in traced_function.sized for size in tensor.size()]
            some = all_of(*(at_least(size_expr(size), 1) for size in sizes))
            graph, like = traced_function.graph, traced_function.like
            import_function(importer, Subgraph(graph, names[-1], assumed=some, like=like))
    types = [type_of(fake) for fake in returned]
    scores, weights, *whole = names
    op = AttentionOp(scores, weights, len(one.lists), operands, types, whole=next(iter(whole), None)).operation
    importer.mark(op, node)
    results: list[ir.Value | None] = [*op.results, *[None] * (len(fakes) - len(returned))]
    for result, fake in zip(op.results, returned):
        bind(importer, result, fake, op.location)
    return results


def _arguments(importer: Importer, node: torch.fx.Node) -> _Attention:
    """The arguments of the operator. Kept if they ask for something that this project's kernels do not compute."""
    given: Any = node.args
    *tensors, score, block_mask, scale, _options, score_captures, mask_captures = given
    fakes = [tensor.meta["val"] for tensor in tensors]
    dtypes = {fake.dtype for fake in fakes}
    if importer.device != "cpu":
        raise Kept("tiled attention has kernels for CPUs only")
    if len(dtypes) > 1 or not dtypes <= {torch.float32, torch.float64, *_HALF_TYPES}:
        raise Kept(f"its query, key and value are {', '.join(sorted(map(str, dtypes)))}")
    if not isinstance(scale, (int, float)):
        raise Kept("its scale is known only when it is called")
    lists = [tensor for tensor in block_mask[2:6] if tensor is not None]
    if any(tensor.meta["val"].dim() != 3 + i % 2 for i, tensor in enumerate(lists)):
        raise Kept("its block mask has no dims for batch and heads")
    return _Attention(
        tensors=tuple(tensors),
        lists=tuple(lists),
        block=block_mask[-3:-1],
        scale=float(scale),
        score=importer.values[score].value,
        mask=importer.values[block_mask[-1]].value,
        score_captures=tuple(score_captures),
        mask_captures=tuple(mask_captures),
    )


@dataclass(frozen=True)
class _Traced:
    """A traced function of ``host.attention``. ``sized``: the arguments whose sizes are not 0; ``like``: see
    ``Subgraph``."""

    name: str
    graph: torch.fx.GraphModule
    sized: tuple[torch.Tensor, ...]
    like: tuple[torch.Tensor, ...]


def _traced(one: _Attention, returned: Sequence[torch.Tensor]) -> list[_Traced]:
    """The functions of ``host.attention``, in order. Kept if a function of a single score cannot be mapped over a tile
    (it draws random numbers, or branches on a value), or if its trace would add a guard."""
    query: torch.Tensor = one.tensors[0].meta["val"]
    dtype = torch.float32 if query.dtype in _HALF_TYPES else query.dtype
    mode = mode_of(query)
    env = shape_env_of_mode(mode)
    if env is None:
        raise Kept("none of its sizes is symbolic")
    before, table = guard_counts(env), decomposition_table()
    with mode, new_symbols_are_ignored(mode), torch.no_grad():
        tile = torch.empty([size_above_one(env) for _ in range(4)], dtype=dtype)
        place = [unbacked_number(env, int) for _ in range(4)]
        captured = [node.meta["val"] for node in one.captures]
        try:
            scores = traced(_scores(one, dtype), table, tile, *place, *captured)
        except Exception as error:  # of the user's functions, or of an operator's rule for vmap
            reason = str(error).partition("\n")[0]
            raise Kept(f"its functions cannot be mapped over scores: {reason}") from error
        largest = torch.empty([*tile.size()[:3], 1], dtype=dtype)
        weights = traced(_weights, table, tile, largest)
        found = [_Traced("scores", scores, (tile,), (tile,)), _Traced("weights", weights, (tile,), (tile,))]
        short = _short(one, env, returned[0])
        if short is not None:
            *given, output = short
            graph = traced(_whole(one, dtype, returned), table, *given, *captured)
            found.append(_Traced("whole", graph, tuple(given), (output,)))
    if guard_counts(env) != before:
        raise Kept("tracing its functions would add guards on sizes")
    for function in found:
        function.graph.graph.eliminate_dead_code()
    return found


def _short(one: _Attention, env: Any, output: torch.Tensor) -> tuple[torch.Tensor, ...] | None:
    """Query, key, value and output of any length and of batch 1, with the strides' order of the graph's. None if the
    graph's are not dense, or if it is not known how many query heads share a key head."""
    fakes = [node.meta["val"] for node in one.tensors]
    (batch, heads, rows, features), (_, of_key, columns, _), (*_, each) = (fake.shape for fake in fakes)
    if not all(type(size) is int for size in (heads, of_key, features, each)) or heads % max(of_key, 1):
        return None
    orders = [_order(fake) for fake in (*fakes, output)]
    batch, rows, columns = (size if type(size) is int else size_above_one(env) for size in (batch, rows, columns))
    shapes = (
        (batch, heads, rows, features),
        (batch, of_key, columns, features),
        (batch, of_key, columns, each),
        (batch, heads, rows, each),
    )
    if any(_is(size, 0) for shape in shapes for size in shape):
        return None
    made = []
    for fake, order, shape in zip((*fakes, output), orders, shapes):
        if order is None or any(type(size) is int and not _is(shape[d], size) for d, size in enumerate(fake.shape)):
            return None
        strides: list[Any] = [1] * len(shape)
        for outer, inner in reversed(list(itertools.pairwise(order))):
            strides[outer] = strides[inner] * shape[inner]
        made.append(torch.empty_strided(shape, strides, dtype=fake.dtype))
    return tuple(made)


def _is(size: Any, number: int) -> bool:
    """Whether a size is known to be a number, without a guard."""
    return type(size) is int and size == number


def _order(fake: torch.Tensor) -> tuple[int, ...] | None:
    """The dims of a tensor without gaps, the outermost first."""
    layout = layout_of(fake)
    if layout is None:
        return None
    sizes, strides, _ = layout
    for order in itertools.permutations(range(len(sizes))):
        if all(strides[d] == product([sizes[inner] for inner in order[i + 1 :]]) for i, d in enumerate(order)):
            return order
    return None


def _whole(one: _Attention, dtype: torch.dtype, returned: Sequence[torch.Tensor]) -> Callable[..., Any]:
    def whole(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *captured: Any) -> list[torch.Tensor]:
        """The results, with products as sums: kernels, and no library call."""
        of_key = key.size(1)
        shared = query.size(1) // of_key

        def grouped(x: torch.Tensor) -> torch.Tensor:
            """Heads that share one of the key are rows of it."""
            return x.unflatten(1, (of_key, shared)) if shared > 1 else x

        def joined(x: torch.Tensor) -> torch.Tensor:
            return x.flatten(1, 2) if shared > 1 else x

        query, key, value = (x.to(dtype) for x in (query, key, value))
        if shared > 1:
            key, value = key.unsqueeze(2), value.unsqueeze(2)
        products = (grouped(query).unsqueeze(-2) * key.unsqueeze(-3)).sum(-1)
        scores, largest = _scores(one, dtype)(joined(products), 0, 0, 0, 0, *captured)
        weights, total = _weights(scores, largest)
        output = joined((grouped(weights / total).unsqueeze(-1) * value.unsqueeze(-3)).sum(-2))
        logarithms = (largest + total.log()).squeeze(3) / math.log(2)
        made = output, logarithms, largest.squeeze(3) / math.log(2)
        return [one.to(fake.dtype) for one, fake in zip(made, returned)]

    return whole


def _scores(one: _Attention, dtype: torch.dtype) -> Callable[..., Any]:
    def scores(tile: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """(batch, heads, rows, columns) of products -> the operand of the softmax, and the maximum of each row."""
        held = dict(zip(one.captures, rest[4:]))
        indices = [torch.arange(size) + first for size, first in zip(tile.size(), rest[:4])]
        score, mask = (
            _mapped(function, [held.get(c, c) for c in captures], prefix)
            for function, captures, prefix in ((one.score, one.score_captures, 1), (one.mask, one.mask_captures, 0))
        )
        changed = score(tile * one.scale, *indices)
        kept = torch.where(mask(*indices), changed, -float("inf")).to(dtype)
        return kept, kept.amax(-1, keepdim=True)

    return scores


def _weights(scores: torch.Tensor, largest: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Exponentials relative to the maximum of each row, and their sum; 0 and 1 in a row that is masked as a whole.

    A weight that would be subnormal is 0: beside the 1 of the maximum it is nothing, and products with it are slow.
    """
    masked = largest == -float("inf")
    difference = scores - torch.where(masked, 0.0, largest)
    vanishing = difference < math.log(torch.finfo(scores.dtype).tiny)
    weights = torch.exp(torch.where(vanishing, -float("inf"), difference))
    return weights, torch.where(masked, 1.0, weights.sum(-1, keepdim=True))


def _mapped(function: Callable[..., Any], captured: Sequence[Any], tensors: int) -> Callable[..., Any]:
    """A function of ``tensors`` scores and four indices, mapped over all of them: the batch is the first dim of the
    result."""

    def one(*args: Any) -> Any:
        return function(*args, *captured)

    mapped: Callable[..., Any] = one
    for dim in (3, 2, 1, 0):
        in_dims = (0,) * tensors + tuple(0 if i == dim else None for i in range(4))
        mapped = torch.vmap(mapped, in_dims=in_dims)
    return mapped
