"""The compiled entries of a function, and the generated guard tree that chooses among them.

The lookup has three steps: the class of the inputs (types, dtypes, ranks, ...), by one dictionary keyed by the few
properties in which the known classes differ; then a check of all properties of the class at once, most of it in one C++
call; then the guards of its entries as a decision tree over sizes, whose text the compiler generates (``emit``).
"""

from __future__ import annotations

import enum
import math
import sys
from collections.abc import Callable, Hashable, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from symshape.runtime.checks import load_function, real
from symshape.runtime.torch_c import MODE_FUNCTIONS, MODES, autocast_state, modes_now, tensor_check

# What a property of an input is read with; "{a}" is the input. Empty: not read by itself. Position 0 is the
# kind; the last one of a tensor is the position of the same tensor among the inputs before, or None.
_TENSOR = (
    "",
    "type({a})",
    "{a}.dtype",
    "{a}.dim()",
    "{a}.device",
    "{a}.requires_grad",
    "{a}.is_contiguous()",
    "{a}.is_neg()",
    "",
)
_CONTIGUOUS, _SAME_AS = 6, 8
_CONSTANT = ("", "type({a})", "{a}")
_FLOAT = ("", "type({a})", "repr({a})")  # and numbers of NumPy
_READINGS = {"tensor": _TENSOR, "int": ("", "type({a})"), "constant": _CONSTANT, "float": _FLOAT}
Properties = tuple[Any, ...]
Find = Callable[[Sequence[Any]], Any]


class Match(Protocol):
    """See ``symshape.codegen.host.guard_tree.MatchText``."""

    @property
    def sizes(self) -> tuple[tuple[int | None, ...], ...]: ...
    @property
    def strides(self) -> tuple[tuple[int | None, ...], ...]: ...
    @property
    def lines(self) -> tuple[str, ...]: ...


def properties(value: Any) -> Properties:
    """The properties of an argument that its class of inputs compares: of a tensor all but its sizes, of an integer
    none, of any other its value. TypeError for a value that cannot be compared."""
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided:
            raise TypeError(f"{value.layout} tensor")
        return (
            "tensor",
            type(value),
            value.dtype,
            value.dim(),
            value.device,
            value.requires_grad,
            value.is_contiguous(),
            value.is_neg(),
            None,
        )
    if type(value) is int:
        return "int", int
    if type(value) is float or _is_numpy_number(value):
        return "float", type(value), repr(value)  # -0.0 is not 0.0, and nan is nan
    if value is None or isinstance(value, _COMPARABLE):
        return "constant", type(value), value
    raise TypeError(f"{type(value).__name__}")


def _is_numpy_number(value: object) -> bool:
    numpy = sys.modules.get("numpy")  # PyTorch works without it
    return numpy is not None and isinstance(value, numpy.generic)


_OF_PYTORCH = (torch.dtype, torch.device, torch.memory_format, torch.layout)
_COMPARABLE = (bool, str, complex, bytes, enum.Enum, type, *_OF_PYTORCH)


def stand_in(value: torch.Tensor) -> torch.Tensor:
    """An empty tensor that ``tensor_check`` does not distinguish from this one; the tensor itself if that is not
    possible. An entry must not keep the tensors alive that it was compiled for."""
    with torch.inference_mode(value.is_inference()):
        empty: torch.Tensor = torch.empty((0,) * value.dim(), dtype=value.dtype, device=value.device)
        if type(value) is not torch.Tensor:
            empty = empty.as_subclass(type(value))
        empty.requires_grad_(value.requires_grad)
    free = [(None,) * value.dim()]
    return empty if tensor_check([empty], free, free)(value) else value


def global_state() -> tuple[object, ...]:
    """The global state that a function depends on: gradients, inference mode, default dtype, autocast, modes, the
    default device, forward differentiation."""
    own = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype(), autocast_state()
    return *own, *modes_now()


_GLOBAL_STATE = ("is_grad_enabled()", "is_inference_mode_enabled()", "get_default_dtype()", "autocast_state()", *MODES)


@dataclass(frozen=True)
class InputClass:
    """``inputs``: the properties of each; ``state``: ``global_state()``."""

    inputs: tuple[Properties, ...]
    state: tuple[object, ...]

    @classmethod
    def of(cls, values: Sequence[Any]) -> InputClass:
        first: dict[int, int] = {}
        found = []
        for position, value in enumerate(values):
            own = properties(value)
            if own[0] == "tensor" and first.setdefault(id(value), position) != position:
                own = (*own[:-1], first[id(value)])
            found.append(own)
        return cls(tuple(found), global_state())

    def difference(self, other: InputClass, names: Sequence[str]) -> str:
        """The first property in which another class differs, as text."""
        for name, mine, theirs in zip(names, self.inputs, other.inputs):
            for reading, here, there in zip(_READINGS[str(mine[0])], mine, theirs):
                if here != there and reading:
                    return f"{reading.format(a=name)} == {there!r}"
        return next(
            (
                f"{text} == {there!r}"
                for text, here, there in zip(_GLOBAL_STATE, self.state, other.state)
                if here != there
            ),
            "",
        )


