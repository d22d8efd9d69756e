"""Infers fake rules for operators that have none, from samples (``operator_samples``).

The tracer calls this for an operator of ``torch.library`` (``custom_op`` or ``Library.define``) without a fake rule.
Sizes of results become formulas of the operands' sizes, or unbacked sizes; numbers become unbacked symbols, which are
read from the operator's results. Generated code compares results with their fake values (``promised``).
"""

from __future__ import annotations

import contextlib
import functools
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

import sympy
import torch
import torch.utils._pytree as pytree

from symshape.errors import rule_to_register, with_text
from symshape.frontend.bridge.fake_tensors import shape_env_of_mode, traced_by_its_kernel, tracing_mode
from symshape.frontend.bridge.operators import (
    has_no_formula,
    has_python_kernel,
    has_rule,
    has_side_effects,
    is_for_all_devices,
    returns_views,
    schema_of,
)
from symshape.frontend.bridge.shape_env import symbol_hint, symint_of, unbacked_number
from symshape.frontend.bridge.source_lines import traced_line_now
from symshape.frontend.bridge.symbolic_sizes import expression_of, new_unbacked_size
from symshape.frontend.bridge.tracing_errors import unsupported
from symshape.frontend.opaque_calls.operator_samples import (
    SMALLEST,
    Flag,
    NoRuleFound,
    Operand,
    OperatorCall,
    Real,
    ResultRule,
    Size,
    Specialise,
    TensorRule,
    Variable,
    is_differentiated,
    learn,
)
from symshape.runtime.torch_c import declaration_of, first_seen

log = logging.getLogger("symshape.frames")
_torch: Any = torch
_SYMBOLIC = {"min": _torch.sym_min, "max": _torch.sym_max}


class NoFakeRule(RuntimeError):
    """An operator without a fake rule, for which none could be inferred: ``op``, ``reason``, the user's ``line``, and
    ``hint``: code that registers one, if that would help."""

    def __init__(self, op: Any, reason: str, line: str = "") -> None:
        self.hint = "" if reason.startswith(_NO_SYMBOL) else rule_to_register(*declaration_of(op))
        super().__init__(f"{schema_of(op).name} has no fake rule, and none was found: {reason}; {self.hint}")
        self.op, self.reason, self.line = op, reason, line


_NO_SYMBOL = "no symbol stands for a result of type"


