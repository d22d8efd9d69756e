"""Pointwise operations on selected elements, and arithmetic on their number.

Before: %a = index(%x, [%m]); %b = index(%y, [%m]); %c = mul(%a, %b)
After:  %c = mul(%x, %y), as the full form of the product

Elements where the mask is false are unspecified; they are masked where elements are combined (reductions) and where
values are written. Only an integer division could fail on one by itself: its divisor is masked.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch.fx import Node

from symshape.frontend.bridge.operators import overload_name, schema_of
from symshape.frontend.bridge.symbolic_sizes import expression_of
from symshape.frontend.graph_rewrites.masks.graph_walk import Found, Rewriter
from symshape.frontend.graph_rewrites.masks.mask_space import Cannot, Compact, Scalar, Uniform
from symshape.frontend.graph_rewrites.masks.node_writer import aten
from symshape.prover.numbers.facts import INT64_MAX

_DIVISIONS = frozenset({"div", "floor_divide", "remainder", "fmod"})
_HALVES = (torch.float16, torch.bfloat16)
# The overload that takes a tensor in a number's place.
_WITH_TENSOR = {"Scalar": "Tensor", "Tensor_Scalar": "Tensor_Tensor", "Scalar_mode": "Tensor_mode"}


def pointwise(r: Rewriter, node: Node) -> Found:
    """A rule of all operators with PyTorch's tag ``pointwise``."""
    if torch.Tag.pointwise not in getattr(node.target, "tags", ()):
        raise Cannot("it needs the selected elements in contiguous memory")
    return elementwise(r, node)


def elementwise(r: Rewriter, node: Node) -> Found:
    value = node.meta["val"]
    operands = [found for arg in node.all_input_nodes if (found := r.compact(arg)) is not None]
    if not operands:
        return _of_numbers(r, node)
    # Where several masks meet, all sizes are equal, and any of them can stand for the rest.
    first = next(arg for arg in node.all_input_nodes if r.compact(arg) is operands[0])
    space, trailing = operands[0].space, first.meta["val"].dim() - 1 - operands[0].dim
    rank = value.dim()
    args = [r.whole(arg, rank, space, trailing) for arg in node.args]
    kwargs = {key: r.whole(arg, rank, space, trailing) for key, arg in node.kwargs.items()}
    target = _overload(r, node)
    if _name(node) in _DIVISIONS and len(args) > 1 and isinstance(args[1], Node) and not value.is_floating_point():
        divisor = node.args[1]
        if r.compact(divisor) is not None:
            args[1] = r.write.selected(Compact(args[1], space, rank - 1 - trailing), rank, 1)
    made = _call(r, node, target, args, kwargs)
    return Compact(made, space, rank - 1 - trailing)


def _of_numbers(r: Rewriter, node: Node) -> Found:
    def plain(arg: Any) -> Any:
        found = r.scalar(arg)
        return arg if found is None else found.tensor

    if any(
        isinstance(arg, Node) and arg in r.values and r.scalar(arg) is None and not _is_uniform(r, arg)
        for arg in node.all_input_nodes
    ):
        raise Cannot("positions of selected elements are used as a matrix")
    kwargs = {key: plain(arg) for key, arg in node.kwargs.items()}
    return Uniform(_call(r, node, _overload(r, node), [plain(arg) for arg in node.args], kwargs))


def _is_uniform(r: Rewriter, arg: Node) -> bool:
    return isinstance(r.values.get(arg), Uniform)


def _call(r: Rewriter, node: Node, target: Any, args: list[Any], kwargs: dict[str, Any]) -> Node:
    """Calls ``target`` with the dtype of the original node: a tensor that replaces a number takes part in type
    promotion, which a number does not. Half types are computed in float32 with it, as eager mode does with a number."""
    dtype = node.meta["val"].dtype
    has_number = any(r.scalar(arg) is not None for arg in node.all_input_nodes)
    if has_number and dtype in _HALVES:
        args = [
            r.write.cast(a, torch.float32) if isinstance(a, Node) and a.meta["val"].dtype in _HALVES else a
            for a in args
        ]
    return r.write.cast(r.write.call(target, *args, **kwargs), dtype)


def _name(node: Node) -> str:
    return str(getattr(node.target, "overloadpacket", "")).rpartition(".")[2]


def _overload(r: Rewriter, node: Node) -> Any:
    """The overload that takes tensors where numbers have become tensors."""
    target: Any = node.target
    schema = schema_of(target)
    if schema is None:
        raise Cannot("it takes no tensors")
    for position, arg in enumerate(node.args):
        if r.scalar(arg) is None or "Tensor" in str(schema.arguments[position].type):
            continue
        other = _WITH_TENSOR.get(overload_name(target))
        if other is None or position != 1 or other not in target.overloadpacket.overloads():
            raise Cannot("it needs the number of selected elements on the host")
        return getattr(target.overloadpacket, other)
    return target