@dataclass(eq=False)
class Entry:
    """``run(inputs)`` is the compiled function; ``guards`` is what ``emit`` needs to know; ``changed``: the positions
    of tensors that it writes to, which must share no memory with others; ``used``: when it last ran."""

    kind: InputClass
    run: Callable[[Sequence[Any]], Any]
    guards: Any
    examples: list[torch.Tensor] = field(default_factory=list)
    changed: tuple[int, ...] = ()
    used: int = 0


class GuardTree:
    """The entries for calls of one form. ``find(inputs)`` is the entry for them, or None; it takes no lock."""

    def __init__(self, emit: Callable[[list[Entry]], Match]) -> None:
        self._emit = emit
        self.entries: list[Entry] = []
        self._classes: dict[InputClass, Find] = {}
        self.find: Find = _nothing

    def add(self, entry: Entry) -> None:
        self.entries.insert(0, entry)
        self._change(entry.kind)

    def remove(self, entry: Entry) -> None:
        self.entries.remove(entry)
        self._change(entry.kind)

    def _change(self, kind: InputClass) -> None:
        own = [entry for entry in self.entries if entry.kind == kind]
        if own:
            self._classes[kind] = _class_finder(kind, own, self._emit(own))
        else:
            del self._classes[kind]
        self.find = _finder(self._classes)


def _nothing(_inputs: Sequence[Any]) -> None:
    return None


def _class_finder(kind: InputClass, entries: Sequence[Entry], match: Match) -> Find:
    """The lookup among the entries of one class."""
    tensors = [i for i, own in enumerate(kind.inputs) if own[0] == "tensor"]
    # The C++ call rejects a tensor that is there twice.
    once = [i for i, p in enumerate(tensors) if kind.inputs[p][_SAME_AS] is None]
    positions, strides = [tensors[i] for i in once], [match.strides[i] for i in once]
    namespace: dict[str, object] = {
        **_FUNCTIONS,
        **{f"e{i}": entry for i, entry in enumerate(entries)},
        **{f"c{i}": own[-1] for i, own in enumerate(kind.inputs)},
        "state": kind.state,
        **{f"k{i}": own[1] for i, own in enumerate(kind.inputs) if own[0] == "float"},
    }
    tests = [f"{text} == state[{i}]" for i, text in enumerate(_GLOBAL_STATE)]
    if positions:
        examples, sizes = [entries[0].examples[i] for i in once], [match.sizes[i] for i in once]
        namespace["tensors_match"] = tensor_check(examples, sizes, strides)
        every = len(positions) == len(kind.inputs)
        tests.insert(0, f"tensors_match({'*inputs' if every else _names(positions)})")
    tests += [test for i, own in enumerate(kind.inputs) for test in _other_test(i, own)]
    tests += _layout_tests(kind, [p for p, steps in zip(positions, strides) if None in steps])
    tests += _overlap_tests(positions, {p for entry in entries for p in entry.changed})
    lines = [f"if not ({' and '.join(tests)}): return None", *match.lines]
    return _load(
        [
            *_unpack(len(kind.inputs), lines),
            "try:",
            *(f" {line}" for line in lines),
            "except ZeroDivisionError: return None",
        ],
        namespace,
    )


def _layout_tests(kind: InputClass, positions: Sequence[int]) -> list[str]:
    """Tests of the tensors whose strides follow from sizes; those that are numbers the C++ call has compared."""
    contiguous = [p for p in positions if kind.inputs[p][_CONTIGUOUS]]
    tests = [f"not a{p}.is_contiguous()" for p in positions if not kind.inputs[p][_CONTIGUOUS]]
    if contiguous:
        chosen = "inputs" if len(contiguous) == len(kind.inputs) else f"({_names(contiguous)},)"
        tests.insert(0, f"all(map(is_contiguous, {chosen}))")
    return tests


def _overlap_tests(positions: Sequence[int], changed: Set[int]) -> list[str]:
    """Tests that no input shares memory with one that an entry writes to."""
    if not changed:
        return []
    others = [p for p in positions if p not in changed]
    return [f"share_no_memory(({_names(sorted(changed))},), ({_names(others)}{',' if others else ''}))"]