def no_fake_rule(error: BaseException | None) -> NoFakeRule | None:
    """The NoFakeRule that is the cause of an error of a trace, if any."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, NoFakeRule):
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None


def traced_by_inferred_rule(probe: bool, op: Any, args: Any, kwargs: Any) -> Any:
    """The fake results of a call of an operator without a fake rule. NoFakeRule if none is found, and always without
    ``probe``; ``UnsupportedOperatorException`` where its call is to be one opaque operator."""
    mode = tracing_mode((args, kwargs))
    env = shape_env_of_mode(mode)
    if env is None:
        raise NoFakeRule(op, "its operands are no fake tensors")
    refused = why_not_run(op, probe)
    inside = is_differentiated_inside(probe, op, args, kwargs)
    if is_for_all_devices(op) and not inside:
        with contextlib.suppress(Exception):  # a rule that needs NumPy or data
            return traced_by_its_kernel(op, args, kwargs)
    if refused:
        raise NoFakeRule(op, refused, traced_line_now())
    if inside:
        raise unsupported(op)
    while True:
        call, symbols = described(op, args, kwargs, env)
        try:
            _require_seen_values(call, symbols)
            rule = _learnt(call)
        except Specialise as wanted:
            for name in wanted.names:
                int(symbols[name])  # a guard, which makes it a constant
            continue
        except NoRuleFound as error:
            raise NoFakeRule(op, str(error), traced_line_now()) from error
        _say(op, call, rule)
        with mode:
            return _made(rule, symbols, env)


def is_differentiated_inside(probe: bool, op: Any, args: Any, kwargs: Any) -> bool:
    """Whether eager mode differentiates what the kernel of a user's operator calls, as the operator has no formula.
    Below autograd, where rules are asked, that is not seen. Such a call is an opaque call, which does the same.

    Seen on made-up operands. True where the operator is not run on any: a graph break is right in either case. An
    operator with a rule and no kernel in Python is taken for one that computes on memory."""
    if not has_no_formula(op, (args, kwargs)):
        return False
    if why_not_run(op, probe):
        return has_python_kernel(op)
    mode = tracing_mode((args, kwargs))
    env = shape_env_of_mode(mode)
    if env is None or (has_rule(op) and not has_python_kernel(op)):
        return False
    leaves = pytree.tree_leaves((args, kwargs))
    wanted = tuple(i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.requires_grad)
    return _kernel_is_differentiated(_Keyed(described(op, args, kwargs, env)[0]), wanted)


@functools.lru_cache(maxsize=1024)
def _kernel_is_differentiated(keyed: _Keyed, wanted: tuple[int, ...]) -> bool:
    return is_differentiated(keyed.call, wanted)


def _require_seen_values(call: OperatorCall, symbols: Mapping[str, Any]) -> None:
    """Specialise, or a guard that it is not negative, for an integer argument that is not a size: negative values are
    not sampled."""
    numbers = [one for one in call.variables if not one.is_size and one.hint is not None]
    negative = [one.name for one in numbers if not symbols[one.name] >= SMALLEST]
    if negative:
        raise Specialise(negative)


def why_not_run(op: Any, probe: bool) -> str:
    """Why an operator is not run on made-up operands; "" if it may be."""
    if not probe:
        return "the option probe_custom_operators is off"
    if schema_of(op).is_mutable:
        return "it changes operands and returns something"
    if returns_views(op):
        return "it returns a view"
    if torch.Tag.nondeterministic_seeded in op.tags:
        return "it draws random numbers"
    if has_side_effects(op):
        return "it has side effects"
    if not schema_of(op).returns:
        return "it returns nothing, so that it is run for what else it does"
    returned = str(schema_of(op)).rpartition("->")[2]  # objects of types show SymInt as int
    held = next((kind for kind in re.findall(r"\w+", returned) if kind in _NOT_SYMBOLIC), "")
    return f"{_NO_SYMBOL} {held} ({_NOT_SYMBOLIC[held]})" if held else ""


# Types of arguments whose value PyTorch's dispatcher reads.
_NOT_SYMBOLIC = {
    "int": "SymInt can be one",
    "float": "Scalar can be one",
    "bool": "its value is asked for",
    "str": "it is no number",
}


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
    return OperatorCall(op, leaves, spec, tuple(writer.variables), tuple(texts)), writer.symints


def _text_of(op: Any, path: Sequence[Any]) -> str:
    """The source by which a rule refers to the argument at a path of ``(args, kwargs)``."""
    (part, first), *rest = (step.idx if hasattr(step, "idx") else step.key for step in path[:2]), *path[2:]
    name = schema_of(op).arguments[first].name if part == 0 else str(first)
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
            expr = expression_of(value)
            for symbol in sorted(expr.free_symbols, key=str):
                if symbol in self.names:
                    if expr == symbol:
                        self._shown(self.names[symbol].name, text)
                    continue
                name = f"n{len(self.names)}"
                self.names[symbol] = sympy.Symbol(name, integer=True)
                self.symints[name] = value if expr == symbol else symint_of(self.env, symbol)
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
                raise NoFakeRule(op, f"an operand has the layout {value.layout}", traced_line_now())
            sizes, strides = (tuple(map(self.size, dims)) for dims in (value.shape, value.stride()))
            return Operand(value.dtype, value.device, sizes, strides)
        if isinstance(value, torch.SymInt):
            return self.size(value)
        if isinstance(value, torch.SymFloat):
            hint = first_seen(value)
            return Real(0.5 if hint is None else float(hint))
        if isinstance(value, torch.SymBool):
            return Flag()
        if value is None or isinstance(value, _PLAIN):
            return value
        raise NoFakeRule(op, f"an argument is a {type(value).__name__}", traced_line_now())

    def size(self, value: Any) -> Size:
        expr = expression_of(value) if isinstance(value, torch.SymInt) else sympy.Integer(value)
        return Size(expr.xreplace(self.names))


_PLAIN = (bool, int, float, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format)


class _Keyed:
    """A call as a key of the table of inferred rules: equal to another call with the same rule."""

    def __init__(self, call: OperatorCall) -> None:
        self.call, self.key = call, call.key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Keyed) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def _learnt(call: OperatorCall) -> ResultRule:
    """The rule of a call. A call is traced several times in a compile, always with the same rule."""
    found = _outcome(_Keyed(call))
    if isinstance(found, ResultRule):
        return found
    kind, arguments = found  # a new error: one that is kept would keep what called here
    raise kind(*arguments)


@functools.lru_cache(maxsize=1024)
def _outcome(keyed: _Keyed) -> ResultRule | tuple[type[Exception], tuple[Any, ...]]:
    try:
        return learn(keyed.call)
    except Specialise as error:
        return Specialise, (error.names,)
    except Exception as error:
        return NoRuleFound, (str(error) if isinstance(error, NoRuleFound) else f"{type(error).__name__}: {error}",)


# --- fake results ----------------------------------------------------------------------------------------------------


def _made(rule: ResultRule, symbols: Mapping[str, Any], env: Any) -> Any:
    return pytree.tree_unflatten([_made_leaf(leaf, symbols, env) for leaf in rule.leaves], rule.spec)


def _made_leaf(leaf: Any, symbols: Mapping[str, Any], env: Any) -> Any:
    if isinstance(leaf, TensorRule):
        sizes = [
            new_unbacked_size(env) if formula is None else formula.value(symbols, _SYMBOLIC) for formula in leaf.sizes
        ]
        made = torch.empty([sizes[d] for d in leaf.order], dtype=leaf.dtype, device=leaf.device)
        return made.permute([leaf.order.index(d) for d in range(len(sizes))])
    return None if leaf is None else unbacked_number(env, leaf)


# --- messages --------------------------------------------------------------------------------------------------------


def _say(op: Any, call: OperatorCall, rule: ResultRule) -> None:
    _say_once(str(op), rule_to_register(*declaration_of(op), rule_text(call, rule)), traced_line_now())


_SAID: set[str] = set()


def _say_once(op: str, code: str, line: str) -> None:
    if op not in _SAID:
        _SAID.add(op)
        where = f", {with_text(line)}" if line else ""
        found = "what it returns was found by running it on small inputs"
        log.warning("%s has no fake rule%s: %s; %s", op, where, found, code)


def rule_text(call: OperatorCall, rule: ResultRule) -> str:
    """The result of a fake rule, as Python text."""
    names = {variable.name: variable.text or variable.name for variable in call.variables}
    operand = next(((text, leaf) for text, leaf in zip(call.texts, call.leaves) if isinstance(leaf, Operand)), None)
    leaves = [_leaf_text(leaf, names, operand) for leaf in rule.leaves]
    found = pytree.tree_unflatten([_Text(leaf) for leaf in leaves], rule.spec)
    return repr(found)


class _Text:
    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _leaf_text(leaf: Any, names: Mapping[str, str], operand: tuple[str, Operand] | None) -> str:
    fresh = "torch.library.get_ctx().new_dynamic_size()"
    if not isinstance(leaf, TensorRule):
        return "None" if leaf is None else fresh if leaf is int else f"<a {leaf.__name__}>"
    sizes = ", ".join(fresh if one is None else one.written(names) for one in (leaf.sizes[d] for d in leaf.order))
    if operand is not None and operand[1].device == leaf.device:
        kind = "" if operand[1].dtype == leaf.dtype else f", dtype={leaf.dtype}"
        made = f"{operand[0]}.new_empty([{sizes}]{kind})"
    else:
        made = f"torch.empty([{sizes}], dtype={leaf.dtype}, device={str(leaf.device)!r})"
    original = leaf.order == tuple(range(len(leaf.order)))
    return made if original else f"{made}.permute({[leaf.order.index(d) for d in range(len(leaf.order))]})"
