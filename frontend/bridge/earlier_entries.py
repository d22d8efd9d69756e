"""Reads the entries that Dynamo has compiled for a code object, and finds the guard of each that fails for a call."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import torch
from torch._dynamo import guards

from symshape.frontend.bridge.frame_callback import region
from symshape.frontend.bridge.general_shape_env import GeneralShapeEnv
from symshape.frontend.bridge.question_origins import Line, Origin, users_line
from symshape.frontend.bridge.source_lines import whole_file_name

_COMMENT = re.compile(r"\s{2,}# (?=.*# |\()")
_LINE = re.compile(r"(?P<text>.*?)\s*# (?P<file>[^#]+):(?P<line>\d+) in ")
_SIZE = re.compile(r"tensor '(?P<tensor>.+)' size mismatch at index (?P<dim>\d+)\. expected (?P<want>\S+), actual")
_TENSOR = re.compile(
    r"tensor '(?P<tensor>.+?)' (?P<what>[\w ]+?) mismatch(?: at index (?P<dim>\d+))?\. expected (?:\w+=)?"
    r"(?P<want>.+?)(?:, actual (?P<actual>.+))?"
)
_KIND = re.compile(r"___check_type_id\((?P<source>.+), \d+\),? type=<class '(?P<kind>[^']+)'>")
_SHOWN = 60  # characters of a value


@dataclass(frozen=True)
class Failure:
    """A guard of an earlier entry that does not hold for this call. ``number``: of the entry, from 1 on; ``condition``:
    Dynamo's text of the guard; ``values``: the sources in it, with their values at this call; ``origin``: the line that
    made it; ``sizes``: the sizes and symbolic integers in it; ``constant``: an integer that the entry has as a
    constant."""

    number: int
    condition: str
    values: tuple[tuple[str, str], ...] = ()
    origin: Origin = Origin()
    sizes: tuple[str, ...] = ()
    constant: str = ""


@dataclass(frozen=True)
class _Kept:
    """Data that is kept with the guards of an entry. ``origins``: the location in a guard's text -> origin; ``pinned``:
    a specialised size -> origin; ``bounds``: (size, whether it is the upper bound) -> origin."""

    number: int
    origins: Mapping[str, Origin] = field(default_factory=dict)
    pinned: Mapping[str, Origin] = field(default_factory=dict)
    bounds: Mapping[tuple[str, bool], Origin] = field(default_factory=dict)


def entries_of(code: CodeType, backend: Any) -> list[Any]:
    """Dynamo's entries of a code object that an equal backend compiled, in the region of the running call."""
    found = torch._C._dynamo.eval_frame._debug_get_cache_entry_list(code)
    return [
        entry
        for entry in found
        if isinstance(_kept(entry), _Kept)
        and getattr(entry, "isolate_recompiles_id", region()) == region()
        and entry.backend == backend
    ]


def holds_for(entry: Any, variables: Mapping[str, Any]) -> bool:
    """Whether the guards of an entry hold for the local variables of a frame."""
    manager = entry.guard_manager
    return not isinstance(manager, guards.DeletedGuardManagerWrapper) and bool(manager.check(variables))


def keep(manager: Any, number: int, env: GeneralShapeEnv | None) -> None:
    """Notes with the guards of a new entry what its failures will be explained with."""
    known = () if env is None else (env.origins(), env.pinned_by(), env.bounded_by())
    manager.symshape_kept = _Kept(number, *known)


def _kept(entry: Any) -> Any:
    return getattr(entry.guard_manager, "symshape_kept", None)


def failures(entries: list[Any], variables: Mapping[str, Any]) -> list[Failure]:
    """The first guard of each entry that does not hold, in the order of the entries' numbers."""
    found = (_failure(entry, variables) for entry in sorted(entries, key=lambda one: int(_kept(one).number)))
    return [failure for failure in found if failure is not None]


