"""No 0/1 specialisation: sizes 0 and 1 are symbols like all others (``frontend/bridge/general_shape_env.py``)."""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch import _meta_registrations, _prims_common
from torch._dynamo import guards, output_graph, utils
from torch._dynamo.variables.tensor import SymNodeVariable
from torch._subclasses import fake_impls
from torch.fx.experimental import sym_node, symbolic_shapes
from torch.fx.experimental.proxy_tensor import get_proxy_mode, handle_sym_dispatch
from torch.fx.experimental.sym_node import _NO_HINT, SymNode

from symshape.frontend.bridge import general_shape_env
from symshape.frontend.bridge.dynamo import shape_env_of_output
from symshape.frontend.bridge.general_shape_env import (
    NONNEGATIVE,
    GeneralShapeEnv,
    free_strides,
    is_general,
    trace_with_retry,
)
from symshape.frontend.bridge.symbolic_sizes import holds_for_sizes, is_decided_against, is_unbacked
from symshape.frontend.bridge.tracing_errors import RefusedArgument, RefusedDivision
from symshape.frontend.decompositions.rolls import roll_sizes
from symshape.frontend.patches.operator_kernels import trace_sizes_by
from symshape.frontend.patches.patch import Changes

aten: Any = torch.ops.aten


def zero_and_one_are_sizes(changes: Changes) -> None:
    """Replaces Dynamo's shape environment by ``GeneralShapeEnv``."""
    changes.attribute(output_graph, "ShapeEnv", GeneralShapeEnv)
    changes.wrap(symbolic_shapes, "make_symbol", _nonnegative)
    changes.wrap(symbolic_shapes, "uninteresting_files", _environment_is_uninteresting)


def irrelevant_strides_are_not_guarded(changes: Changes) -> None:
    """Excludes strides of dims whose size is or may be 1 from Dynamo's guards."""
    changes.wrap(guards.GuardBuilder, "TENSOR_MATCH", _without_irrelevant_strides)


def strides_are_products(changes: Changes) -> None:
    """Makes the strides of a contiguous tensor plain products of its sizes."""
    changes.wrap(_prims_common, "sym_max", _size_itself)
    changes.wrap(SymNode, "sym_max", _size_itself_in_cpp)
    changes.wrap(torch.SymInt, "__sym_max__", _exact)


def hints_are_hidden_from_cpp(changes: Changes) -> None:
    """Makes C++ treat sizes as unbacked."""
    changes.wrap(SymNode, "has_hint", _hidden_from_cpp)


def divisions_by_zero_sizes(changes: Changes) -> None:
    """Division by a size that is 0, and functions outside of their domain, give no hint instead of an error."""
    for name in ("mod", "int_floordiv", "int_truediv", "float_truediv"):
        changes.wrap(SymNode, name, functools.partial(_without_hint_of_zero, name))
    changes.wrap(SymNode, "float_pow", _power_within_domain)
    for name, refused in _REFUSED.items():
        changes.wrap(SymNode, name, functools.partial(_within_domain, refused))


def decided_conditions_are_bools(changes: Changes) -> None:
    """Passes a condition that is known to be false on as False."""
    changes.wrap(SymNodeVariable, "as_proxy", _decided)


def ranks_are_guarded(changes: Changes) -> None:
    """Guards the sizes that determine the rank of a result."""
    trace_sizes_by(changes, {aten.squeeze.dims: _squeezed_sizes, aten.cat.default: _joined_sizes})


def slices_of_any_size(changes: Changes) -> None:
    """Guards whether a slice's bound is past the end of a dim that may be empty."""
    changes.wrap(fake_impls, "_compute_slice_index", _bound_of_slice)


def quotients_are_floors(changes: Changes) -> None:
    """Computes the sizes of pooled tensors by floor division, and asks for no remainder."""
    changes.attribute(_meta_registrations, "div_rtn", operator.floordiv)


def indices_are_guarded(changes: Changes) -> None:
    """Guards that an index computed from sizes is within its dim."""
    rules: Any = fake_impls.op_implementations_dict
    changes.items(rules, {aten.select.int: _selected_sizes(rules[aten.select.int])})


