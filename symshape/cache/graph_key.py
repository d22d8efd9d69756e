"""The cache key: a graph and its shape environment as canonical text. Equal texts compile to equivalent programs.

It contains everything that lowering reads: operations, arguments, layouts and dtypes of values, layouts of constants,
ranges and sources of symbols, guards, replacements, runtime assertions; declarations of users' operators (which may
differ in another process); and user lines that error messages may show: of assertions, and of unbacked sizes. It does
not contain hints, the lines of other operations, names of nodes, and the contents of tensor constants, which compiled
programs read from the graph.

Symbols are renamed v0, v1, ... in the order of the inputs: their own names depend on other traces of the process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import sympy
import torch

from symshape.artifact.compiled_program import target_name
from symshape.errors import CacheError
from symshape.frontend.bridge.fake_tensors import storage_of
from symshape.frontend.bridge.guards import deferred_runtime_asserts, shape_env_guards
from symshape.frontend.bridge.operators import declaration_of, is_builtin
from symshape.frontend.bridge.shape_env import symbol_hint, symbol_range, symbol_source
from symshape.frontend.bridge.symbolic_sizes import expression_of
from symshape.frontend.bridge.trace_without_dynamo import guards_are_ours
from symshape.runtime.torch_c import user_lines

_NO_TEXT: Final = "a graph with such a value is compiled by each process; _Writer has a text of what can be kept"
_WORDS: Final = (bool, int, float, complex, str, type(None))
_NAMED: Final = (torch.dtype, torch.device, torch.layout, torch.memory_format)

_COMMUTATIVE: Final = frozenset({"Add", "Mul", "Max", "Min", "And", "Or", "Equality", "Unequality"})


@dataclass(frozen=True)
class GraphKey:
    """``digest`` of the text; ``symbols``: a symbol's name in the ShapeEnv -> its canonical name."""

    digest: str
    symbols: Mapping[str, str]


def graph_key(gm: torch.fx.GraphModule, env: Any) -> GraphKey:
    """The key of a graph that is about to be lowered. CacheError for a graph that contains something without a
    canonical text."""
    writer = _Writer(gm)
    lines = [writer.node(i, node) for i, node in enumerate(gm.graph.nodes)]
    if env is not None:
        lines += writer.environment(env)
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return GraphKey(digest, {str(symbol): name for symbol, name in writer.symbols.items()})


