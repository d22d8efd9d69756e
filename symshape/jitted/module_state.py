"""The state that a jitted function reads in addition to its arguments: the modules that it uses, and their tensors."""

from __future__ import annotations

import functools
import itertools
import types
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from symshape.errors import CompileError
from symshape.frontend.bridge.modules import global_hooks, tensor_tables

# Modules are looked for in attributes of objects, and in their attributes. Functions and containers do not count.
DEPTH = 2
TRANSPARENT = (types.FunctionType, types.MethodType, functools.partial, list, tuple, dict)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
# Classes of these packages hold no modules of a user, or are none of his.
_FOREIGN = frozenset({"torch", "symshape", "numpy", "builtins", "functools", "types", "typing", "collections"})


class ModuleState:
    """The modules of a function at present. Their tensors and training flags are inputs of every entry; the submodules
    and hooks are the same for all entries of one ``ModuleState``.

    ``modules``: each once. ``holder`` has them as submodules, so that their tensors can be exchanged for fake ones.
    """

    def __init__(self, fn: Any) -> None:
        found = list(_modules_at(fn))
        # The slots on the way to each module: what leads there may be exchanged, or have more in it.
        links = {(id(slot[0]), slot[1]): slot for chain, _ in found for slot in chain}
        self._slots = list(links.values())
        self._there = [value_at(slot) for slot in self._slots]  # kept alive: identities are compared
        self._containers = list(
            {
                id(table): table
                for table, _ in self._slots
                if isinstance(table, (list, dict)) and "__builtins__" not in table
            }.values()
        )
        roots = list({id(module): module for _, module in found}.values())
        self.modules = list({id(m): m for root in roots for m in root.modules()}.values())
        self.holder = _Holder(fn, roots)
        tensors = [table for module in self.modules for table in tensor_tables(module)]
        others = [getattr(module, name) for module in self.modules for name in ("_modules", *_HOOKS)]
        others += global_hooks() if self.modules else []
        self._tables = [*tensors, *others]
        # An empty container is identified by its length alone.
        self._tensors: list[Any] = [table.values() for table in tensors if table]
        self._names: list[Any] = [table for table in tensors if table]
        self._structure: list[Any] = [table.values() for table in others if table]
        self._known = self._read_structure()

    def read(self) -> tuple[Any, ...] | None:
        """The present parameters and buffers, and the training flags of all modules; None if submodules, tensors or
        hooks have been added or removed."""
        if self._read_structure() != self._known:
            return None
        flags = bytes([module.training for module in self.modules])
        return (*itertools.chain.from_iterable(self._tensors), flags)

    @functools.cached_property
    def names(self) -> list[str]:
        """The names of the tensors that ``read`` returns, in the holder."""
        prefixes: dict[int, str] = {}
        for prefix, module in self.holder.named_modules():
            prefixes.setdefault(id(module), f"{prefix}." if prefix else "")
        return [
            prefixes[id(module)] + key for module in self.modules for table in tensor_tables(module) for key in table
        ]

    def tensors(self, values: Sequence[Any]) -> list[tuple[int, str, torch.Tensor]]:
        """Position, name and value of each tensor among ``values``, which are the first inputs of an entry."""
        return [
            (position, name, value)
            for position, (name, value) in enumerate(zip(self.names, values))
            if value is not None
        ]

    @staticmethod
    def is_lazy(values: Sequence[Any]) -> bool:
        """Whether a module's first call is still to make its parameters."""
        return any(is_lazy(value) for value in values)

    def _read_structure(self) -> tuple[Any, ...]:
        chain = itertools.chain.from_iterable
        found = [*map(len, self._tables)], [*chain(self._names)], [*chain(self._structure)]
        if not self._slots:
            return found
        return (*found, [*map(id, map(value_at, self._slots))], [*map(len, self._containers)])


class _Holder(torch.nn.Module):
    """A module that has the modules of a function as submodules."""

    def __init__(self, fn: Any, roots: Sequence[torch.nn.Module]) -> None:
        super().__init__()
        self.call = [fn]  # in a list: a module would be registered twice
        for i, module in enumerate(roots):
            self.add_module(f"module{i}" if i else "self_", module)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        buffers, parameters = dict(self.named_buffers()), dict(self.named_parameters())
        result = self.call[0](*args, **kwargs)
        _require_same("buffer", buffers, dict(self.named_buffers()))
        _require_same("parameter", parameters, dict(self.named_parameters()))
        return result


def _require_same(kind: str, before: dict[str, Any], after: dict[str, Any]) -> None:
    for name, tensor in after.items():
        if before.get(name) is not tensor:
            raise CompileError(
                f"the function gives the {kind} {name.partition('.')[2]} another tensor",
                next_step="change it in place (copy_), or use symshape.compile",
            )


Slot = tuple[Any, Any]  # of a value: a cell, dict, list or tuple, and the key in it


def _modules_at(fn: Any) -> Iterator[tuple[tuple[Slot, ...], torch.nn.Module]]:
    """Modules that a function is, is a method of, closes over, names, or has as defaults: itself, in containers, as
    attributes of an object, or in functions that it calls; and the slots on the way to each."""
    seen: set[int] = set()
    waiting: list[tuple[tuple[Slot, ...], Any, int]] = [((), fn, DEPTH)]
    while waiting:
        chain, item, depth = waiting.pop(0)
        if isinstance(item, torch.nn.Module):
            yield chain, item
        elif id(item) not in seen:
            seen.add(id(item))
            below = depth if isinstance(item, TRANSPARENT) else depth - 1
            waiting += [((*chain, part), value_at(part), below) for part in (parts(item) if below >= 0 else ())]


def parts(item: Any) -> list[Slot]:
    """Slots of the values that an object refers to."""
    if isinstance(item, functools.partial):
        called = (item.func, *item.args)
        return [*((called, i) for i in range(len(called))), *((item.keywords, key) for key in item.keywords)]
    if isinstance(item, types.MethodType):
        return [((item.__func__, item.__self__), i) for i in range(2)]
    if isinstance(item, types.FunctionType):
        if is_foreign(item.__module__):
            return []
        defaults, named = item.__defaults__ or (), item.__kwdefaults__ or {}
        return [*_names(item), *((defaults, i) for i in range(len(defaults))), *((named, key) for key in named)]
    if isinstance(item, (list, tuple)):
        return [(item, i) for i in range(len(item))]
    if isinstance(item, dict):
        return [(item, key) for key in item]
    if isinstance(item, (type, types.ModuleType)) or is_foreign(type(item).__module__):
        return []
    attributes = getattr(item, "__dict__", {})
    return [(attributes, key) for key in attributes]


def _names(function: types.FunctionType) -> Iterator[Slot]:
    """The slots of a function's free names."""
    yield from ((cell, None) for cell in function.__closure__ or ())
    yield from (
        (function.__globals__, name) for name in _global_names(function.__code__) if name in function.__globals__
    )


def _global_names(code: types.CodeType) -> list[str]:
    inner = [name for part in code.co_consts if isinstance(part, types.CodeType) for name in _global_names(part)]
    return list(dict.fromkeys([*code.co_names, *inner]))


def value_at(slot: Slot) -> Any:
    """The value of a slot; None if it is empty now."""
    table, key = slot
    try:
        return table.cell_contents if isinstance(table, types.CellType) else table[key]
    except (ValueError, LookupError):
        return None


def is_foreign(module: str | None) -> bool:
    """Whether a Python module cannot hold modules of users."""
    return (module or "").split(".")[0] in _FOREIGN
