"""``assume=[...]`` of ``symshape.compile``: parses conditions over sizes, which the compiler trusts."""

from __future__ import annotations

import ast
import dis
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch

from symshape.errors import OptionError, ShapeConstraintError
from symshape.frontend.bridge.dynamo import code_of, compiled_code, is_rest_of
from symshape.frontend.bridge.shape_env import input_sizes, replacements, symbol_hints, symbol_sources
from symshape.frontend.importer.requirements import Requirements
from symshape.frontend.importer.specialisations import plain_source
from symshape.frontend.importer.traced_symbols import size_expr
from symshape.prover.numbers import condition as conditions
from symshape.prover.numbers.condition import Condition
from symshape.prover.numbers.expr import Expr, maximum, minimum
from symshape.prover.numbers.facts import Row
from symshape.prover.numbers.sympy_bridge import UnsupportedExpr, from_sympy
from symshape.prover.solver.condition_store import ConditionStore

ORIGIN = "assume= of symshape.compile"
_GRAMMAR = "use x.size(0), x.shape[0] and integer arguments in: == != < <= > >= + - * // % min() max() and or not"
_ARITHMETIC: dict[type[ast.operator], Callable[[Expr, Expr], Expr]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Expr, Expr], Condition]] = {
    ast.Eq: conditions.equals,
    ast.NotEq: conditions.differs,
    ast.GtE: conditions.at_least,
    ast.Gt: conditions.greater,
    ast.LtE: lambda a, b: conditions.at_least(b, a),
    ast.Lt: lambda a, b: conditions.greater(b, a),
}


@dataclass(frozen=True)
class Assumption:
    """``condition`` is over symbols with the user's names: "x.size(0)", or "n" for an integer argument."""

    text: str
    origin: str
    condition: Condition

    @property
    def names(self) -> list[str]:
        return sorted(self.condition.symbols)


class Assumptions:
    """Parsed and consistent assumptions. OptionError for a text that is no condition, ContradictionError for
    contradicting ones. ``fn``, if given, defines which arguments there are, and in which frames they have these names.

    Equal for equal texts about functions with the same code: methods of layers of one class.
    """

    def __init__(self, texts: Sequence[str], fn: Any = None, origin: str = ORIGIN) -> None:
        self.texts = tuple(texts)
        self.parameters = argument_names(fn) if texts else None
        self.code = code_of(fn) if texts else None
        self.items = [_parse(text, f"{origin}:{i}") for i, text in enumerate(texts, 1)]
        for item in self.items:
            for name in item.names:
                if self.parameters is not None and _root(name) not in self.parameters:
                    raise _unknown(item, name, self.parameters)
        if self.items:
            _check_consistent(self.items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Assumptions) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> Any:
        return self.texts, self.parameters and tuple(self.parameters), self.code

    def __getstate__(self) -> dict[str, Any]:
        """Without the code object, which cannot be pickled: names then denote arguments in every frame."""
        return {**self.__dict__, "code": None}

    def __deepcopy__(self, memo: Any) -> Assumptions:
        return self  # nothing in it changes

    def over(self, known: Mapping[str, Expr]) -> list[tuple[Assumption, Condition]]:
        """(assumption, condition) pairs, each condition over the sizes and integers of one call that ``known`` has for
        names. Left out if it lacks one: an argument may be missing, or no tensor. OptionError for a dim that a tensor
        does not have."""
        roots = {_root(name) for name in known}
        found = []
        for item in self.items:
            values = {name: known.get(_positive(name, known)) for name in item.names}
            for name, value in values.items():
                if value is None and (_root(name) in roots or self.parameters is None):
                    raise _unknown(item, name, known)
            given = {name: value for name, value in values.items() if value is not None}
            if len(given) == len(values):
                found.append((item, item.condition.substitute(given)))
        return found

    def add_guards(self, env: Any) -> None:
        """Makes guards of all assumptions about inputs of this graph. Sizes that violate one are traced anew, and get
        the error here.

        An argument that the graph does not take (after a graph break) is left to other graphs. OptionError for a dim
        that its tensor does not have; ShapeConstraintError if the hints violate an assumption.
        """
        if not self.items or env is None:
            return
        known = _known_names(env)
        roots = {_root(name) for name in known}
        requirements = Requirements(env)
        for item in self._of_this_frame():
            values = {}
            for name in item.names:
                found = known.get(_positive(name, known))
                if found is None and (_root(name) in roots or self.parameters is None):
                    raise _unknown(item, name, known)
                if found is not None:
                    values[name] = found
            if len(values) == len(item.names):
                _check(item, values, env)
                requirements.guard(item.condition.substitute(values), item.origin)

    def _of_this_frame(self) -> Sequence[Assumption]:
        """The assumptions about variables of the frame that is being compiled. After a graph break the rest of the
        function is a frame of its own, in which a name may stand for another tensor; the same holds for functions that
        are called."""
        frame = compiled_code()
        if frame is None or self.code is None or frame is self.code:
            return self.items
        if not is_rest_of(frame, self.code):
            return ()
        rebound = {i.argval for i in dis.get_instructions(self.code) if i.opname.startswith(("STORE_", "DELETE_"))}
        names = {name for value in rebound for name in (value if isinstance(value, tuple) else (value,))}
        return [item for item in self.items if not any(_root(name) in names for name in item.names)]


def _check_consistent(items: Sequence[Assumption]) -> None:
    store = ConditionStore()
    for name in sorted({name for item in items for name in item.names}):
        store.symbol(name, Row(0 if name.endswith(")") else None, None))
    for item in items:
        store.assume(item.condition, f"{item.origin.rpartition(':')[0]}: {item.text}")