class _Writer:
    def __init__(self, gm: torch.fx.GraphModule) -> None:
        self.gm = gm
        self.nodes: dict[torch.fx.Node, str] = {}
        self.symbols: dict[Any, str] = {}
        self.texts: dict[tuple[type, Any], str] = {}  # of expressions
        self.storages: dict[int, str] = {}
        self.targets: dict[Any, str] = {}

    def node(self, position: int, node: torch.fx.Node) -> str:
        self.nodes[node] = f"%{position}"
        if node.op in ("placeholder", "output"):
            target = node.op
        elif node.op == "get_attr":
            target = f"get_attr {self.constant(str(node.target))}"
        elif node.op == "call_function":
            target = self.target(node.target)
        else:
            what = f"a node {node.op} {node.target} is none of a functional graph"
            raise CacheError(what, where=node.name, next_step="give graphs as AOTAutograd has traced them")
        known = len(self.symbols)
        value = node.meta.get("val")
        text = f"{target}({self.value(node.args)}, {self.value(node.kwargs)}) -> {self.value(value)}"
        shows_line = len(self.symbols) > known or not isinstance(value, torch.Tensor)
        if node.op == "call_function" and shows_line:
            text += f" at {user_lines(node)[-1:] or node.name}"
        return text

    def graph(self, graph: torch.fx.GraphModule) -> str:
        """A subgraph: a branch, the body of a loop."""
        outer, self.gm = self.gm, graph
        lines = [self.node(len(self.nodes), node) for node in graph.graph.nodes]
        self.gm = outer
        return "graph {" + "; ".join(lines) + "}"

    def constant(self, path: str) -> str:
        found: Any = self.gm
        for part in path.split("."):
            found = getattr(found, part)
        if isinstance(found, torch.fx.GraphModule):
            return self.graph(found)
        if not isinstance(found, torch.Tensor):
            raise CacheError(f"a constant of type {type(found).__name__}", where=path, next_step=_NO_TEXT)
        return self.tensor(found)

    def target(self, target: Any) -> str:
        """The key of a call's target: its name, and of a user's operator all properties that a compile reads."""
        text = self.targets.get(target)
        if text is None:
            text = target_name(target)
            if isinstance(target, torch._ops.OpOverload) and not is_builtin(target):
                text += f" {declaration_of(target)}"
            self.targets[target] = text
        return text

    def value(self, value: Any) -> str:
        """Any argument or result."""
        if isinstance(value, torch.fx.Node):
            return self.nodes[value]
        if type(value) in _WORDS:
            return repr(value)
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return f"{type(value).__name__} {self.expr(expression_of(value))}"
        if isinstance(value, (list, tuple)):
            inner = ", ".join(map(self.value, value))
            return f"[{inner}]" if isinstance(value, list) else f"({inner},)"
        if isinstance(value, Mapping):
            return "{" + ", ".join(f"{self.value(k)}: {self.value(v)}" for k, v in value.items()) + "}"
        if isinstance(value, slice):
            return f"slice({self.value((value.start, value.stop, value.step))})"
        if isinstance(value, _NAMED):
            return str(value)
        if isinstance(value, (torch._ops.OpOverload, torch._ops.HigherOrderOperator)):
            return self.target(value)
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        raise CacheError(f"an argument of type {kind}", next_step=_NO_TEXT)

    def tensor(self, value: torch.Tensor) -> str:
        start = f"{type(value).__name__} {value.dtype} {value.device} {self.sizes(value.size())}"
        start += " negated" if value.is_neg() else ""
        if value.layout != torch.strided:
            return f"{start} {value.layout}"
        # Which values share memory: merging equal operations looks at it.
        try:
            storage = self.storages.setdefault(storage_of(value), f"m{len(self.storages)}")
        except NotImplementedError as error:
            raise CacheError(f"a {type(value).__name__} without memory", next_step=_NO_TEXT) from error
        return f"{start} {self.sizes(value.stride())} {self.sizes((value.storage_offset(),))} {storage}"

    def sizes(self, values: Any) -> str:
        return ",".join([str(v) if type(v) is int else self.expr(expression_of(v)) for v in values])

    def expr(self, expr: Any) -> str:
        """Any sympy expression: names of classes, in prefix form."""
        key = type(expr), expr
        text = self.texts.get(key)
        if text is None:
            text = self.texts[key] = self._expr(expr)
        return text

    def _expr(self, expr: Any) -> str:
        if isinstance(expr, sympy.Symbol):
            return self.symbols.setdefault(expr, f"v{len(self.symbols)}")
        if isinstance(expr, sympy.Integer) or not isinstance(expr, sympy.Basic):
            return repr(expr)
        if not expr.args:
            return sympy.srepr(expr)
        operands = list(map(self.expr, expr.args))
        if type(expr).__name__ in _COMMUTATIVE:
            operands.sort()  # sympy's order is that of the symbols' own names
        return f"{type(expr).__name__}({','.join(operands)})"

    def environment(self, env: Any) -> list[str]:
        """The facts of the ShapeEnv, and for each symbol met so far all that lowering reads."""
        ours = guards_are_ours(env)
        lines = [f"guards{' of ours' if ours else ''}"]
        guards = shape_env_guards(env) if ours else [(guard.expr, None) for guard in env.guards]
        lines += [f"{self.expr(relation)} {line}" for relation, line in guards]
        lines += ["asserted", *(self.expr(relation) for relation, _ in deferred_runtime_asserts(env))]
        lines += ["replaced", *(f"{self.expr(s)} {self.expr(value)}" for s, value in env.replacements.items())]
        return [*lines, "symbols", *(self._symbol(env, symbol) for symbol in self.symbols)]

    def _symbol(self, env: Any, symbol: Any) -> str:
        kinds = [symbol.is_integer, symbol.is_nonnegative, symbol.is_positive, symbol_hint(env, symbol) is None]
        return f"{self.symbols[symbol]} {symbol_range(env, symbol)} {symbol_source(env, symbol)} {kinds}"