def rejected_broadcasts_are_retried(changes: Changes) -> None:
    """Traces a call again with the actual sizes, with guards, if tracing it for all sizes fails."""
    changes.wrap(utils, "run_node", _retried)


def sizes_of_rolls(changes: Changes) -> None:
    """Gives a rolled tensor its operand's sizes."""
    trace_sizes_by(changes, {aten.roll.default: roll_sizes})


def sizes_of_products_with_vectors(changes: Changes) -> None:
    """Gives the product of a matrix with a vector its size."""
    trace_sizes_by(changes, {aten.mv.default: _product_with_vector})


@functools.cache
def _environment_is_uninteresting(original: Callable[[], set[str]]) -> Callable[[], set[str]]:
    """Attributes a guard to the line that asked, not to the shape environment's file."""
    return lambda: original() | {str(general_shape_env.__file__)}


@functools.cache
def _nonnegative(original: Callable[..., Any]) -> Callable[..., Any]:
    """Makes symbols of sizes non-negative. PyTorch makes them positive, so that ``size == 0`` is false for sympy."""

    @functools.wraps(original)
    def make_symbol(prefix: Any, idx: int, **assumptions: Any) -> Any:
        if assumptions.get("positive") is NONNEGATIVE:
            assumptions["positive"], assumptions["nonnegative"] = None, True
        return original(prefix, idx, **assumptions)

    return make_symbol


@functools.cache
def _size_itself(original: Callable[..., Any]) -> Callable[..., Any]:
    """``max(size, 1)``, PyTorch's factor in strides of contiguous tensors, becomes ``size``: equal for nonempty
    tensors, and strides of empty ones do not matter."""

    @functools.wraps(original)
    def sym_max(size: Any, least: Any) -> Any:
        is_backed = is_general(size) and not is_unbacked(size)
        return size if is_backed and type(least) is int and least == 1 else original(size, least)

    return sym_max


@functools.cache
def _size_itself_in_cpp(original: Callable[..., Any]) -> Callable[..., Any]:
    """The same for C++, which calls ``SymNode`` directly, and only for strides. Python's ``max`` of integers goes
    through ``_exact`` first."""

    @functools.wraps(original)
    def sym_max(self: Any, other: Any) -> Any:
        env, is_stride = self.shape_env, self.pytype is int and other.constant == 1
        if not is_stride or isinstance(other, _ExactNode) or not isinstance(env, GeneralShapeEnv):
            return original(self, other)
        return self if env.is_backed(self.expr) else original(self, other)

    return sym_max


class _ExactNode(SymNode):
    """A 1 in the user's own ``max(size, 1)``, which must not be simplified."""


@functools.cache
def _exact(original: Callable[..., Any]) -> Callable[..., Any]:
    """Marks the user's ``max(size, 1)``."""

    @functools.wraps(original)
    def sym_max(self: Any, other: Any) -> Any:
        env = self.node.shape_env
        if type(other) is int and other == 1 and isinstance(env, GeneralShapeEnv):
            other = torch.SymInt(_ExactNode(sympy.Integer(1), env, int, 1, 1))
        return original(self, other)

    return sym_max


@functools.cache
def _hidden_from_cpp(original: Callable[..., Any]) -> Callable[..., Any]:
    """Hides hints from C++. With hints, C++ decides contiguity with a guard for each dim
    (``SymbolicShapeMeta::compute_contiguous``); without, it builds a condition and asks ``guard_or_false`` of it."""

    @functools.wraps(original)
    def has_hint(self: Any) -> bool:
        is_asked_in_python = "has_hint" in sys._getframe(1).f_code.co_names
        return bool(original(self)) and (is_asked_in_python or not isinstance(self.shape_env, GeneralShapeEnv))

    return has_hint