def _failure(entry: Any, variables: Mapping[str, Any]) -> Failure | None:
    manager, kept = entry.guard_manager, _kept(entry)
    if isinstance(manager, guards.DeletedGuardManagerWrapper):
        return None
    info = manager.check_verbose(variables)
    parts = [str(part) for part in info.verbose_code_parts]
    if info.result or not parts:
        return None
    scope = {"L": variables, "G": manager.global_scope["G"], **manager.closure_vars}
    outer = dict(manager.global_scope)
    part = parts[0] if len(parts) == 1 else next((one for one in parts if _is_false(one, outer, scope)), parts[0])
    condition, comment = _split(part)
    read = functools.partial(_read, outer, scope)
    condition, origin = _bound(condition, kept.bounds, read) or (condition, kept.origins.get(comment))
    if size := _SIZE.match(condition):
        source = f"{size['tensor']}.size()[{size['dim']}]"
        pinned = kept.pinned.get(source)
        text = f"{source} == {size['want']}"
        return Failure(kept.number, text, _values(text, read), pinned or Origin(), (source,) if pinned else ())
    shown: tuple[tuple[str, str], ...]
    if kind := _KIND.match(condition):
        actual = read(f"type({kind['source']}).__name__").strip("'")
        shown = ((f"type({kind['source']})", actual),) if actual else ()
        return Failure(kept.number, f"type({kind['source']}) is {kind['kind']}", shown, _origin_of_value(info, comment))
    if tensor := _TENSOR.fullmatch(condition):
        what = f"{tensor['tensor']}.{tensor['what']}" + (f"({tensor['dim']})" if tensor["dim"] else "")
        shown = ((what, tensor["actual"]),) if tensor["actual"] else ()
        return Failure(kept.number, f"{what} == {tensor['want']}", shown, _origin_of_value(info, comment))
    sizes = tuple(_sizes(condition)) if origin is not None else ()
    constant = "" if origin is not None else _constant(condition)
    origin = origin or _origin_of_value(info, comment)
    return Failure(kept.number, condition, _values(condition, read), origin, sizes, constant)


def _split(part: str) -> tuple[str, str]:
    """The condition of a guard, and its comment with the line."""
    found = _COMMENT.search(part)
    return (part, "") if found is None else (part[: found.start()].strip(), part[found.end() :])


def _bound(
    condition: str, bounds: Mapping[tuple[str, bool], Origin], read: Callable[[str], str]
) -> tuple[str, Origin] | None:
    """For a guard on a range, ``2 <= n <= 8``: the bound that does not hold, and its origin."""
    parts = condition.split(" <= ")
    for first in range(len(parts) - 1):
        half = " <= ".join(parts[first : first + 2])
        lower, upper = ((parts[first + 1], False) in bounds), ((parts[first], True) in bounds)
        if (lower or upper) and read(half) == "False":
            return half, bounds[(parts[first], True) if upper else (parts[first + 1], False)]
    return None


def _is_false(part: str, outer: dict[str, Any], scope: dict[str, Any]) -> bool:
    try:
        return eval(part, outer, scope) is False
    except Exception:  # noqa: BLE001 - another one decides
        return False


def _read(outer: dict[str, Any], scope: dict[str, Any], text: str) -> str:
    """The value of a source as text; "" if it cannot be read or printed."""
    try:
        value = eval(text, outer, scope)
    except Exception:  # noqa: BLE001 - it is only shown
        return ""
    shown = repr(value) if isinstance(value, bool | int | float | str | torch.dtype | torch.device | None) else ""
    return shown if len(shown) <= _SHOWN else ""


def _values(condition: str, read: Any) -> tuple[tuple[str, str], ...]:
    return tuple((text, value) for text in dict.fromkeys(_readings(condition)) if (value := read(text)))


def _readings(condition: str) -> Iterator[str]:
    """The expressions in a condition that read the call: ``L['x'].size()[0]``, ``len(L['xs'])``."""
    try:
        tree = ast.parse(condition, mode="eval").body
    except SyntaxError:
        return
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop(0)
        if _is_of_call(node):
            yield ast.unparse(node)
        else:
            waiting += ast.iter_child_nodes(node)


def _is_of_call(node: ast.AST) -> bool:
    """Whether an expression reads a value of the call: a name, an item, an attribute or a method call of one, or its
    length."""
    if isinstance(node, ast.Call):
        of_length = isinstance(node.func, ast.Name) and node.func.id == "len" and len(node.args) == 1
        return _is_of_call(node.args[0]) if of_length else not node.args and _is_of_call(node.func)
    if isinstance(node, ast.Attribute | ast.Subscript):
        return _is_of_call(node.value)
    return isinstance(node, ast.Name) and node.id in ("L", "G")


def _sizes(condition: str) -> Iterator[str]:
    """The sizes and integers that a guard of the environment is about; none for one on strides."""
    if ".stride()" not in condition and ".is_contiguous()" not in condition:
        yield from dict.fromkeys(text for text in _readings(condition) if not text.endswith(".numel()"))


def _constant(condition: str) -> str:
    """The integer that a guard compares with a number."""
    found = re.fullmatch(r"(?P<source>[LG]\[.+?) == -?\d+", condition)
    return found["source"] if found is not None else ""


def _origin_of_value(info: Any, comment: str) -> Origin:
    """The origin of a guard that does not come from the shape environment."""
    stack = getattr(info, "user_stack", None)
    line = users_line(stack) if stack else None
    found = _LINE.match(comment) if line is None else None
    if found is not None:
        line = Line(whole_file_name(found["file"], int(found["line"]), found["text"]), int(found["line"]))
    return Origin() if line is None else Origin(asked=line) if line.owner else Origin(line)
