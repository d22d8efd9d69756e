"""What a jitted function reads besides its arguments: the modules that it is, closes over or names; their tensors."""

from __future__ import annotations

import functools
import itertools
import types
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from symshape.errors import CompileError

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
# Classes of these packages hold no modules of a user, or are none of his.
_FOREIGN = frozenset({"torch", "symshape", "numpy", "builtins", "functools", "types", "typing", "collections"})


class ModuleState:
    """The modules of a function as they are now. Their tensors and training flags are inputs of every entry; what
    submodules there are, and which hooks, is the same for all entries that are made with one ``ModuleState``.

    ``modules``: each once. ``holder`` has them as its own, so that their tensors can be exchanged for fake ones.
    """

    def __init__(self, fn: Any) -> None:
        self._names = list(_names_of_modules(fn))
        roots = list({id(found): found for found in _reachable(fn)}.values())
        self.modules = list({id(m): m for root in roots for m in root.modules()}.values())
        self.holder = _Holder(fn, roots)
        self._tensors: list[Any] = [table.values() for module in self.modules
                                    for table in (module._parameters, module._buffers)]  # fmt: skip
        self._structure: list[Any] = [getattr(module, name).values() for module in self.modules
                                      for name in ("_modules", *_HOOKS)]  # fmt: skip
        self._known = self._read_structure()

    def read(self) -> tuple[Any, ...] | None:
        """Parameters and buffers as they are now, and the training flags of all modules; None when there are other
        submodules, tensors or hooks than there were."""
        if self._read_structure() != self._known:
            return None
        flags = bytes([module.training for module in self.modules])
        return (*itertools.chain.from_iterable(self._tensors), flags)

    @functools.cached_property
    def names(self) -> list[str]:
        """Of the tensors that ``read`` returns, in the holder."""
        prefixes: dict[int, str] = {}
        for prefix, module in self.holder.named_modules():
            prefixes.setdefault(id(module), f"{prefix}." if prefix else "")
        return [prefixes[id(module)] + key for module in self.modules
                for table in (module._parameters, module._buffers) for key in table]  # fmt: skip

    def tensors(self, values: Sequence[Any]) -> list[tuple[int, str, torch.Tensor]]:
        """Position, name and value of each tensor among ``values``, which are the first inputs of an entry; a tensor
        with several names once."""
        found: dict[int, tuple[int, str, torch.Tensor]] = {}
        for position, (name, value) in enumerate(zip(self.names, values)):
            if value is not None:
                found.setdefault(id(value), (position, name, value))
        return list(found.values())

    def _read_structure(self) -> tuple[Any, ...]:
        named = [table.get(name) if isinstance(table, dict) else table.cell_contents for table, name in self._names]
        return (*itertools.chain.from_iterable(self._structure), *map(len, self._structure), *map(len, self._tensors),
                *map(id, named))  # fmt: skip


class _Holder(torch.nn.Module):
    """Has the modules of a function as its own."""

    def __init__(self, fn: Any, roots: Sequence[torch.nn.Module]) -> None:
        super().__init__()
        self.call = [fn]  # in a list: a module would be registered twice
        for i, module in enumerate(roots):
            self.add_module(f"module{i}" if i else "self_", module)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        tables = dict(self.named_buffers())
        result = self.call[0](*args, **kwargs)
        for name, tensor in self.named_buffers():
            if tables.get(name) is not tensor:
                raise CompileError(f"the function gives the buffer {name.partition('.')[2]} another tensor",
                                   next_step="change it in place (copy_), or use symshape.compile")  # fmt: skip
        return result


def _reachable(value: Any) -> Iterator[torch.nn.Module]:
    """Modules that a function is, is a method of, closes over, names, or has as defaults: itself, in containers, as
    attributes of an object, or in functions that it calls."""
    seen: set[int] = set()
    waiting = [(value, True)]
    while waiting:
        item, look_inside = waiting.pop(0)
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, torch.nn.Module):
            yield item
        else:
            waiting += _parts(item, look_inside)


def _parts(item: Any, look_inside: bool) -> list[tuple[Any, bool]]:
    """Values that an object refers to, each with whether its own attributes are to be looked at."""
    if isinstance(item, functools.partial):
        return [(part, look_inside) for part in (item.func, *item.args, *item.keywords.values())]
    if isinstance(item, types.MethodType):
        return [(item.__func__, look_inside), (item.__self__, look_inside)]
    if isinstance(item, types.FunctionType):
        if _package(item.__module__) in _FOREIGN:
            return []
        named = [table.get(name) if isinstance(table, dict) else table.cell_contents for table, name in _names(item)]
        defaults = [*(item.__defaults__ or ()), *(item.__kwdefaults__ or {}).values()]
        return [(part, look_inside) for part in (*named, *defaults)]
    if isinstance(item, (list, tuple, set, frozenset)):
        return [(part, False) for part in item]
    if isinstance(item, dict):
        return [(part, False) for part in item.values()]
    is_object = not isinstance(item, (type, types.ModuleType)) and _package(type(item).__module__) not in _FOREIGN
    if look_inside and is_object:
        return [(part, False) for part in getattr(item, "__dict__", {}).values()]
    return []


def _names(function: Any) -> Iterator[tuple[Any, str]]:
    """Where a function's free names are kept, as far as they are set: (globals, name) or (cell, name)."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            cell.cell_contents  # noqa: B018
        except ValueError:  # a name that is assigned later
            continue
        yield cell, name
    for name in _global_names(function.__code__):
        if name in function.__globals__:
            yield function.__globals__, name


def _global_names(code: types.CodeType) -> list[str]:
    inner = [name for part in code.co_consts if isinstance(part, types.CodeType) for name in _global_names(part)]
    return list(dict.fromkeys([*code.co_names, *inner]))


def _names_of_modules(fn: Any) -> Iterator[tuple[Any, str]]:
    """The names of a function that stand for modules: somebody may let one stand for another."""
    function = getattr(fn, "__func__", fn)
    for table, name in _names(function) if isinstance(function, types.FunctionType) else ():
        value = table.get(name) if isinstance(table, dict) else table.cell_contents
        if isinstance(value, torch.nn.Module):
            yield table, name


def _package(module: str | None) -> str:
    return (module or "").split(".")[0]
