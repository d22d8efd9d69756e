"""Calls that take a float as a number, written with operators that take tensors: kernels then read the float.

``x.add(y, alpha=e)`` becomes ``x + y * e``, and ``e ** x`` the power of two tensors. In a kernel that costs nothing;
left as a number, the float would be a constant of the graph, with a graph for each value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

aten: Any = torch.ops.aten
prims: Any = torch.ops.prims
_NUMBERS = (torch.SymFloat, torch.SymInt, torch.SymBool)


@dataclass(frozen=True)
class _Writer:
    """Writes calls in front of a node, with traced values as the node has them."""

    node: Node
    fake_mode: Any

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        with self.node.graph.inserting_before(self.node):
            made = self.node.graph.call_function(target, args, kwargs)
        made.meta = {key: value for key, value in self.node.meta.items() if key != "val"}
        with self.fake_mode:
            made.meta["val"] = target(*torch.fx.map_arg(args, _value), **kwargs)
        return made

    def scalar(self, number: Any, dtype: torch.dtype) -> Node:
        """A tensor without dims. A number that is no symbol is a constant."""
        return self.call(aten.scalar_tensor.default, number, dtype=dtype)

    def converted(self, x: Any, dtype: torch.dtype) -> Any:
        same = not isinstance(x, Node) or x.meta["val"].dtype == dtype
        return x if same else self.call(prims.convert_element_type.default, x, dtype)


def _value(node: Node) -> Any:
    """A node's traced value; any number for one that is a symbol, since types and sizes of results are all that is
    asked for."""
    value = node.meta["val"]
    return 1.0 if isinstance(value, torch.SymFloat) else value


def write_out(node: Node, fake_mode: Any) -> None:
    """Replaces a call that takes a float, if this is known to be the same, by others; else it stays."""
    rule = _RULES.get(node.target)
    value = node.meta.get("val")
    if rule is None or not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return
    if any(isinstance(one.meta.get("val"), list | tuple) for one in node.all_input_nodes):
        return
    written = rule(_Writer(node, fake_mode), value.dtype, *node.args, **node.kwargs)
    if written is not None and _is_like(written.meta["val"], value):
        node.replace_all_uses_with(written)
        node.graph.erase_node(node)


def _is_like(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether two traced values have one type and layout; asks for no guard."""
    numbers = [[str(n) for n in (*one.shape, *one.stride())] for one in (x, y)]
    return x.dtype == y.dtype and x.device == y.device and numbers[0] == numbers[1]


def _is_number(x: Any) -> bool:
    return not isinstance(x, Node) or isinstance(x.meta.get("val"), _NUMBERS)


def _scaled(op: Any) -> Callable[..., Node | None]:
    """``x + alpha * y``. The tensor is converted first, as eager mode multiplies numbers of the result's type."""

    def rule(w: _Writer, dtype: torch.dtype, x: Any, y: Any, alpha: Any = 1) -> Node | None:
        if alpha == 1 or _is_number(x) or _is_number(y):
            return None
        return w.call(op, x, w.call(aten.mul.Tensor, w.converted(y, dtype), alpha))

    return rule


def _with_factor(op: Any) -> Callable[..., Node]:
    """``x + value * a * b`` or ``x + value * a / b``, in this order."""

    def rule(w: _Writer, dtype: torch.dtype, x: Any, a: Any, b: Any, value: Any = 1) -> Node:
        scaled = w.call(aten.mul.Tensor, w.converted(a, dtype), value)
        return w.call(aten.add.Tensor, x, w.call(op, scaled, w.converted(b, dtype)))

    return rule


def _multiplied_and_added(w: _Writer, dtype: torch.dtype, a: Any, b: Any, c: Any) -> Node | None:
    return None if _is_number(a) or _is_number(c) else w.call(aten.add.Tensor, c, w.call(aten.mul.Tensor, a, b))


def _as_tensors(op: Any) -> Callable[..., Node | None]:
    """The same call of an operator that PyTorch's pass knows."""

    def rule(w: _Writer, dtype: torch.dtype, x: Any, y: Any) -> Node:
        return w.call(op, x, y)

    return rule


def _by_tensor(op: Any) -> Callable[..., Node | None]:
    """The overload for tensors, for types in which a number is not rounded differently."""

    def rule(w: _Writer, dtype: torch.dtype, x: Any, y: Any, **named: Any) -> Node | None:
        if dtype not in (torch.float32, torch.float64) or _is_number(x) or not _is_number(y):
            return None
        return w.call(op, w.converted(x, dtype), w.scalar(y, dtype), **named)

    return rule


def _power(w: _Writer, dtype: torch.dtype, number: Any, exponent: Any) -> Node:
    return w.call(aten.pow.Tensor_Tensor, w.scalar(number, dtype), w.converted(exponent, dtype))


def _threshold(w: _Writer, dtype: torch.dtype, x: Any, threshold: Any, value: Any) -> Node:
    chosen = w.call(aten.le.Tensor, x, w.scalar(threshold, dtype))
    return w.call(aten.where.self, chosen, w.scalar(value, dtype), x)


def _padded(w: _Writer, dtype: torch.dtype, x: Any, pad: Any, value: Any = 0) -> Node:
    """Zeros are added, and where they are is read from a padded mask."""
    added = w.call(aten.full_like.default, x, False, dtype=torch.bool)
    added = w.call(aten.constant_pad_nd.default, added, pad, True)
    return w.call(aten.where.self, added, w.scalar(value, dtype), w.call(aten.constant_pad_nd.default, x, pad, 0))


def _scattered(w: _Writer, dtype: torch.dtype, x: Any, dim: int, index: Any, value: Any) -> Node | None:
    if not x.meta["val"].is_cpu:
        return None
    sizes = aten.sym_size.int
    shape = [n if isinstance(n, int) else w.call(sizes, index, d) for d, n in enumerate(index.meta["val"].shape)]
    return w.call(aten.scatter.src, x, dim, index, w.call(aten.expand.default, w.scalar(value, dtype), shape))


def _scalar_tensor(w: _Writer, of: torch.dtype, number: Any, **named: Any) -> Node | None:
    on_cpu = named.get("device") in (None, torch.device("cpu"))
    return w.scalar(number, of) if on_cpu else None


_RULES: Mapping[Any, Callable[..., Node | None]] = {
    aten.add.Tensor: _scaled(aten.add.Tensor),
    aten.sub.Tensor: _scaled(aten.sub.Tensor),
    aten.addcmul.default: _with_factor(aten.mul.Tensor),
    aten.addcdiv.default: _with_factor(aten.div.Tensor),
    aten.mul.Scalar: _as_tensors(aten.mul.Tensor),
    aten.add.Scalar: _as_tensors(aten.add.Tensor),
    aten.sub.Scalar: _as_tensors(aten.sub.Tensor),
    aten.div.Scalar: _as_tensors(aten.div.Tensor),
    aten.pow.Scalar: _power,
    aten.threshold.default: _threshold,
    aten.fmod.Scalar: _by_tensor(aten.fmod.Tensor),
    aten.remainder.Scalar: _by_tensor(aten.remainder.Tensor),
    aten.div.Tensor_mode: _by_tensor(aten.div.Tensor_mode),
    aten.copysign.Scalar: _by_tensor(aten.copysign.Tensor),
    aten.scatter.value: _scattered,
    aten.constant_pad_nd.default: _padded,
    prims.fma.default: _multiplied_and_added,
    prims.scalar_tensor.default: _scalar_tensor,
}
