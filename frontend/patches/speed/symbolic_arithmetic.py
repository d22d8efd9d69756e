"""Memoises arithmetic on symbolic sizes during a trace.

PyTorch asks of each fake tensor whether it is contiguous and how many elements it has. In C++ this takes some hundred
operations on ``SymNode`` each, mostly on the same few expressions. Tracing four layers of Llama takes 90,000 such
operations, some 1,600 of them distinct, and each goes through sympy.

Results of arithmetic are valid until a symbol is replaced. Decisions are cached as PyTorch caches them
(``ShapeEnv._inner_evaluate_expr``: their guard exists since the first time), but not limited to the last 256. Decisions
on unbacked sizes are not cached, since more may become known of them. While operations are recorded (proxy mode),
nothing is memoised, so that each operation gets its node.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch.fx.experimental import symbolic_shapes
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from symshape.frontend.bridge.size_cache import ATTRIBUTE, BINARY, ON_BOOLEANS
from symshape.frontend.patches.patch import Changes

_PLAIN = (int, bool)  # types of hints that may be memoised; a nested tensor's size has another type


def remember_arithmetic(changes: Changes) -> None:
    """Makes operations on sizes look up their result in the cache of their shape environment first."""
    for name in BINARY:
        changes.wrap(SymNode, name, functools.partial(_binary, name))
    changes.attribute(SymNode, "expr", _expr(vars(SymNode)["expr"].fget))
    changes.wrap(SymNode, "maybe_as_int", _maybe_as_int)
    changes.wrap(SymNode, "wrap_int", _wrap_int)
    changes.wrap(ShapeEnv, "evaluate_sym_node", _evaluate_sym_node)
    changes.wrap(symbolic_shapes, "uninteresting_files", _also_this_one)


@functools.cache
def _also_this_one(original: Callable[[], set[str]]) -> Callable[[], set[str]]:
    """Attributes a guard to the line that asked, not to this file."""
    return lambda: original() | {__file__}


@functools.cache
def _binary(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    pytype = bool if name in ON_BOOLEANS else int
    mode_of, proxies = torch._C._get_dispatch_mode, torch._C._TorchDispatchModeKey.PROXY

    @functools.wraps(original)
    def operation(self: Any, other: Any) -> Any:
        env = self.shape_env
        cache = getattr(env, ATTRIBUTE, None)
        if cache is None or self.pytype is not pytype or type(other) is not SymNode:
            return original(self, other)
        if other.pytype is not pytype or other.shape_env is not env:
            return original(self, other)
        if mode_of(proxies) is not None or get_proxy_mode() is not None:
            return original(self, other)
        results = cache.results(name, env)
        key = (self._expr, other._expr)
        parts = results.get(key)
        if parts is not None:
            return _node(env, *parts)
        made = original(self, other)
        if type(made) is SymNode and (made._hint is None or type(made._hint) in _PLAIN):
            results[key] = (made._expr, made.pytype, made._hint, made._optimized_summation)
        return made

    return operation


def _node(env: Any, expr: Any, pytype: type, hint: Any, is_sum: bool) -> Any:
    """A new ``SymNode`` with the attributes that its constructor sets. Nodes are not shared: a trace finds out by node
    identity from which input a size was read."""
    node = SymNode.__new__(SymNode)
    node._expr, node.shape_env, node.pytype, node._hint = expr, env, pytype, hint
    node._optimized_summation = is_sum
    node._expr_ver, node._expr_cache, node.constant, node.fx_node = -1, None, None, False
    return node


@functools.cache
def _expr(original: Callable[..., Any]) -> property:
    def expr(self: Any) -> Any:
        """PyTorch's ``SymNode.expr``, but also cached while no symbol has been replaced yet."""
        env = self.shape_env
        if env is None:
            return original(self)
        version = env._replacements_version_counter
        if self._expr_ver == version and self._expr_cache is not None:
            return self._expr_cache
        found = original(self)
        self._expr_ver, self._expr_cache = version, found
        return found

    return property(expr)


@functools.cache
def _maybe_as_int(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def maybe_as_int(self: Any) -> int | None:
        cache = getattr(self.shape_env, ATTRIBUTE, None)
        if cache is None or self.pytype is not int:
            return original(self)
        expr = self.expr
        try:
            return cache.integers[expr]
        except KeyError:
            cache.integers[expr] = found = original(self)
            return found

    return maybe_as_int


@functools.cache
def _wrap_int(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def wrap_int(self: Any, num: int) -> Any:
        cache = getattr(self.shape_env, ATTRIBUTE, None)
        if cache is None or type(num) is not int:
            return original(self, num)
        try:
            return cache.numbers[num]
        except KeyError:
            cache.numbers[num] = made = original(self, num)
            return made

    return wrap_int


@functools.cache
def _evaluate_sym_node(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def evaluate_sym_node(
        self: Any, sym_node: Any, size_oblivious: bool = False, fallback_value: bool | None = None
    ) -> Any:
        cache = getattr(self, ATTRIBUTE, None)
        if cache is None or type(sym_node._hint) not in _PLAIN:
            return original(self, sym_node, size_oblivious, fallback_value)
        key = (sym_node.expr, size_oblivious, fallback_value, ShapeEnv._suppress_guards_tls())
        try:
            return cache.decisions[key]
        except KeyError:
            pass
        found, guards = cache.general.get(key, (None, -1))
        if guards == len(self.guards):
            return found
        before = getattr(self, "uncacheable_answers", 0)
        found = original(self, sym_node, size_oblivious, fallback_value)
        # Answers without a guard (layouts, shortcuts) may be wrong for another caller with the same question.
        if getattr(self, "uncacheable_answers", 0) == before:
            if found == sym_node._hint:
                cache.decisions[key] = found
            else:
                cache.general[key] = found, len(self.guards)
        return found

    return evaluate_sym_node


def nodes_are_as_made() -> str:
    """A probe: ``SymNode`` must have exactly the attributes that `_node` sets. Returns what is wrong, or ""."""
    env: Any = ShapeEnv()
    try:
        made = vars(SymNode(sympy.Integer(2), env, int, 2, None, None, False))
    except Exception as error:  # noqa: BLE001 - whatever another constructor raises
        return f"SymNode is made in another way: {type(error).__name__}: {error}"
    ours = vars(_node(env, sympy.Integer(2), int, 2, False))
    differing = sorted(name for name in {*made, *ours} if made.get(name, _node) != ours.get(name, _node))
    return f"SymNode differs in {', '.join(differing)}" if differing else ""