def scalar_tensor(r: Rewriter, node: Node) -> Found:
    found = r.scalar(node.args[0])
    return None if found is None else Uniform(r.write.cast(found.tensor, node.meta["val"].dtype))


def _number(r: Rewriter, operand: Any, dtype: torch.dtype, device: torch.device) -> Node:
    found = r.scalar(operand)
    if found is not None:
        return r.write.cast(found.tensor, dtype)
    if isinstance(operand, int) and abs(operand) > INT64_MAX:
        raise Cannot("a number of more than 64 bits")
    return r.write.call(aten.scalar_tensor.default, operand, dtype=dtype, device=device)


def _device(r: Rewriter, node: Node) -> torch.device:
    found: torch.device = next(s.tensor.meta["val"].device for a in node.args if (s := r.scalar(a)) is not None)
    return found


def arithmetic(target: Any, real: bool | None = None, **kwargs: Any) -> Callable[[Rewriter, Node], Found]:
    """A rule of Python's arithmetic on sizes, as operations on 0-dim tensors. ``real``: computed in float64; None: if
    an operand is a float."""

    def rule(r: Rewriter, node: Node) -> Found:
        read = [a.meta["val"] if isinstance(a, Node) else a for a in node.args]
        if all(isinstance(v, (bool, torch.SymBool)) for v in read):
            return Scalar(r.write.call(target, *(_number(r, a, torch.bool, _device(r, node)) for a in node.args)))
        as_real = real if real is not None else any(isinstance(v, (float, torch.SymFloat)) for v in read)
        dtype = torch.float64 if as_real else torch.int64
        return Scalar(r.write.call(target, *(_number(r, a, dtype, _device(r, node)) for a in node.args), **kwargs))

    return rule


def to_real(r: Rewriter, node: Node) -> Found:
    found = r.scalar(node.args[0])
    return None if found is None else Scalar(r.write.cast(found.tensor, torch.float64))


def assertion(r: Rewriter, node: Node) -> Found:
    """An assertion on the number of selected elements. That it is at least 0 needs no check; that it is at least 1 is
    checked by the operations that need it, with eager mode's error."""
    condition: Any = node.args[0]
    found = r.scalar(condition)
    if found is None:
        return None
    message = str(node.args[1])

    def check() -> None:
        if not _holds_by_itself(r, condition, message):
            r.write.require(found.tensor, message)

    r.dropped[node] = check
    return None


def _holds_by_itself(r: Rewriter, condition: Node, message: str) -> bool:
    expr = expression_of(condition.meta["val"])
    for symbol, space in r.symbols.items():
        if expr == (symbol >= 0):
            return True
        if space in r.nonempty and expr in (symbol >= 1, symbol > 0, sympy.Ne(symbol, 0)):
            return message.startswith("Runtime assertion failed")  # the tracer's
    return False


def range_hint(r: Rewriter, node: Node) -> Found:
    """``sym_constrain_range``: its bounds are asserted by the operations that need them."""
    r.dropped[node] = lambda: None
    return None


RULES: dict[Any, Callable[[Rewriter, Node], Found]] = {
    aten.scalar_tensor.default: scalar_tensor,
    aten._assert_scalar.default: assertion,
    aten.sym_constrain_range.default: range_hint,
    aten.sym_constrain_range_for_size.default: range_hint,
    operator.add: arithmetic(aten.add.Tensor),
    operator.sub: arithmetic(aten.sub.Tensor),
    operator.mul: arithmetic(aten.mul.Tensor),
    operator.truediv: arithmetic(aten.div.Tensor, real=True),
    operator.floordiv: arithmetic(aten.div.Tensor_mode, rounding_mode="floor"),
    operator.mod: arithmetic(aten.remainder.Tensor),
    operator.pow: arithmetic(aten.pow.Tensor_Tensor),
    operator.neg: arithmetic(aten.neg.default),
    operator.ge: arithmetic(aten.ge.Tensor),
    operator.gt: arithmetic(aten.gt.Tensor),
    operator.le: arithmetic(aten.le.Tensor),
    operator.lt: arithmetic(aten.lt.Tensor),
    operator.eq: arithmetic(aten.eq.Tensor),
    operator.ne: arithmetic(aten.ne.Tensor),
    operator.and_: arithmetic(aten.logical_and.default),
    operator.or_: arithmetic(aten.logical_or.default),
    torch.sym_not: arithmetic(aten.logical_not.default),
    torch.sym_max: arithmetic(aten.maximum.default),
    torch.sym_min: arithmetic(aten.minimum.default),
    torch.sym_float: to_real,
}