@functools.cache
def _without_hint_of_zero(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """A rule that assumes without a guard that a size is not 0 may divide by it: the result has no hint then. If the
    user's own Python divides, a guard ensures that the divisor is not 0."""

    @functools.wraps(original)
    def operation(self: Any, other: Any) -> Any:
        env = self.shape_env
        if not isinstance(env, GeneralShapeEnv) or other.constant is not None or other.expr.is_number:
            return original(self, other)
        if _is_asked_by_the_user() and env.is_backed(other.expr) and other.eq(other.wrap_int(0)).guard_bool("", 0):
            raise RefusedDivision("division or modulo by zero")
        if getattr(other, "_hint", None) != 0:
            return original(self, other)
        if get_proxy_mode() is not None:  # record the node without computing hints, which would divide first
            operands = sym_node.wrap_node(self), sym_node.wrap_node(other)
            return sym_node.to_node(self, handle_sym_dispatch(sym_node.method_to_operator(name), operands, {}))
        return original(*(SymNode(one.expr, env, one.pytype, _NO_HINT) for one in (self, other)))

    return operation


@functools.cache
def _power_within_domain(original: Callable[..., Any]) -> Callable[..., Any]:
    """Guards that the user's Python does not raise 0 to a negative power."""

    @functools.wraps(original)
    def float_pow(self: Any, other: Any) -> Any:
        is_negative = _may_be(self, 0) and _is_asked_by_the_user() and _holds_here(other, operator.lt, 0)
        if is_negative and _holds_here(self, operator.eq, 0):
            raise RefusedDivision("0.0 cannot be raised to a negative power")
        return original(self, other)

    return float_pow


@functools.cache
def _within_domain(refused: tuple[tuple[Callable[[Any, Any], Any], int], ...], original: Callable[[Any], Any]) -> Any:
    """Guards that the user's Python calls a function of ``math`` within its domain."""

    @functools.wraps(original)
    def function(self: Any) -> Any:
        if isinstance(self.shape_env, GeneralShapeEnv) and _is_asked_by_the_user():
            if any(_holds_here(self, comparison, bound) for comparison, bound in refused):
                raise RefusedArgument("math domain error")
        return original(self)

    return function


_REFUSED = {
    "_sym_sqrt": ((operator.lt, 0),),
    "_sym_log2": ((operator.le, 0),),
    "_sym_asin": ((operator.lt, -1), (operator.gt, 1)),
    "_sym_acos": ((operator.lt, -1), (operator.gt, 1)),
}


def _may_be(node: Any, number: int) -> bool:
    """Whether a node may have this value: it is this constant, or made of sizes of inputs."""
    env, expr = node.shape_env, node.expr
    return isinstance(env, GeneralShapeEnv) and (expr == number if expr.is_number else env.is_backed(expr))


def _holds_here(node: Any, comparison: Callable[[Any, Any], Any], number: int) -> bool:
    """A comparison with a number, guarded if the node is made of sizes of inputs; false if it is unbacked."""
    env, expr = node.shape_env, node.expr
    if expr.is_number:
        return bool(comparison(expr, number))
    return bool(env.is_backed(expr) and comparison(sym_node.wrap_node(node), number))


def _is_asked_by_the_user() -> bool:
    """Whether arithmetic on sizes is done by Python code that runs in eager mode too: by a node that Dynamo runs, or by
    code outside of PyTorch."""
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__", "") in _BETWEEN:
        frame = frame.f_back
    name = "" if frame is None else str(frame.f_globals.get("__name__", ""))
    return name == utils.__name__ or not name.startswith(("torch.", "symshape."))


_BETWEEN = (
    __name__,
    "symshape.frontend.patches.speed.symbolic_arithmetic",
    "torch.fx.experimental.sym_node",
    "torch",
)


@functools.cache
def _without_irrelevant_strides(original: Callable[..., Any]) -> Callable[..., Any]:
    """Dynamo guards constant strides of inputs. For a symbolic size, which may be 1, the shape environment's guards do
    so instead. Strides of dims that are always 1, and of tensors that are always empty, are not guarded."""

    @functools.wraps(original)
    def tensor_match(self: Any, guard: Any, value: Any = None) -> Any:
        known = self.check_fn_manager.output_graph.input_source_to_sizes_strides
        entry = known.get(guard.originating_source)
        if entry is not None:
            sizes = guards.convert_to_concrete_values(entry["size"])
            any_stride = {d for d, size in enumerate(sizes) if size == 1 or 0 in sizes}
            any_stride |= {*free_strides(entry["size"], entry["stride"])}
            strides = [None if d in any_stride else one for d, one in enumerate(entry["stride"])]
            known[guard.originating_source] = {**entry, "stride": strides}
        return original(self, guard, value)

    return tensor_match


@functools.cache
def _decided(original: Callable[..., Any]) -> Callable[..., Any]:
    """The value of ``n > 1 and x is None`` is ``n > 1`` if that is false. It has been decided by then, and operators
    need a bool."""

    @functools.wraps(original)
    def as_proxy(self: Any) -> Any:
        return False if isinstance(self.sym_num, torch.SymBool) and is_decided_against(self.sym_num) else original(self)

    return as_proxy


@functools.cache
def _squeezed_sizes(original: Callable[..., Any]) -> Callable[..., Any]:
    """Guards whether a squeezed dim has size 1, since the rank of the result depends on it."""

    def sizes(x: torch.Tensor, dims: Any) -> Any:
        for d in dims if isinstance(dims, Sequence) else (dims,):
            size: Any = x.size(d) if x.dim() else None
            if is_general(size) and not is_unbacked(size):
                bool(size == 1)
        return original(x, dims)

    return sizes


@functools.cache
def _bound_of_slice(original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    @functools.wraps(original)
    def _compute_slice_index(size: Any, index: Any) -> Any:
        found = original(size, index)
        if found is not None or is_unbacked(size) or is_unbacked(index):
            return found
        from_start = index + size if index < 0 else index
        return size if from_start > size else from_start if from_start >= 0 else 0

    return _compute_slice_index


@functools.cache
def _product_with_vector(original: Callable[..., Any]) -> Callable[..., Any]:
    def sizes(x: torch.Tensor, vector: torch.Tensor) -> Any:
        fits = x.dim() == 2 and vector.dim() == 1 and x.dtype == vector.dtype
        if not fits or not holds_for_sizes(operator.eq, x.size(1), vector.size(0)):
            return original(x, vector)  # which raises the error
        return x.new_empty([x.size(0)])

    return sizes


@functools.cache
def _joined_sizes(original: Callable[..., Any]) -> Callable[..., Any]:
    """Guards that an operand with one dim is empty, if other operands have another rank."""

    def sizes(tensors: Sequence[torch.Tensor], *args: Any, **kwargs: Any) -> Any:
        for x in tensors:
            size: Any = x.size(0) if x.dim() == 1 else None
            if is_general(size) and not is_unbacked(size) and any(other.dim() != 1 for other in tensors):
                bool(size == 0)
        return original(tensors, *args, **kwargs)

    return sizes


@functools.cache
def _retried(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def run_node(tracer: Any, node: Any, args: Any, kwargs: Any, nnmodule: Any) -> Any:
        run = functools.partial(original, tracer, node, args, kwargs, nnmodule)
        return trace_with_retry(shape_env_of_output(tracer), run)

    return run_node


@functools.cache
def _selected_sizes(original: Callable[..., Any]) -> Callable[..., Any]:
    """Guards whether the index is in range: eager mode raises an error if not, so that no answer fits all sizes."""

    def sizes(mode: Any, op: Any, x: torch.Tensor, dim: int = 0, index: Any = 0) -> Any:
        _is_within(x, dim, index)
        return original(mode, op, x, dim, index)

    return sizes


def _is_within(x: torch.Tensor, dim: int, index: Any) -> bool:
    """Whether an index is within a dim: a guard if both are made of sizes of inputs, else assumed."""
    size: Any = x.size(dim) if x.dim() else 1
    return holds_for_sizes(operator.lt, index, size) and holds_for_sizes(operator.ge, index, -size)
