"""Cuts runs of native work out of a host program: launches of kernels on a CPU, packed convolutions, and the
allocations between them.

Before: t0 = convolution(arg0, arg1, ...); t1 = empty_strided(...); kernel_0(t0.data_ptr(), t1.data_ptr(), s0); del t0
After:  t1, = segment_0(arg0, arg1, s0)

Each is a function of its own, with the lines of the program that it stands for. What calls it may record it
(``runtime/cpu/tape.py``).
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

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


def cut_segments(source: str, native: Native) -> tuple[ast.Module, list[str]]:
    """The program with calls in place of its runs of native work, and the names of the new functions."""
    tree = ast.parse(source)
    (program,) = (one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == "program")
    local = _names(program.body, ast.Store)
    names: list[str] = []
    body: list[ast.stmt] = []
    rest = program.body
    while rest:
        length = _run(rest, native)
        if sum(_is_work(one, native) for one in rest[:length]) >= _LEAST:
            names.append(f"segment_{len(names)}")
            function, calls = _cut(names[-1], rest[:length], rest[length:], local)
            tree.body.append(function)
            body += calls
        else:
            length = max(length, 1)
            body += rest[:length]
        rest = rest[length:]
    program.body = body
    return ast.fix_missing_locations(tree), names


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


def _cut(
    name: str, statements: Sequence[ast.stmt], rest: Sequence[ast.stmt], local: Collection[str]
) -> tuple[ast.stmt, list[ast.stmt]]:
    """A function that has the statements, and the statements that call it. ``local``: names that are no globals."""
    made = _names(statements, ast.Store)
    given = sorted((_names(statements, ast.Load) & {*local}) - made)
    freed = _names(statements, ast.Del)
    results = sorted((made - freed) & _names(rest, ast.Load, ast.Del))
    returned = f"({', '.join(results)}{',' if results else ''})"
    function, *calls = ast.parse(
        f"def {name}({', '.join(given)}):\n    return {returned}\n"
        + (f"{returned} = " if results else "")
        + f"{name}({', '.join(given)})\n"
        + "".join(f"del {one}\n" for one in given if one in freed)
    ).body
    assert isinstance(function, ast.FunctionDef)
    for node in (node for one in (function, *calls) for node in ast.walk(one)):
        for attribute in ("lineno", "end_lineno"):
            if hasattr(node, attribute):  # errors name the line where the statements were
                setattr(node, attribute, statements[0].lineno)
    function.body[:0] = statements
    return function, calls
