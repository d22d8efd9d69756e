"""Cuts runs of native work out of a host program: launches of kernels on a CPU, packed convolutions, and the
allocations between them.

Before: t0 = convolution(arg0, arg1, ...); t1 = empty_strided(...); kernel_0(t0.data_ptr(), t1.data_ptr(), s0); del t0
After:  t1, = segment_0(arg0, arg1, s0)

Each is a function of its own, with the lines of the program that it stands for; the loader may record it
(``runtime/cpu/tape.py``). Programs without packed convolutions stay as they are: they would win little.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from symshape.codegen.host.program_text import ProgramText

_CONVOLUTION: Final = "symshape.packed_convolution.default"
_LEAST: Final = 2  # launches and convolutions that are worth a function
# Nodes of arithmetic on sizes, and of tuples and lists of them.
_QUIET: Final = (
    *(ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Tuple, ast.List),
    *(ast.operator, ast.unaryop, ast.boolop, ast.expr_context),
)


@dataclass(frozen=True)
class Native:
    """Names of callables in a program: of convolutions, of kernels, and of what only makes tensors."""

    convolutions: Collection[str]
    kernels: Collection[str]
    tensors: Collection[str] = ("empty_strided", "reinterpret")


@dataclass
class Cut:
    """A host program with calls in the place of segments. ``names``: the new functions, which come last; ``before``:
    for each line of the source the line of the old one that it was, or that it begins."""

    lines: list[str]
    names: list[str]
    before: list[int]

    def user_lines(self, old: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
        """``ProgramText.user_lines`` of the new source."""
        found: list[tuple[int, str]] = []
        last = ""
        for number, before in enumerate(self.before, 1):
            text = max((pair for pair in old if pair[0] <= before), default=(0, ""))[1]
            if text != last:
                found.append((number, text))
            last = text
        return found


def with_segments(text: ProgramText) -> ProgramText:
    """The host program of CPU kernels with its segments as functions."""
    convolutions = [name for name, target in text.targets.items() if target == _CONVOLUTION]
    if not convolutions:
        return text
    cut = cut_segments(text.source, Native(convolutions, text.kernels))
    user_lines = cut.user_lines(text.user_lines)
    return replace(text, source="".join(cut.lines), segments=cut.names, user_lines=user_lines)


def cut_segments(source: str, native: Native) -> Cut:
    """``source``: one statement a line, but for ``if``."""
    tree = ast.parse(source)
    (program,) = (one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == "program")
    local = _names(program.body, ast.Store)
    cut, functions = Cut([], [], []), Cut([], [], [])
    old = source.splitlines(keepends=True)
    copied = 0  # lines of the old source
    rest = program.body
    while rest:
        length = _run(rest, native)
        if sum(_is_work(one, native) for one in rest[:length]) >= _LEAST:
            first, last = rest[0].lineno, rest[length - 1].end_lineno or 0
            name = f"segment_{len(cut.names)}"
            head, end, calls = _function(name, rest[:length], rest[length:], local)
            cut.names.append(name)
            cut.lines += [*old[copied : first - 1], *calls]
            cut.before += [*range(copied + 1, first), *[first] * len(calls)]
            functions.lines += [head, *old[first - 1 : last], end]
            functions.before += [first, *range(first, last + 1), last]
            copied = last
        rest = rest[max(length, 1) :]
    cut.lines += old[copied:] + functions.lines
    cut.before += [*range(copied + 1, len(old) + 1), *functions.before]
    return cut


def _run(statements: Sequence[ast.stmt], native: Native) -> int:
    """How many statements, from the first on, are native work, with what is freed behind it; 0 if it does not begin
    there."""
    length = 0
    for i, statement in enumerate(statements):
        if _is_work(statement, native):
            length = i + 1
        elif not _is_call_of(statement, native.tensors) and (i == 0 or not _is_quiet(statement)):
            break
    while 0 < length < len(statements) and isinstance(statements[length], ast.Delete):
        length += 1
    return length


def _is_work(statement: ast.stmt, native: Native) -> bool:
    if not isinstance(statement, ast.Expr):
        return _is_call_of(statement, native.convolutions)
    call = statement.value
    return isinstance(call, ast.Call) and _called(call) in native.kernels and all(map(_is_word, call.args))


def _is_word(argument: ast.expr) -> bool:
    """Whether an argument of a kernel is a size or the address of a tensor."""
    if isinstance(argument, ast.Call) and isinstance(argument.func, ast.Attribute):
        return argument.func.attr == "data_ptr" and isinstance(argument.func.value, ast.Name)
    return _is_arithmetic(argument)


def _is_call_of(statement: ast.stmt, names: Collection[str]) -> bool:
    """Whether it gives one name the result of such a call."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
        return False
    call = statement.value
    is_plain = isinstance(statement.targets[0], ast.Name) and all(map(_is_arithmetic, call.args))
    return is_plain and not call.keywords and _called(call) in names


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _is_arithmetic(expression: ast.expr) -> bool:
    return all(isinstance(one, _QUIET) for one in ast.walk(expression))


def _is_quiet(statement: ast.stmt) -> bool:
    """Whether it frees tensors, or computes a size of others."""
    if isinstance(statement, ast.Assign):
        return isinstance(statement.targets[0], ast.Name) and _is_arithmetic(statement.value)
    return isinstance(statement, ast.Delete)


def _names(statements: Sequence[ast.stmt], *contexts: type[ast.expr_context]) -> set[str]:
    nodes = [node for statement in statements for node in ast.walk(statement)]
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, contexts)}


def _function(
    name: str, statements: Sequence[ast.stmt], rest: Sequence[ast.stmt], local: Collection[str]
) -> tuple[str, str, list[str]]:
    """The first and the last line of the function that has the statements, and the lines that call it. ``local``: names
    that are no globals."""
    made = _names(statements, ast.Store)
    given = sorted((_names(statements, ast.Load) & {*local}) - made)
    freed = _names(statements, ast.Del)
    results = sorted((made - freed) & _names(rest, ast.Load, ast.Del))
    call = f"{name}({', '.join(given)})"
    bound = "".join(f"{one}, " for one in results).rstrip(" " if len(results) == 1 else ", ")
    calls = [f"    {bound} = {call}\n" if results else f"    {call}\n"]
    calls += [f"    del {', '.join(one for one in given if one in freed)}\n"] * any(one in freed for one in given)
    return f"def {call}:\n", f"    return ({bound})\n", calls
