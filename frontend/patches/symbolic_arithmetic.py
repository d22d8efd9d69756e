"""Arithmetic on symbolic sizes while a frame of ours is traced: what was computed once is remembered.

PyTorch asks every fake tensor whether it is contiguous and how many elements it has: in C++, by some hundred operations
on ``SymNode`` for each, nearly all of them on the same few expressions. A trace of four layers of Llama does 90,000
such operations, some 1,600 of them distinct. Each goes through sympy.

The memory belongs to one shape environment, that of a frame that symshape compiles (``Memory.of``); others, of other
threads, do not have one and are as they were. Results of arithmetic hold until a symbol is replaced. Decisions are kept
as PyTorch keeps them (``ShapeEnv._inner_evaluate_expr``: the guard is there since the first one), but not only the last
256; decisions on unbacked sizes are not kept.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo import output_graph
from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from symshape.frontend.patches.patch import Changes

BINARY = (
    "add", "sub", "mul", "int_floordiv", "eq", "ne", "lt", "le", "gt", "ge", "sym_max", "sym_min", "and_", "or_",
)  # fmt: skip
_ATTRIBUTE = "symshape_memory"
_PLAIN = frozenset((int, bool))


class Memory:
    """What was computed with the symbols of one shape environment.

    ``results``: for each operation the pairs of expressions that it was applied to, with what a ``SymNode`` of the
    result is made of; ``decisions``: expressions that a guard holds for; ``integers``: expressions that are numbers.
    """

    def __init__(self, env: Any) -> None:
        self.version = env._replacements_version_counter
        self.results: dict[str, dict[Any, tuple[Any, type, Any, bool]]] = {name: {} for name in (*BINARY, "sym_not")}
        self.decisions: dict[Any, Any] = {}
        self.integers: dict[Any, int | None] = {}
        self.numbers: dict[int, SymNode] = {}

    def results_of(self, operation: str, version: int) -> dict[Any, tuple[Any, type, Any, bool]]:
        """Those that still hold."""
        if version != self.version:
            for results in self.results.values():
                results.clear()
            self.integers.clear()
            self.version = version
        return self.results[operation]


def remember_arithmetic(changes: Changes) -> None:
    """Shape environments that Dynamo makes from now on have a memory, and the operations on ``SymNode`` use it."""
    changes.attribute(output_graph, "ShapeEnv", _remembering)
    for name in BINARY:
        changes.attribute(SymNode, name, _binary(name, getattr(SymNode, name)))
    changes.attribute(SymNode, "expr", _expr(vars(SymNode)["expr"].fget))
    changes.attribute(SymNode, "maybe_as_int", _maybe_as_int(SymNode.maybe_as_int))
    changes.attribute(SymNode, "wrap_int", _wrap_int(SymNode.wrap_int))
    changes.attribute(ShapeEnv, "evaluate_sym_node", _evaluate_sym_node(ShapeEnv.evaluate_sym_node))


def _remembering(*args: Any, **kwargs: Any) -> Any:
    env = ShapeEnv(*args, **kwargs)
    if not env._translation_validation_enabled and not env.should_record_events:
        setattr(env, _ATTRIBUTE, Memory(env))
    return env


@functools.cache
def _binary(name: str, usual: Callable[..., Any]) -> Callable[..., Any]:
    make, proxy_mode = SymNode.__new__, torch._C._get_dispatch_mode
    key_of_proxies = torch._C._TorchDispatchModeKey.PROXY

    @functools.wraps(usual)
    def operation(self: Any, other: Any) -> Any:
        env = self.shape_env
        memory = getattr(env, _ATTRIBUTE, None)
        if (
            memory is None
            or other.shape_env is not env
            or self.pytype not in _PLAIN
            or other.pytype is not self.pytype
            or proxy_mode(key_of_proxies) is not None
            or proxy_tensor.get_proxy_mode() is not None
        ):
            return usual(self, other)
        results = memory.results_of(name, env._replacements_version_counter)
        key = (self._expr, other._expr)
        known = results.get(key)
        if known is None:
            node = usual(self, other)
            if type(node) is SymNode and (node._hint is None or type(node._hint) in _PLAIN):
                results[key] = (node._expr, node.pytype, node._hint, node._optimized_summation)
            return node
        node = make(SymNode)
        node._expr, node.pytype, node._hint, node._optimized_summation = known
        node.shape_env = env
        node._expr_ver, node._expr_cache, node.constant, node.fx_node = -1, None, None, False
        return node

    return operation


@functools.cache
def _expr(usual: Callable[..., Any]) -> property:
    def expr(self: Any) -> Any:
        """As usual; also kept where no symbol was replaced yet."""
        env = self.shape_env
        if env is None:
            return usual(self)
        version = env._replacements_version_counter
        if self._expr_ver == version and self._expr_cache is not None:
            return self._expr_cache
        found = usual(self)
        self._expr_ver, self._expr_cache = version, found
        return found

    return property(expr)


@functools.cache
def _maybe_as_int(usual: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(usual)
    def maybe_as_int(self: Any) -> int | None:
        if self.constant is not None:
            return usual(self)
        memory = getattr(self.shape_env, _ATTRIBUTE, None)
        if memory is None:
            return usual(self)
        expr = self.expr
        try:
            return memory.integers[expr]
        except KeyError:
            memory.integers[expr] = found = usual(self)
            return found

    return maybe_as_int


@functools.cache
def _wrap_int(usual: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(usual)
    def wrap_int(self: Any, num: int) -> Any:
        memory = getattr(self.shape_env, _ATTRIBUTE, None)
        if memory is None or type(num) is not int:
            return usual(self, num)
        try:
            return memory.numbers[num]
        except KeyError:
            memory.numbers[num] = found = usual(self, num)
            return found

    return wrap_int


@functools.cache
def _evaluate_sym_node(usual: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(usual)
    def evaluate_sym_node(
        self: Any, sym_node: Any, size_oblivious: bool = False, fallback_value: bool | None = None
    ) -> Any:
        memory = getattr(self, _ATTRIBUTE, None)
        if memory is None or type(sym_node._hint) not in _PLAIN:
            return usual(self, sym_node, size_oblivious, fallback_value)
        key = (sym_node.expr, size_oblivious, ShapeEnv._suppress_guards_tls())
        try:
            return memory.decisions[key]
        except KeyError:
            memory.decisions[key] = found = usual(self, sym_node, size_oblivious, fallback_value)
            return found

    return evaluate_sym_node
