"""``symshape::whole``: a call that cannot be traced with sizes that nobody knows, as one operator.

Its first argument is the call as text (JSON): the function, its arguments with ``{"tensor": i}`` and ``{"size": j}`` in
the places of operands, the autocast in force, and of each result the element type and where its sizes come from. The
text says all, so that a compiled graph can be kept on disk. Results are new contiguous tensors. Gradients are one
operator too, which runs the function again and differentiates it.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import importlib
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree

from symshape.runtime.torch_c import differentiated, first_seen

# Where functions that Dynamo puts into a graph are found by name.
_MODULES = (
    "torch",
    "torch.nn.functional",
    "torch.linalg",
    "torch.fft",
    "torch.special",
    "torch._C._nn",
    "torch._C._linalg",
    "torch._C._fft",
    "torch._C._special",
    "torch._C._VariableFunctions",
    "torch.functional",
    "torch.masked",
    "torch.masked._ops",
    "_operator",
    "torch._lowrank",
    "math",
    "torch._refs",
    "torch._prims_common",
)


class NotWhole(Exception):
    """A call that cannot be one operator, and why."""


# --- calls as text ---------------------------------------------------------------------------------------------------


def name_of(function: Any) -> str:
    """NotWhole for a function that is no public one of a module."""
    if isinstance(function, str):
        return f"method {function}"
    if isinstance(function, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return f"op {function}"
    name = getattr(function, "__name__", "")
    for module in (getattr(function, "__module__", None), *_MODULES):
        if module and getattr(_module(module), name, None) is function:
            return f"{module} {name}"
    raise NotWhole(f"{function} has no name")


@functools.cache
def _module(name: str) -> Any:
    path = name.split(".")
    if path[:2] == ["torch", "_C"]:
        found: Any = torch
        for part in path[1:]:
            found = getattr(found, part, None)
        return found
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def function_of(name: str) -> Callable[..., Any]:
    where, _, what = name.partition(" ")
    if where == "method":
        return lambda x, *args, **kwargs: getattr(x, what)(*args, **kwargs)
    root: Any = torch.ops if where == "op" else _module(where)
    found: Callable[..., Any] = functools.reduce(getattr, what.split("."), root)
    return found


def text_of(op: Any, args: Sequence[Any], tensors: list[Any], why: str) -> dict[str, Any]:
    """A call of an operator as text, but for its results; tensors among the arguments are appended to the list.
    ``why``: what the report says of it."""
    found = encode(list(args), tensors, [], lambda v: isinstance(v, torch.Tensor), lambda v: False)
    return {
        "function": f"op {op}",
        "args": found,
        "kwargs": {"dict": []},
        "shares": False,
        "random": False,
        "autocast": autocast_state(),
        "why": why,
    }


_NAMED = {torch.dtype: "dtype", torch.memory_format: "memory_format", torch.layout: "layout"}


def encode(value: Any, tensors: list[Any], sizes: list[Any], is_tensor: Any, is_size: Any) -> Any:
    """An argument as JSON; operands are appended to the lists. NotWhole for what is no plain data."""

    def inner(v: Any) -> Any:
        return encode(v, tensors, sizes, is_tensor, is_size)

    if is_tensor(value):
        tensors.append(value)
        return {"tensor": len(tensors) - 1}
    if is_size(value):
        sizes.append(value)
        return {"size": len(sizes) - 1}
    if isinstance(value, torch.SymFloat):
        return _number(value)
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, (list, tuple)):
        return {"list" if isinstance(value, list) else "tuple": [inner(v) for v in value]}
    if isinstance(value, dict):
        return {"dict": [[inner(k), inner(v)] for k, v in value.items()]}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, slice):
        return {"slice": [inner(v) for v in (value.start, value.stop, value.step)]}
    for kind, name in _NAMED.items():
        if isinstance(value, kind):
            return {"torch": str(value).removeprefix("torch."), "kind": name}
    if value is Ellipsis:
        return {"ellipsis": True}
    raise NotWhole(f"an argument of type {type(value).__name__}")


def _number(value: torch.SymFloat) -> float:
    """Of an argument that is a number: what it is at this call, and a graph of its own for another."""
    if first_seen(value) is None:
        raise NotWhole("a number that only data tells")
    return float(value)


def decode(value: Any, tensors: Sequence[Any], sizes: Sequence[Any]) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, held), *_) = value.items()
    if kind == "dict":
        return {decode(k, tensors, sizes): decode(v, tensors, sizes) for k, v in held}
    if kind in ("list", "tuple", "slice"):
        return getattr(builtins, kind)(*_spread(kind, [decode(v, tensors, sizes) for v in held]))
    plain: dict[str, Callable[[], Any]] = {
        "tensor": lambda: tensors[held],
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
    """The function's results as they are."""
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
    """While entered, this `autocast_state` is in force: compiled code runs without any."""
    with contextlib.ExitStack() as stack:
        for device, enabled, dtype in state:
            if enabled != torch.is_autocast_enabled(device) or enabled:
                stack.enter_context(torch.autocast(device, getattr(torch, dtype), enabled, cache_enabled=False))
        yield


# --- the operators ---------------------------------------------------------------------------------------------------

_library: Any = torch.library.Library
LIBRARY = _library("symshape", "FRAGMENT")
LIBRARY.define("whole(str call, Tensor[] tensors, SymInt[] sizes) -> Tensor[]")
LIBRARY.define("whole_gradient(str call, Tensor[] tensors, SymInt[] sizes, Tensor?[] gradients) -> Tensor[]")


