"""Programs of nested tensors with the jagged layout: values, and offsets of the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

Tensor = torch.Tensor

WIDTH = 6
# Lengths of rows: unequal, some and all of them 0, equal, one row.
BATCHES = ((3, 5, 2), (7, 1, 4, 11, 2), (4, 0, 7), (0, 0, 3, 0), (6, 6), (9,), (0, 0, 0))


@dataclass(frozen=True)
class Jagged:
    """A program of one nested tensor and dense ones. ``dense``: what else it takes, for a number of rows.
    ``gradient``: eager mode has one. ``nonempty``: eager mode refuses a batch without elements. ``several``: it asks
    whether there is one row, and so there is a graph for that. ``calls``: what stays of PyTorch's own operators."""

    name: str
    function: Callable[..., Any]
    dense: Callable[[int], tuple[Tensor, ...]] = lambda rows: ()
    gradient: bool = True
    nonempty: bool = False
    several: bool = False
    calls: tuple[str, ...] = ()

    @property
    def batches(self) -> tuple[tuple[int, ...], ...]:
        found = (batch for batch in BATCHES if not self.nonempty or max(batch) > 0)
        return tuple(batch for batch in found if not self.several or len(batch) > 1)

    def inputs(self, lengths: Sequence[int]) -> tuple[Tensor, ...]:
        """The same for equal lengths."""
        torch.manual_seed(sum(lengths))
        rows = [torch.randn(length, WIDTH).mul(3) for length in lengths]
        nested = torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=self.gradient)
        dense = [x.requires_grad_(self.gradient and x.is_floating_point()) for x in self.dense(len(lengths))]
        return nested, *dense


def block(x: Tensor, weight: Tensor, bias: Tensor, product: Tensor) -> Tensor:
    """Layer norm, gelu, linear, softmax over the dense dim, sum over the rows."""
    normed = F.gelu(F.layer_norm(x, (WIDTH,), weight, bias))
    return F.linear(normed, product).softmax(-1).sum(1)


def from_padded(x: Tensor) -> Tensor:
    padded = torch.nested.to_padded_tensor(x, 0.0)
    return torch.nested.nested_tensor_from_jagged(x.values() + padded.sum(), x.offsets())


def of_lengths(x: Tensor) -> Tensor:
    """Offsets made from lengths: nothing of the data is read."""
    lengths = x.offsets().diff()
    offsets = F.pad(lengths.cumsum(0), (1, 0))
    return (torch.nested.nested_tensor_from_jagged(x.values() * 2, offsets) * 3).values()


def affine(rows: int) -> tuple[Tensor, ...]:
    return torch.rand(WIDTH), torch.rand(WIDTH)


J = Jagged
JAGGED_AGAIN = "_padded_dense_to_jagged_forward"
JAGGED = (
    J("pointwise", lambda x: torch.sin(x) * 2 + 1),
    J("pointwise of two", lambda x: x * x.cos() - x.exp()),
    J("chain of pointwise", lambda x: F.silu(F.gelu(x) * torch.sigmoid(x) + 3).tanh()),
    J("comparison", lambda x: (x > 0).to(torch.float32), gradient=False),
    J("cast to float64", lambda x: x.to(torch.float64) * 3),
    J("cast to bfloat16", lambda x: x.to(torch.bfloat16) + 1),
    J("dense row", lambda x, b: x + b, lambda rows: (torch.rand(WIDTH),)),
    J("linear", lambda x, w: F.linear(x, w), lambda rows: (torch.rand(4, WIDTH),), calls=("mm", "mm", "mm")),
    J(
        "linear with a bias",
        lambda x, w, b: F.linear(x, w, b),
        lambda rows: (torch.rand(4, WIDTH), torch.rand(4)),
        calls=("addmm", "mm", "mm"),
    ),
    J("layer norm", lambda x, w, b: F.layer_norm(x, (WIDTH,), w, b), affine),
    J("rms norm", lambda x, w: F.rms_norm(x, (WIDTH,), w), lambda rows: (torch.rand(WIDTH),)),
    J("softmax of the dense dim", lambda x: x.softmax(-1)),
    J("log_softmax of the dense dim", lambda x: x.log_softmax(-1), gradient=False),
    J("softmax of the ragged dim", lambda x: x.softmax(1), gradient=False, nonempty=True, calls=(JAGGED_AGAIN,)),
    J("sum of the ragged dim", lambda x: x.sum(1), gradient=False),
    J("sum of the ragged dim, kept", lambda x: x.sum(1, keepdim=True), gradient=False),
    J("mean of the ragged dim", lambda x: x.mean(1), gradient=False),
    J("amax of the ragged dim", lambda x: x.amax(1), gradient=False, nonempty=True),
    J("amin of the ragged dim", lambda x: x.amin(1), gradient=False, nonempty=True),
    J("sum of the dense dim", lambda x: x.sum(-1), gradient=False),
    J("mean of the dense dim", lambda x: x.mean(-1, keepdim=True)),
    J("amax of the dense dim", lambda x: x.amax(-1)),
    J("sum of all", lambda x: x.sum()),
    J("padded", lambda x: torch.nested.to_padded_tensor(x, -1.5), calls=(JAGGED_AGAIN,)),
    J("padded, summed, and back", from_padded, calls=(JAGGED_AGAIN,)),
    J("block", block, lambda rows: (*affine(rows), torch.rand(4, WIDTH)), gradient=False, calls=("mm",)),
    J(
        "a dense tensor for each row",
        lambda x, y: x * y,
        lambda rows: (torch.rand(rows, 1, WIDTH),),
        several=True,
        calls=(JAGGED_AGAIN, JAGGED_AGAIN),
    ),
    J("offsets of lengths", of_lengths),
)