def _check(item: Assumption, values: Mapping[str, Expr], env: Any) -> None:
    hints = symbol_hints(env)
    sizes = {name: value.evaluate(hints) for name, value in values.items()}
    if not item.condition.evaluate(sizes):
        shown = ", ".join(f"{name} is {size}" for name, size in sizes.items())
        raise ShapeConstraintError(
            f"the assumption `{item.text}` does not hold: {shown}",
            where=item.origin,
            next_step="pass inputs for which it holds, or take the assumption back",
        )


def argument_names(fn: Any) -> dict[str, None] | None:
    """The names of a function's arguments; None where they are not known."""
    if isinstance(fn, type):
        return None  # what is compiled is the call of its instances
    try:
        parameters = inspect.signature(fn.forward if isinstance(fn, torch.nn.Module) else fn).parameters
    except (TypeError, ValueError):
        return None
    if any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters.values()):
        return None
    if isinstance(fn, torch.nn.Module) and type(fn).__module__.startswith("torch.nn."):
        return None  # Dynamo sees the arguments of a wrapper, not those of forward
    return dict.fromkeys(parameters) | ({"self": None} if isinstance(fn, torch.nn.Module) else {})


def _unknown(item: Assumption, name: str, names: Mapping[str, Any]) -> OptionError:
    return OptionError(
        f"assume: {name} in `{item.text}` is no argument, or no size of one",
        where=item.origin,
        next_step=f"names: {', '.join(names) or 'none'}",
    )


def _root(name: str) -> str:
    return name.partition(".")[0].partition("[")[0]


def _positive(name: str, known: Mapping[str, Expr]) -> str:
    """``x.size(-1)`` as ``x.size(1)`` for an x of two dims."""
    base, call, dim = name.rpartition(".size(")
    if not call or not dim.startswith("-"):
        return name
    rank = sum(other.startswith(base + call) for other in known)
    return f"{base}.size({rank + int(dim.rstrip(')'))})"


def _known_names(env: Any) -> dict[str, Expr]:
    """Every size of an input, and every integer input, by the user's name."""
    found: dict[str, Expr] = {}
    for tensor in input_sizes(env):
        for dim, size in enumerate(tensor.sizes):
            found[f"{_normal(tensor.source)}.size({dim})"] = size_expr(size)
    replaced = {symbol: value for symbol, value, _ in replacements(env)}
    for symbol, sources in symbol_sources(env).items():
        try:
            value = from_sympy(replaced.get(symbol, symbol))
        except UnsupportedExpr:
            continue
        for source in sources:
            found.setdefault(_normal(source), value)
    return found


def _normal(source: str) -> str:
    """Dynamo's name in the form in which ``ast`` prints it."""
    try:
        return ast.unparse(ast.parse(plain_source(source), mode="eval"))
    except SyntaxError:
        return source


# --- the texts -------------------------------------------------------------------------------------------------------


def _parse(text: str, origin: str) -> Assumption:
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        condition = _condition(tree)
    except SyntaxError as error:
        raise OptionError(f"assume: `{text}` is no expression", where=origin, next_step=_GRAMMAR) from error
    except _NotAllowed as error:
        raise OptionError(f"assume: `{error}` of `{text}` is not allowed", where=origin, next_step=_GRAMMAR) from error
    except ZeroDivisionError as error:
        raise OptionError(f"assume: `{text}` divides by zero", where=origin, next_step=_GRAMMAR) from error
    return Assumption(text.strip(), origin, condition)


class _NotAllowed(Exception):
    """A part of a text that the grammar does not allow."""

    def __init__(self, node: ast.AST) -> None:
        super().__init__(ast.unparse(node))


def _condition(node: ast.expr) -> Condition:
    if isinstance(node, ast.BoolOp):
        join = conditions.all_of if isinstance(node.op, ast.And) else conditions.any_of
        return join(*map(_condition, node.values))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return conditions.negation(_condition(node.operand))
    if not isinstance(node, ast.Compare):
        raise _NotAllowed(node)
    sides = [_size(side) for side in (node.left, *node.comparators)]
    parts = []
    for operator, left, right in zip(node.ops, sides, sides[1:]):
        if type(operator) not in _COMPARISONS:
            raise _NotAllowed(node)
        parts.append(_COMPARISONS[type(operator)](left, right))
    return conditions.all_of(*parts)


def _size(node: ast.expr) -> Expr:
    match node:
        case ast.Constant(value=value) if type(value) is int:
            return Expr.const(value)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_size(operand)
        case ast.BinOp(op=operator) if type(operator) in _ARITHMETIC:
            return _ARITHMETIC[type(operator)](_size(node.left), _size(node.right))
        case ast.Call(func=ast.Name(id="min" | "max" as name), args=[_, *_], keywords=[]):
            return reduce(maximum if name == "max" else minimum, map(_size, node.args))
        case ast.Call(func=ast.Attribute(value=value, attr="size"), args=[dim], keywords=[]) if _is_value(value):
            return _dim(value, dim)
        case ast.Subscript(value=ast.Attribute(value=value, attr="shape"), slice=dim) if _is_value(value):
            return _dim(value, dim)
        case _ if _is_value(node):
            return Expr.symbol(ast.unparse(node))
    raise _NotAllowed(node)


def _dim(value: ast.expr, dim: ast.expr) -> Expr:
    number = _size(dim).as_int()
    if number is None:
        raise _NotAllowed(dim)
    return Expr.symbol(f"{ast.unparse(value)}.size({number})")


def _is_value(node: ast.expr) -> bool:
    """Whether an expression is an argument or a part of one: ``x``, ``xs[0]``, ``d['k']``, ``self.weight``."""
    match node:
        case ast.Name():
            return True
        case ast.Attribute(value=value):
            return _is_value(value)
        case ast.Subscript(value=value, slice=ast.Constant()):
            return _is_value(value)
    return False