def call_whole(call: str, tensors: Sequence[torch.Tensor], sizes: Sequence[int]) -> list[torch.Tensor]:
    taken = {t.untyped_storage().data_ptr() for t in tensors}
    found = []
    results = run(call, tensors, sizes)
    _check_sizes(call, results, tensors, sizes)
    for result in results:
        own = result.contiguous()
        own = own.clone() if own.untyped_storage().data_ptr() in taken else own
        taken.add(own.untyped_storage().data_ptr())
        found.append(own.detach().view(own.shape))  # whose strides of dims of 1 are those that were promised
    return found


def _check_sizes(
    call: str, results: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor], sizes: Sequence[int]
) -> None:
    """RuntimeError where a size is not what it was taken for: compiled code would read past the end."""
    parsed = parse(call)
    for result, (_, origins) in zip(results, parsed["results"], strict=True):
        wanted = [_size(origin, tensors, sizes, lambda: None) for origin in origins]
        if any(size not in (None, actual) for size, actual in zip(wanted, result.shape, strict=True)):
            raise RuntimeError(f"{parsed['function']} returned {list(result.shape)} instead of {wanted}")


def gradient_of_whole(
    call: str, tensors: Sequence[torch.Tensor], sizes: Sequence[int], gradients: Sequence[torch.Tensor | None]
) -> list[torch.Tensor]:
    with differentiated():
        leaves = [t.detach().requires_grad_(t.is_floating_point() or t.is_complex()) for t in tensors]
        results = run(call, leaves, sizes)
        pairs = [(r, g) for r, g in zip(results, gradients, strict=True) if g is not None and r.requires_grad]
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        found = iter(
            torch.autograd.grad([r for r, _ in pairs], wanted, [g for _, g in pairs], allow_unused=True)
            if pairs and wanted
            else [None] * len(wanted)
        )
    made = [next(found) if leaf.requires_grad else None for leaf in leaves]
    return [torch.zeros_like(t) if g is None else g.contiguous().clone() for g, t in zip(made, tensors)]


def _fake(call: str, tensors: Sequence[torch.Tensor], sizes: Sequence[Any]) -> list[torch.Tensor]:
    context = torch.library.get_ctx()
    return made_from(call, tensors, sizes, context.new_dynamic_size)


def made_from(call: str, tensors: Sequence[torch.Tensor], sizes: Sequence[Any], fresh: Any) -> list[torch.Tensor]:
    """Results of the sizes that the text says; ``fresh()`` makes a size that nobody knows."""
    parsed = parse(call)
    device = device_of(parsed["kwargs"]["dict"], tensors)
    return [
        torch.empty([_size(o, tensors, sizes, fresh) for o in origins], dtype=getattr(torch, dtype), device=device)
        for dtype, origins in parsed["results"]
    ]


def device_of(kwargs: Sequence[Any], tensors: Sequence[torch.Tensor]) -> torch.device:
    """The one that is asked for, else that of the operands, where tensors without dims on a CPU do not count."""
    asked = next((value for key, value in kwargs if key == "device" and value is not None), None)
    if asked is not None:
        return torch.device(asked["device"] if isinstance(asked, dict) else asked)
    ordered = sorted(tensors, key=lambda t: t.dim() == 0 and t.device.type == "cpu")
    return ordered[0].device if ordered else torch.get_default_device()


def _size(origin: Any, tensors: Sequence[torch.Tensor], sizes: Sequence[Any], fresh: Any) -> Any:
    if isinstance(origin, int):
        return origin
    kind, *where = origin
    known = {"tensor": lambda i, d: tensors[i].size(d), "size": lambda j: sizes[j], "fresh": fresh}
    return known[kind](*where)


def sizes_of_gradient(
    call: str, tensors: Sequence[torch.Tensor], sizes: Sequence[Any], gradients: Any
) -> list[torch.Tensor]:
    return [t.new_empty(t.size()) for t in tensors]


def remember(ctx: Any, inputs: Any, output: Any) -> None:
    call, tensors, sizes = inputs
    ctx.call, ctx.sizes = call, sizes
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, gradients: Any) -> Any:
    tensors = list(ctx.saved_tensors)
    found = torch.ops.symshape.whole_gradient(ctx.call, tensors, ctx.sizes, list(gradients))
    return without_integers(tensors, ctx.sizes, found)


def without_integers(tensors: Sequence[torch.Tensor], sizes: Sequence[Any], found: Sequence[torch.Tensor]) -> Any:
    """The gradients of ``call, tensors, sizes``."""
    of_sizes: Any = None if sizes else []  # an empty list is taken for one of tensors
    return None, [g if t.is_floating_point() or t.is_complex() else None for g, t in zip(found, tensors)], of_sizes


LIBRARY.impl("whole", call_whole, "CompositeExplicitAutograd")
LIBRARY.impl("whole_gradient", gradient_of_whole, "CompositeExplicitAutograd")
torch.library.register_fake("symshape::whole", _fake, lib=LIBRARY)
torch.library.register_fake("symshape::whole_gradient", sizes_of_gradient, lib=LIBRARY)
torch.library.register_autograd("symshape::whole", _backward, setup_context=remember, lib=LIBRARY)
whole: Any = torch.ops.symshape.whole.default
