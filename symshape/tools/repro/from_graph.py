"""Converts a traced graph of Dynamo or AOTAutograd to one whose inputs are all tensors, with symbolic sizes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from symshape.errors import CompileError
from symshape.frontend.bridge.guards import shape_env_guards
from symshape.frontend.bridge.repro_settings import python_text
from symshape.frontend.bridge.shape_env import symbol_hints, symbol_range, symbols_of
from symshape.random_tensors import SIZE_WITHOUT_HINT
from symshape.tools.repro.problem import Argument, Size
from symshape.tools.repro.source import RECORD_INSTEAD

_NUMBERS: Final = (int, float, bool, type(None))
_MORE_SIZES: Final = 2  # number of further sizes in a file


@dataclass(frozen=True)
class Graph:
    """A graph whose inputs ``arguments`` are all tensors. ``sizes``: values of the symbols to run it at; those of the
    failing call come first."""

    module: torch.fx.GraphModule
    arguments: Sequence[Argument]
    sizes: Sequence[Mapping[str, int]]


def copied(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """A copy that is independent of the original graph."""
    return torch.fx.GraphModule(gm, copy.deepcopy(gm.graph))


def read_graph(gm: torch.fx.GraphModule, key: str, env: Any, first: Mapping[str, int] | None = None) -> Graph:
    """Reads a graph. ``key``: where ``meta`` has the fake values; ``first``: values of symbols at the failing call.
    CompileError if an input is neither a dense tensor nor a number."""
    module = copied(gm)
    placeholders = module.graph.find_nodes(op="placeholder")
    for node in placeholders:
        node.target = node.name
    tensors = {node: _argument(node, node.meta.get(key)) for node in placeholders if _is_tensor(node.meta.get(key))}
    shown = {size: (node, d) for node, one in reversed(tensors.items()) for d, size in enumerate(one.sizes)}
    after = placeholders[-1] if placeholders else None
    for node in placeholders:
        value = node.meta.get(key)
        if isinstance(value, torch.SymInt):
            size = python_text(value)
            if isinstance(size, str) and size not in shown:
                after, tensors = _with_size(module.graph, size, after, tensors, node)
                shown[size] = (after, 0)
            _replace(module.graph, node, size, shown, after)
        elif isinstance(value, _NUMBERS):
            node.replace_all_uses_with(value)
            module.graph.erase_node(node)
        elif node not in tensors:
            raise CompileError(
                f"the input {node.name} is a {type(value).__name__}, which a file cannot make",
                where=node.name,
                next_step=RECORD_INSTEAD,
            )
    module.recompile()
    order = module.graph.find_nodes(op="placeholder")
    arguments = [tensors[node] for node in order]
    return Graph(module, arguments, _sizes(arguments, env, first or {}))


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout == torch.strided


def _argument(node: torch.fx.Node, value: torch.Tensor) -> Argument:
    sizes, strides = [list(map(python_text, part)) for part in (value.size(), value.stride())]
    offset, device = python_text(value.storage_offset()), str(value.device)
    return Argument(node.name, sizes, strides, value.dtype, device, offset, value.requires_grad and value.is_leaf)


def _with_size(
    graph: torch.fx.Graph, size: str, after: Any, tensors: dict[Any, Argument], integer: torch.fx.Node
) -> tuple[torch.fx.Node, dict[Any, Argument]]:
    """Adds an input tensor without elements whose first size is an integer that no other input shows."""
    with graph.inserting_after(after):
        made = graph.placeholder(f"of_size_{integer.name}")
    return made, {**tensors, made: Argument(made.name, [size, 0], [1, 1], torch.float32)}


def _replace(graph: torch.fx.Graph, node: torch.fx.Node, size: Size, shown: Mapping[Any, Any], after: Any) -> None:
    """Replaces an integer input by the size of a tensor."""
    if node.users:
        new: Any = size
        if isinstance(size, str):
            tensor, d = shown[size]
            with graph.inserting_after(_last_placeholder(graph)):
                new = graph.call_method("size", (tensor, d))
        node.replace_all_uses_with(new)
    graph.erase_node(node)


def _last_placeholder(graph: torch.fx.Graph) -> torch.fx.Node:
    return graph.find_nodes(op="placeholder")[-1]


# --- sizes --------------------------------------------------------------------------------------------------------


def symbols_of_arguments(arguments: Iterable[Argument]) -> set[str]:
    """Names of all symbols in layouts of arguments."""
    texts = {str(part) for one in arguments for part in (*one.sizes, *one.strides, one.offset) if isinstance(part, str)}
    return {name for text in texts for name in compile(text, "", "eval").co_names} - {"math"} - _BUILTINS


_BUILTINS: Final = {"max", "min", "abs", "int", "float", "round", "floor", "ceil"}


def _sizes(arguments: Sequence[Argument], env: Any, first: Mapping[str, int]) -> list[Mapping[str, int]]:
    names = sorted(symbols_of_arguments(arguments))
    hints = symbol_hints(env) if env is not None else {}
    current = {name: first.get(name, hints.get(name, SIZE_WITHOUT_HINT)) for name in names}
    found: list[Mapping[str, int]] = [current]
    holds = _allowed(env)
    for other in _others(current):
        if len(found) <= _MORE_SIZES and other not in found and holds(other):
            found.append(other)
    return found


def _others(sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Other values of the symbols: distinct ones, and multiples, since sizes may have to be divisible."""
    for factor in (1, 2):
        for step in (1, 2, 3):
            yield {name: factor * size + step + i for i, (name, size) in enumerate(sizes.items())}
    for factor in (2, 3, 4):
        yield {name: (factor + i) * max(size, 1) for i, (name, size) in enumerate(sizes.items())}
        yield {name: factor * max(size, 1) for name, size in sizes.items()}


def _allowed(env: Any) -> Callable[[Mapping[str, int]], bool]:
    """A predicate: are values of symbols in their ranges, and does no guard fail for them?"""
    if env is None:
        return lambda _: True
    symbols = symbols_of(env)
    ranges = {name: symbol_range(env, symbol) for name, symbol in symbols.items()}
    guards = [condition for condition, _ in shape_env_guards(env)]

    def holds(values: Mapping[str, int]) -> bool:
        for name, value in values.items():
            low, high = ranges.get(name, (None, None))
            if (low is not None and value < low) or (high is not None and value > high):
                return False
        numbers = {symbols[name]: value for name, value in values.items() if name in symbols}
        return not any(condition.xreplace(numbers) == False for condition in guards)  # noqa: E712 - sympy's

    return holds


def values_at(gm: torch.fx.GraphModule, key: str, given: Sequence[Any]) -> dict[str, int]:
    """The values of symbols at a call, read from its inputs ``given``."""
    found: dict[str, int] = {}
    for node, value in zip(gm.graph.find_nodes(op="placeholder"), given):
        traced = node.meta.get(key)
        pairs: Iterable[tuple[Any, Any]] = ()
        if isinstance(traced, torch.SymInt):
            pairs = [(traced, value)]
        elif _is_tensor(traced) and isinstance(value, torch.Tensor):
            pairs = [*zip(traced.size(), value.size()), *zip(traced.stride(), value.stride())]
        for size, number in pairs:
            text = python_text(size)
            if isinstance(text, str) and text.isidentifier():
                found.setdefault(text, int(number))
    return found
