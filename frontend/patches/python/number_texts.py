"""Texts of symbolic numbers: ``f"{n:4d}"`` and ``"%d" % n``. A text is data of Python: that of a size is its number, by
a guard; where a number is read from the data, the graph breaks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.symbolic_convert import InstructionTranslatorBase
from torch._dynamo.variables import ConstantVariable, SymNodeVariable, TupleVariable
from torch._dynamo.variables.lazy import LazySymNodeFormatString, LazyVariableTracker
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from symshape.frontend.bridge.dynamo import unimplemented
from symshape.frontend.patches.patch import Changes


def specifications_are_of_numbers(changes: Changes) -> None:
    """Formats the number where an f-string has a specification. Dynamo formats the number's text, which takes no
    ``d`` and no ``f``."""
    changes.wrap(InstructionTranslatorBase, "_format_value", _formatted)


class _FormattedNumber(LazySymNodeFormatString):
    def __repr__(self) -> str:
        text: str = self.fmt_var.as_python_constant().format(self.sym_node_var.evaluate_expr())
        return text


@functools.cache
def _formatted(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _format_value(self: Any, fmt_spec: Any, flags: int) -> Any:
        value = self.stack[-1]
        if not isinstance(value, SymNodeVariable) or flags & 0x03:  # `!r` and the like: the number's text is meant
            return original(self, fmt_spec, flags)
        if value.source is not None and not isinstance(value.sym_num, torch.SymInt):
            return original(self, fmt_spec, flags)  # a float that is an argument: see `trace_messages`
        self.pop()
        self.push(LazyVariableTracker.create(_FormattedNumber(value, fmt_spec), source=None, tx=self))
        return None

    return _format_value


def templates_take_numbers(changes: Changes) -> None:
    """Gives ``%`` of a text the numbers of sizes, and breaks the graph for others. Dynamo raises a TypeError in the
    program that it traces, which the program may catch, and otherwise leaves the whole function to eager mode."""
    changes.wrap(ConstantVariable, "nb_remainder_impl", _filled)


@functools.cache
def _filled(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def nb_remainder_impl(self: Any, tx: Any, other: Any, reverse: bool = False) -> Any:
        if reverse or not isinstance(self.value, str | bytes | bytearray):
            return original(self, tx, other, reverse)
        numbers = _with_constants(tx, other)
        if not numbers.is_python_constant():
            unimplemented("% of a text", "what it is filled with is known at call time only", None)
        return original(self, tx, numbers, reverse)

    return nb_remainder_impl


def _with_constants(tx: Any, variable: Any) -> Any:
    """The variable with constants in the place of sizes, by guards."""
    one = variable.realize()
    if isinstance(one, TupleVariable) and not one.is_python_constant():
        return one.clone(items=[_with_constants(tx, item) for item in one.items])
    if isinstance(one, SymNodeVariable) and not free_unbacked_symbols(one.sym_num):
        return ConstantVariable.create(one.evaluate_expr(tx.output))
    return one
