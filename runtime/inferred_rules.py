"""Fake rules for operators that have none: what ``operator_samples`` learns by running them on made-up operands.

The tracer asks here when it meets an operator of ``torch.library`` (``custom_op`` or ``Library.define``) without a fake
rule. Sizes of results become formulas of the operands' sizes, or unbacked sizes; numbers become unbacked symbols, as they
are read from what the operator returns. Generated code compares what it gets with what was promised (``promised``).
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy
import torch
import torch.utils._pytree as pytree

from symshape.errors import ShapeConstraintError
from symshape.runtime.checks import with_text
from symshape.runtime.operator_samples import (
    Flag,
    NothingLearnt,
    Operand,
    OperatorCall,
    Real,
    ResultRule,
    Size,
    Specialise,
    TensorRule,
    Variable,
    learn,
)
from symshape.runtime.program import with_layout
from symshape.runtime.torch_private import symbol_hint
from symshape.runtime.torch_tracing import (
    fake_mode_of,
    has_fake_rule,
    has_side_effects,
    user_line_now,
    with_rules_for_other_operators,
)
from symshape.runtime.torch_unbacked import unknown_size

log = logging.getLogger("symshape.frames")
_torch: Any = torch


class NoFakeRule(RuntimeError):
    """An operator without a fake rule, for which none could be found: ``op`` and ``reason``."""

    def __init__(self, op: Any, reason: str, line: str = "") -> None:
        super().__init__(f"{op._schema.name} has no fake rule, and none was found: {reason}\n{how_to_register(op)}")
        self.op, self.reason, self.line = op, reason, line


def no_fake_rule(error: BaseException | None) -> NoFakeRule | None:
    """What an error of a trace was raised for, if for this."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, NoFakeRule):
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None


def rules_are_inferred(probe: bool) -> Callable[[], None]:
    """From now on operators without a fake rule are traced, or raise NoFakeRule; without ``probe`` they all do. Returns
    what puts the usual way back: PyTorch's errors."""
    return with_rules_for_other_operators(functools.partial(_traced, probe))


def _traced(probe: bool, op: Any, args: Any, kwargs: Any) -> Any:
    """The fake results of a call."""
    mode = fake_mode_of((args, kwargs))
    if mode is None or mode.shape_env is None:
        raise NoFakeRule(op, "its operands are no fake tensors")
    refused = _refused(op, probe)
    if refused:
        raise NoFakeRule(op, refused, user_line_now())
    while True:
        call, symbols = described(op, args, kwargs, mode.shape_env)
        try:
            rule = _learnt(call)
        except Specialise as wanted:
            for name in wanted.names:
                int(symbols[name])  # a guard, which makes it a constant
            continue
        except NothingLearnt as error:
            raise NoFakeRule(op, str(error), user_line_now()) from error
        _say(op, call, rule)
        with mode:
            return _made(rule, symbols, mode.shape_env)


def _refused(op: Any, probe: bool) -> str:
    """Why an operator is not run on made-up operands; "" if it may be."""
    if not probe:
        return "the option probe_custom_operators is off"
    if op._schema.is_mutable:
        return "it changes operands and returns something"
    if any(item.alias_info is not None for item in (*op._schema.arguments, *op._schema.returns)):
        return "it returns a view"
    if torch.Tag.nondeterministic_seeded in op.tags:
        return "it draws random numbers"
    if has_side_effects(op):
        return "it has side effects"
    if not op._schema.returns:
        return "it returns nothing, so that it is run for what else it does"
    return ""


# --- calls -----------------------------------------------------------------------------------------------------------


def described(op: Any, args: Any, kwargs: Any, env: Any) -> tuple[OperatorCall, dict[str, Any]]:
    """The call without its data, and the SymInt of each of its variables."""
    paths, spec = pytree.tree_flatten_with_path((args, kwargs))
    writer = _Description(env)
    texts = [_text_of(op, path) for path, _ in paths]
    for text, (_, value) in zip(texts, paths):  # sizes name variables rather than integers that are given as well
        if isinstance(value, torch.Tensor):
            for kind, dims in (("size", value.shape), ("stride", value.stride())):
                writer.name(dims, [f"{text}.{kind}({d})" for d in range(value.dim())], kind == "size")
    for text, (_, value) in zip(texts, paths):
        writer.name([value], [text], False)
    leaves = tuple(writer.leaf(op, value) for _, value in paths)
    return OperatorCall(op, leaves, spec, tuple(writer.variables)), writer.symints