def _names(positions: Sequence[int]) -> str:
    return ", ".join(f"a{p}" for p in positions)


def _other_test(position: int, own: Properties) -> list[str]:
    """Checks that the C++ call does not make."""
    name, constant = f"a{position}", f"c{position}"
    if own[0] == "tensor":
        return [] if own[_SAME_AS] is None else [f"{name} is a{own[_SAME_AS]}"]
    if own[-1] is None or isinstance(own[-1], bool):
        return [f"{name} is {own[-1]}"]
    typed = f"type({name}) is " + ("int" if own[0] == "int" else f"type({constant})")
    if own[0] == "int":
        return [typed]
    if own[0] == "float":
        return [f"type({name}) is k{position}", f"repr({name}) == {constant}"]
    return [typed, f"{name} == {constant}"]


def _unpack(count: int, lines: Sequence[str]) -> list[str]:
    """Names for the inputs that the lines use."""
    text = "\n".join(lines)
    used = [i for i in range(count) if f"a{i}" in text]
    if 2 * len(used) > count:
        return [f"{_names(range(count))}{',' if count == 1 else ''} = inputs"]
    return [f"a{i} = inputs[{i}]" for i in used]


def share_no_memory(changed: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    """Whether the tensors that are written to share no memory with each other or with other inputs."""
    written = [tensor.untyped_storage().data_ptr() for tensor in changed if tensor.numel()]
    read = {tensor.untyped_storage().data_ptr() for tensor in others if tensor.numel()}
    return len(set(written)) == len(written) and read.isdisjoint(written)


_FUNCTIONS: dict[str, object] = {
    "math": math,
    "real": real,
    "is_contiguous": torch.Tensor.is_contiguous,
    "is_grad_enabled": torch.is_grad_enabled,
    "share_no_memory": share_no_memory,
    "is_inference_mode_enabled": torch.is_inference_mode_enabled,
    "get_default_dtype": torch.get_default_dtype,
    "autocast_state": autocast_state,
    **MODE_FUNCTIONS,
}


def _finder(classes: dict[InputClass, Find]) -> Find:
    """The lookup among classes: one dictionary keyed by the properties that distinguish them."""
    if len(classes) < 2:
        return next(iter(classes.values()), _nothing)
    kinds = list(classes)
    columns = _columns(kinds)
    table: dict[Hashable, tuple[Find, ...]] = {}
    for kind, find in classes.items():
        key = tuple(_property(kind, column) for column in columns)
        table[key] = (*table.get(key, ()), find)
    texts = [
        _GLOBAL_STATE[j] if i < 0 else _READINGS[str(kinds[0].inputs[i][0])][j].format(a=f"inputs[{i}]")
        for i, j in columns
    ]
    lines = [
        "try:",
        f" found = table.get(({''.join(f'{text}, ' for text in texts)}))",
        "except (AttributeError, TypeError): return None",  # no tensor where all classes have one; not hashable
        "if found is None: return None",
        "for find in found:",
        " entry = find(inputs)",
        " if entry is not None: return entry",
        "return None",
    ]
    return _load(lines, {**_FUNCTIONS, "table": table})


def _property(kind: InputClass, column: tuple[int, int]) -> Hashable:
    position, index = column
    value: Hashable = kind.state[index] if position < 0 else kind.inputs[position][index]
    return value


def _columns(kinds: Sequence[InputClass]) -> list[tuple[int, int]]:
    """A minimal set of (position, property) that distinguishes the classes, chosen greedily; position -1: global
    state."""
    candidates = [(-1, j) for j in range(len(_GLOBAL_STATE))]
    for i, first in enumerate(kinds[0].inputs):
        alike = all(kind.inputs[i][0] == first[0] for kind in kinds)
        readings = _READINGS[str(first[0])] if alike else _READINGS["int"]
        candidates += [(i, j) for j, reading in enumerate(readings) if reading]
    chosen: list[tuple[int, int]] = []

    def groups(column: tuple[int, int]) -> int:
        return len({tuple(_property(kind, c) for c in (*chosen, column)) for kind in kinds})

    reached = 1
    while reached < len(kinds) and candidates:
        best = max(candidates, key=groups)
        if groups(best) == reached:
            break
        reached = groups(best)
        chosen.append(best)
    return chosen


def _load(lines: Sequence[str], namespace: dict[str, object]) -> Find:
    source = "def find(inputs):\n" + "".join(f" {line}\n" for line in lines)
    found: Find = load_function(source, "find", namespace, "<symshape guards>")
    return found
