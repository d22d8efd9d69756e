"""Programs with ``while_loop``, ``scan`` and ``map``, and what these operators mean as plain Python."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.map import map as map_over

Tensor = torch.Tensor


def plain_while(cond: Any, body: Any, carried: Any) -> Any:
    carried = tuple(carried)
    if not cond(*carried):
        return tuple(one.clone() if isinstance(one, Tensor) else one for one in carried)
    while cond(*carried):
        carried = body(*carried)
    return carried


def plain_scan(combine: Any, init: Any, xs: Any, *, dim: int = 0, reverse: bool = False) -> Any:
    leaves, spec = pytree.tree_flatten(xs)
    positions = range(leaves[0].shape[dim])
    ys: list[Any] = []
    for i in reversed(positions) if reverse else positions:
        init, y = combine(init, pytree.tree_unflatten([leaf.select(dim, i) for leaf in leaves], spec))
        ys.append(y)
    stacked = pytree.tree_map(lambda *parts: torch.stack(parts, dim), *(reversed(ys) if reverse else ys))
    return init, stacked


def plain_map(function: Any, xs: Any, *args: Any) -> Any:
    return plain_scan(lambda carry, x: (carry, function(x, *args)), (), xs)[1]


def plain_cond(predicate: Any, true: Any, false: Any, operands: Any) -> Any:
    return true(*operands) if predicate else false(*operands)


@dataclass(frozen=True)
class Loops:
    """The operators, as PyTorch has them or in plain Python."""

    while_loop: Callable[..., Any] = while_loop
    scan: Callable[..., Any] = scan
    map: Callable[..., Any] = map_over
    cond: Callable[..., Any] = torch.cond


PLAIN = Loops(plain_while, plain_scan, plain_map, plain_cond)
TRACED = Loops()
Inputs = tuple[Any, ...]


@dataclass(frozen=True)
class Program:
    """``inputs(n)``: for a loop of n steps; ``gradients``: of all inputs with floats; ``lengths`` in steps."""

    function: Callable[..., Any]
    inputs: Callable[[int], Inputs]
    gradients: bool = False
    lengths: tuple[int, ...] = (1, 2, 5, 17, 64)
    graphs: int = 1  # that Dynamo traces


def _rows(n: int) -> Inputs:
    return (torch.randn(n, 7), torch.randn(7) * 0.4)  # loops that do not amplify differences of rounding


def _square(n: int) -> Inputs:
    return (torch.randn(n, 6), torch.randn(6, 6) * 0.3, torch.randn(6))


def while_tensor_counter(loops: Loops, x: Tensor, y: Tensor) -> Any:
    end = torch.tensor(x.shape[0])
    return loops.while_loop(lambda i, a: i < end, lambda i, a: (i + 1, a.sin() * y + i), (torch.tensor(0), x))


def while_integer(loops: Loops, x: Tensor, y: Tensor) -> Any:
    end = x.shape[0]
    n, last = loops.while_loop(lambda i, a: i < end, lambda i, a: (i + 1, (a * y).cos() + i), (0, x))
    return last * n, last.sum(0)


def while_integers(loops: Loops, x: Tensor, y: Tensor) -> Any:
    return loops.while_loop(
        lambda i, j, a: i + j < 3 * x.shape[0], lambda i, j, a: (i + 2, j + 1, a.tanh() + j - i), (0, x.shape[0] - 1, y)
    )


def while_several(loops: Loops, x: Tensor, w: Tensor, b: Tensor) -> Any:
    def body(i: Any, a: Tensor, total: Tensor) -> Any:
        a = (a @ w + b).softmax(-1)
        return i + 1, a, total * 0.5 + a.sum(0)  # a plain sum of nearly equal numbers adds up their rounding

    end = x.shape[0]
    return loops.while_loop(lambda i, a, total: i < end, body, (0, x, torch.zeros_like(b)))


def while_data(loops: Loops, x: Tensor, y: Tensor) -> Any:
    return loops.while_loop(lambda a: a.abs().max() > 0.01, lambda a: (a * 0.5,), (x * y,))


def while_without_steps(loops: Loops, x: Tensor, y: Tensor) -> Any:
    n, a, b = loops.while_loop(lambda i, a, b: i < 0, lambda i, a, b: (i + 1, a + 1, b * 2), (0, x, x * 2))
    return a, b, n


def scan_pointwise(loops: Loops, x: Tensor, y: Tensor) -> Any:
    return loops.scan(lambda c, row: (c * 0.9 + row * y, (c * row).sin()), torch.zeros(x.shape[1:]), x)


def scan_last_only(loops: Loops, x: Tensor, y: Tensor) -> Any:
    last, _ = loops.scan(lambda c, row: ((c + row).tanh(), c * 2), y, x)
    return last


def scan_cell(loops: Loops, x: Tensor, w: Tensor, b: Tensor) -> Any:
    """A recurrent cell: two carries, weights that the body closes over."""

    def step(carry: Any, row: Tensor) -> Any:
        h, c = carry
        gate = torch.sigmoid(h @ w + row)
        c = gate * c + (1 - gate) * torch.tanh(row @ w + b)
        h = gate * torch.tanh(c)
        return (h, c), (h.clone(), gate.sum())

    (h, c), (hs, gates) = loops.scan(step, (torch.zeros_like(b), b * 2), x)
    return h, c, hs, gates


def scan_reversed(loops: Loops, x: Tensor, y: Tensor) -> Any:
    return loops.scan(lambda c, row: (c + row, (c - row).exp()), y, x, reverse=True)


def scan_other_dim(loops: Loops, x: Tensor, y: Tensor) -> Any:
    z = torch.stack([x, x * 2], 0)
    return loops.scan(lambda c, row: (c + row * y, (c * row).tanh()), z[:, 0] * 0, z, dim=1)


def scan_trees(loops: Loops, x: Tensor, y: Tensor) -> Any:
    """Several sliced tensors, of several types and ranks; a result that is no float."""

    def step(carry: Any, slices: Any) -> Any:
        row, number = slices["row"], slices["number"]
        return carry + row.sum() * number, {"sign": row > carry, "max": row.amax() + number}

    return loops.scan(step, torch.zeros(()), {"row": x, "number": torch.arange(x.shape[0])})


def map_pointwise(loops: Loops, x: Tensor, y: Tensor) -> Any:
    return loops.map(lambda row, y: (row * y).sin() + row.shape[0], x, y)


def map_several(loops: Loops, x: Tensor, y: Tensor) -> Any:
    a, b = loops.map(lambda rows, y: (rows[0].softmax(-1) * y, (rows[0] * rows[1]).sum()), (x, x + 1), y)
    return a, b * 2


def map_closure(loops: Loops, x: Tensor, w: Tensor, b: Tensor) -> Any:
    return loops.map(lambda row: torch.relu(row @ w + b), x)


def map_transposed(loops: Loops, x: Tensor, y: Tensor) -> Any:
    """Slices that are not contiguous."""
    z = torch.stack([x, x * 3, x - 1], -1)
    return loops.map(lambda row, y: row.exp() * y, z.transpose(1, 2), y)


def scan_in_map(loops: Loops, x: Tensor, y: Tensor) -> Any:
    z = torch.stack([x, x * 2, x * y], 1)
    return loops.map(lambda rows: loops.scan(lambda c, row: (c + row, (c * row).cos()), torch.zeros(7), rows)[1], z)


def while_in_scan(loops: Loops, x: Tensor, y: Tensor) -> Any:
    def step(c: Tensor, row: Tensor) -> Any:
        n, a = loops.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, (a * y).sin()), (0, row + c))
        return a, a * n

    return loops.scan(step, y * 0, x)


def cond_in_scan(loops: Loops, x: Tensor, y: Tensor) -> Any:
    def step(c: Tensor, row: Tensor) -> Any:
        a = loops.cond(row.sum() > 0, lambda a, b: (a + b).sin(), lambda a, b: a * b - 1, (c, row))
        return a, a.exp()

    return loops.scan(step, y * 0.1, x)


def cond_in_while(loops: Loops, x: Tensor, y: Tensor) -> Any:
    def body(i: Any, a: Tensor) -> Any:
        return i + 1, loops.cond(a.mean() > 0, lambda a: a.cos() - y, lambda a: a.exp() * 0.5, (a,))

    end = x.shape[0]
    return loops.while_loop(lambda i, a: i < end, body, (0, x))


def loops_in_cond(loops: Loops, x: Tensor, y: Tensor) -> Any:
    return loops.cond(
        x.sum() > 0,
        lambda x, y: loops.scan(lambda c, row: (c + row, (c * row).sin()), torch.zeros(7), x)[1],
        lambda x, y: loops.map(lambda row: row * 2 + 1, x),
        (x, y),
    )


PROGRAMS: dict[str, Program] = {
    "while, tensor as counter": Program(while_tensor_counter, _rows),
    "while, integer": Program(while_integer, _rows),
    "while, two integers": Program(while_integers, _rows),
    "while, several carries, closure": Program(while_several, _square),
    "while, as the data says": Program(while_data, _rows),
    "while, no step": Program(while_without_steps, _rows, lengths=(0, 1, 2, 5, 17, 64)),
    "scan": Program(scan_pointwise, _rows),
    "scan, last carry only": Program(scan_last_only, _rows),
    "scan, recurrent cell": Program(scan_cell, _square),
    "scan, reversed": Program(scan_reversed, _rows),
    "scan, along dim 1": Program(scan_other_dim, _rows),
    "scan, trees": Program(scan_trees, _rows),
    "map": Program(map_pointwise, _rows),
    "map, several": Program(map_several, _rows),
    "map, closure": Program(map_closure, _square),
    "map, slices with strides": Program(map_transposed, _rows),
    "scan in map": Program(scan_in_map, _rows),
    "while in scan": Program(while_in_scan, _rows),
    "cond in scan": Program(cond_in_scan, _rows),
    "cond in while": Program(cond_in_while, _rows),
    "loops in cond": Program(loops_in_cond, _rows),
    "while, gradients": Program(while_tensor_counter, _rows, gradients=True),
    "scan, gradients": Program(scan_pointwise, _rows, gradients=True),
    "scan, recurrent cell, gradients": Program(scan_cell, _square, gradients=True),
    "map, gradients": Program(map_several, _rows, gradients=True),
    "map, closure, gradients": Program(map_closure, _square, gradients=True),
}