def _text_of(op: Any, path: Sequence[Any]) -> str:
    """How a rule writes the argument at a path of ``(args, kwargs)``."""
    (part, first), *rest = (step.idx if hasattr(step, "idx") else step.key for step in path[:2]), *path[2:]
    name = op._schema.arguments[first].name if part == 0 else str(first)
    return name + "".join(f"[{step.idx}]" for step in rest)


class _Description:
    def __init__(self, env: Any) -> None:
        self.env = env
        self.names: dict[Any, sympy.Symbol] = {}  # of the tracer's symbols
        self.symints: dict[str, Any] = {}
        self.variables: list[Variable] = []

    def name(self, values: Sequence[Any], texts: Sequence[str], is_size: bool) -> None:
        for value, text in zip(values, texts):
            if not isinstance(value, torch.SymInt):
                continue
            expr = _expression(value)
            for symbol in sorted(expr.free_symbols, key=str):
                if symbol in self.names:
                    if expr == symbol:
                        self._shown(self.names[symbol].name, text)
                    continue
                name = f"n{len(self.names)}"
                self.names[symbol] = sympy.Symbol(name, integer=True)
                self.symints[name] = value if expr == symbol else self.env.create_symintnode(
                    symbol, hint=symbol_hint(self.env, symbol))  # fmt: skip
                shown = text if expr == symbol else ""
                self.variables.append(Variable(name, symbol_hint(self.env, symbol), shown, is_size))

    def _shown(self, name: str, text: str) -> None:
        """A variable that was only seen inside of an expression is shown by an argument."""
        for i, one in enumerate(self.variables):
            if one.name == name and not one.text:
                self.variables[i] = Variable(name, one.hint, text, one.is_size)

    def leaf(self, op: Any, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if value.layout != torch.strided or value.is_quantized:
                raise NoFakeRule(op, f"an operand has the layout {value.layout}", user_line_now())
            sizes, strides = (tuple(map(self.size, dims)) for dims in (value.shape, value.stride()))
            return Operand(value.dtype, value.device, sizes, strides)
        if isinstance(value, torch.SymInt):
            return self.size(value)
        if isinstance(value, torch.SymFloat):
            hint = value.node.hint
            return Real(0.5 if hint is None else float(hint))
        if isinstance(value, torch.SymBool):
            return Flag()
        if value is None or isinstance(value, _PLAIN):
            return value
        raise NoFakeRule(op, f"an argument is a {type(value).__name__}", user_line_now())

    def size(self, value: Any) -> Size:
        expr = _expression(value) if isinstance(value, torch.SymInt) else sympy.Integer(value)
        return Size(expr.xreplace(self.names))


_PLAIN = (bool, int, float, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format)


def _expression(value: torch.SymInt) -> Any:
    return value.node.expr


class _Keyed:
    """A call, for the table of what was learnt: equal to another one that has the same rule."""

    def __init__(self, call: OperatorCall) -> None:
        self.call, self.key = call, call.key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Keyed) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def _learnt(call: OperatorCall) -> ResultRule:
    """A call is traced several times in a compile, and must be traced alike."""
    found = _outcome(_Keyed(call))
    if isinstance(found, Exception):
        raise found
    return found


@functools.lru_cache(maxsize=1024)
def _outcome(keyed: _Keyed) -> ResultRule | Exception:
    try:
        return learn(keyed.call)
    except (NothingLearnt, Specialise) as error:
        return error.with_traceback(None)


# --- fake results ----------------------------------------------------------------------------------------------------


def _made(rule: ResultRule, symbols: Mapping[str, Any], env: Any) -> Any:
    return pytree.tree_unflatten([_made_leaf(leaf, symbols, env) for leaf in rule.leaves], rule.spec)


