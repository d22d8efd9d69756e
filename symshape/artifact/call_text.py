"""Calls as text: the form of an opaque call in a graph, in IR and in the cache.

It is JSON: the function, its arguments with ``{"tensor": i}`` and ``{"size": j}`` for operands, the autocast settings,
and of each result the element type and where its sizes come from. The text is complete, so that a compiled graph can be
stored on disk. `frontend/opaque_calls/write_calls.py` writes it; here it is parsed and run.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import importlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree


def function_of(name: str) -> Callable[..., Any]:
    """The callee of a call's text: "method NAME", "op NAMESPACE.NAME.OVERLOAD", or a module and a name in it. Looked up
    each time: an operator that is defined anew is another one, and PyTorch uses the memory of the old one again."""
    where, _, what = name.partition(" ")
    if where == "method":
        return lambda x, *args, **kwargs: getattr(x, what)(*args, **kwargs)
    root: Any = torch.ops if where == "op" else module_named(where)
    found: Callable[..., Any] = functools.reduce(getattr, what.split("."), root)
    return found


@functools.cache
def module_named(name: str) -> Any:
    """A module, or an object of PyTorch's C++ part with this name; None if there is none."""
    try:
        return importlib.import_module(name)
    except ImportError:
        root, *parts = name.split(".")
        found: Any = sys.modules.get(root)
        for part in parts:
            found = getattr(found, part, None)
        return found


def decode(value: Any, tensors: Sequence[Any], sizes: Sequence[Any]) -> Any:
    """An argument from its JSON, with operands inserted."""
    if not isinstance(value, dict):
        return value
    ((kind, held), *_) = value.items()
    if kind == "tensor":  # most are
        return tensors[held]
    if kind == "dict":
        return {decode(k, tensors, sizes): decode(v, tensors, sizes) for k, v in held}
    if kind in ("list", "tuple", "slice"):
        return getattr(builtins, kind)(*_spread(kind, [decode(v, tensors, sizes) for v in held]))
    plain: dict[str, Callable[[], Any]] = {
        "size": lambda: sizes[held],
        "device": lambda: torch.device(held),
        "torch": lambda: getattr(torch, held),
        "ellipsis": lambda: Ellipsis,
    }
    return plain[kind]()


def _spread(kind: str, items: list[Any]) -> list[Any]:
    return items if kind == "slice" else [items]


@functools.lru_cache(maxsize=4096)
def parse(call: str) -> Any:
    return json.loads(call)


def run(call: str, tensors: Sequence[torch.Tensor], sizes: Sequence[int]) -> list[torch.Tensor]:
    """Calls the function; its results as they are."""
    parsed = parse(call)
    args, kwargs = (decode(parsed[part], tensors, sizes) for part in ("args", "kwargs"))
    with under_autocast(parsed["autocast"]):
        result = function_of(parsed["function"])(*args, **kwargs)
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]


_DEVICES = ("cpu", "cuda")


def autocast_state() -> list[list[Any]]:
    """The autocast that is in force, as plain data: [device, whether it is enabled, element type] of each device."""
    return [
        [device, torch.is_autocast_enabled(device), str(torch.get_autocast_dtype(device)).removeprefix("torch.")]
        for device in _DEVICES
    ]


@contextlib.contextmanager
def under_autocast(state: Sequence[Sequence[Any]]) -> Iterator[None]:
    """While entered, this `autocast_state` is in force: compiled code itself runs without autocast."""
    with contextlib.ExitStack() as stack:
        for device, enabled, dtype in state:
            if enabled != torch.is_autocast_enabled(device) or enabled:
                stack.enter_context(torch.autocast(device, getattr(torch, dtype), enabled, cache_enabled=False))
        yield


def made_from(call: str, tensors: Sequence[torch.Tensor], sizes: Sequence[Any], fresh: Any) -> list[torch.Tensor]:
    """Empty results with the sizes in the text; ``fresh()`` creates an unbacked size."""
    parsed = parse(call)
    device = device_of(parsed["kwargs"]["dict"], tensors)
    return [
        torch.empty([result_size(o, tensors, sizes, fresh) for o in dims], dtype=getattr(torch, dtype), device=device)
        for dtype, dims in parsed["results"]
    ]


def device_of(kwargs: Sequence[Any], tensors: Sequence[torch.Tensor]) -> torch.device:
    """The device in ``kwargs``, else that of the operands; CPU tensors without dims do not count."""
    asked = next((value for key, value in kwargs if key == "device" and value is not None), None)
    if asked is not None:
        return torch.device(asked["device"] if isinstance(asked, dict) else asked)
    ordered = sorted(tensors, key=lambda t: t.dim() == 0 and t.device.type == "cpu")
    return ordered[0].device if ordered else torch.get_default_device()


def result_size(origin: Any, tensors: Sequence[torch.Tensor], sizes: Sequence[Any], fresh: Any) -> Any:
    """One size of a result: a constant, the size of an operand's dim, a size among the operands, or a new one."""
    if isinstance(origin, int):
        return origin
    kind, *where = origin
    known = {"tensor": lambda i, d: tensors[i].size(d), "size": lambda j: sizes[j], "fresh": fresh}
    return known[kind](*where)
