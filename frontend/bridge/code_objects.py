"""Gives functions and layers of PyTorch code objects of their own, since Dynamo counts graphs by code object.

For these, Dynamo compiles one wrapper function of PyTorch's, whose code object they all share: past the recompile
limit, the ninth function or ``nn.Sequential`` would run in eager mode. Here each function, and each structure of
layers, has its own code object. Layers of one structure share it, and so their graphs. (Copies of a compiled module
keep PyTorch's code object.)
"""

from __future__ import annotations

import functools
from types import CodeType
from typing import Any

import torch
from torch._dynamo import external_utils
from torch.nn.parameter import is_lazy


def give_code_object(fn: Any, compiled: Any) -> None:
    """Gives Dynamo's wrapper of ``fn``, a function or a module, its own code object. ``compiled``: the result of Dynamo
    for ``fn``."""
    around = getattr(compiled, "forward", compiled) if isinstance(compiled, torch.nn.Module) else compiled
    frame = getattr(around, "_torchdynamo_orig_callable", None)
    code = getattr(frame, "__code__", None)
    if frame is not None and code is _shared():
        frame.__code__ = _copied(_named(fn))


@functools.cache
def _shared() -> CodeType:
    """The code of PyTorch's frame around a function."""
    code: CodeType = external_utils.wrap_inline(len).__code__
    return code


@functools.cache
def _copied(_name: tuple[str, ...]) -> CodeType:
    return _shared().replace()


def _named(fn: Any) -> tuple[str, ...]:
    """The key of a code object: a function's name, or a module's layers."""
    if isinstance(fn, torch.nn.Module):
        return tuple(map(_layer, fn.modules()))
    while isinstance(fn, functools.partial):
        fn = fn.func
    return (_name(fn) or _name(type(fn)),)


def _layer(module: torch.nn.Module) -> str:
    """The class of a layer, its settings if the class is PyTorch's, and the shapes of its parameters: other ones need
    another graph."""
    name = _name(type(module))
    settings = module.extra_repr() if name.startswith("torch.") else ""
    shapes = ("lazy" if is_lazy(p) else str(tuple(p.shape)) for p in module.parameters(recurse=False))
    return f"{name}({settings}) {' '.join(shapes)}"


def _name(of: Any) -> str:
    name = getattr(of, "__qualname__", "")
    return f"{getattr(of, '__module__', '')}.{name}" if name else ""