def _made_leaf(leaf: Any, symbols: Mapping[str, Any], env: Any) -> Any:
    if isinstance(leaf, TensorRule):
        sizes = [unknown_size(env) if formula is None else formula.value(symbols, _torch.sym_min, _torch.sym_max)
                 for formula in leaf.sizes]  # fmt: skip
        made = torch.empty([sizes[d] for d in leaf.order], dtype=leaf.dtype, device=leaf.device)
        return made.permute([leaf.order.index(d) for d in range(len(sizes))])
    numbers = {int: env.create_unbacked_symint, float: env.create_unbacked_symfloat, bool: env.create_unbacked_symbool}
    return None if leaf is None else numbers[leaf]()


# --- messages --------------------------------------------------------------------------------------------------------


def how_to_register(op: Any, result: str = "...") -> str:
    arguments = ", ".join(argument.name for argument in op._schema.arguments)
    name = op._schema.name + (f".{op._schema.overload_name}" if op._schema.overload_name else "")
    return (f'register one:\n    @torch.library.register_fake("{name}")\n    def _({arguments}):\n'
            f"        return {result}")  # fmt: skip


def _say(op: Any, call: OperatorCall, rule: ResultRule) -> None:
    _say_once(str(op), how_to_register(op, rule_text(call, rule)), user_line_now())


_SAID: set[str] = set()


def _say_once(op: str, code: str, line: str) -> None:
    if op not in _SAID:
        _SAID.add(op)
        where = f", {with_text(line)}" if line else ""
        log.warning("%s has no fake rule%s: what it returns was found by running it on small inputs; %s", op, where, code)


def rule_text(call: OperatorCall, rule: ResultRule) -> str:
    """The result of a fake rule, as Python text."""
    names = {variable.name: variable.text or variable.name for variable in call.variables}
    leaves = [_leaf_text(leaf, names) for leaf in rule.leaves]
    found = pytree.tree_unflatten([_Text(leaf) for leaf in leaves], rule.spec)
    return repr(found)


class _Text:
    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _leaf_text(leaf: Any, names: Mapping[str, str]) -> str:
    if isinstance(leaf, TensorRule):
        fresh = "torch.library.get_ctx().new_dynamic_size()"
        sizes = [fresh if one is None else one.written(names) for one in (leaf.sizes[d] for d in leaf.order)]
        made = f"torch.empty([{', '.join(sizes)}], dtype={leaf.dtype}, device={str(leaf.device)!r})"
        if leaf.order == tuple(range(len(sizes))):
            return made
        return f"{made}.permute({[leaf.order.index(d) for d in range(len(sizes))]})"
    return "None" if leaf is None else f"torch.library.get_ctx()...  # {leaf.__name__}"


# --- at run time -----------------------------------------------------------------------------------------------------


def promised(
    result: Any, sizes: Sequence[int | None], strides: Sequence[int] | None, dtype: torch.dtype, target: str, line: str
) -> torch.Tensor:
    """The result of an operator, in the layout that its fake rule promised. ShapeConstraintError if it has other sizes or
    another type: generated code would read past its end. ``sizes``: None for one that the rule does not say;
    ``strides``: None for contiguous."""
    shape = result.shape
    if result.dtype is not dtype or len(shape) != len(sizes) or shape != tuple(sizes):
        if result.dtype is not dtype or len(shape) != len(sizes) or any(
            wanted not in (None, size) for wanted, size in zip(sizes, shape)
        ):
            raise _broken(result, sizes, dtype, target, line)
    if strides is None:
        return result.contiguous()
    return with_layout(result, shape, strides)


def _broken(
    result: torch.Tensor, sizes: Sequence[int | None], dtype: torch.dtype, target: str, line: str
) -> ShapeConstraintError:
    op = functools.reduce(getattr, target.removeprefix("flat.").split("."), torch.ops)
    registered = has_fake_rule(op)
    said = "its fake rule says" if registered else "was found by running it on small inputs"
    wanted = f"{['?' if size is None else size for size in sizes]} ({dtype})"
    return ShapeConstraintError(
        f"{target} returned a tensor of sizes {list(result.shape)} ({result.dtype}); {said} {wanted}",
        where=with_text(line),
        next_step="correct the fake rule" if registered else f"{how_to_register(op)}\n    # sizes that are in the data: "
        "torch.library.get_ctx().new_dynamic_size()",
        constraint=f"{target} returns {wanted}",
    )
