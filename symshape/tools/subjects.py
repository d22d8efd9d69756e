"""Looks up the program that a command works on: a model of the zoo, or a function in a file or module of the user."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.utils._pytree as pytree

from symshape.errors import OptionError
from symshape.tools import zoo


@dataclass(frozen=True)
class Subject:
    """A program with its arguments: the call ``fn(*inputs, **keywords)``."""

    name: str
    fn: Any
    inputs: Sequence[Any] = ()
    keywords: dict[str, Any] = field(default_factory=dict)


def subject(name: str) -> Subject:
    """The model ``name`` of ``symshape.tools.zoo`` at its first shape, or the function of FILE.py:FUNCTION or
    MODULE:FUNCTION. The file or module must also define ``inputs()``, which returns a tuple of the function's
    arguments. OptionError for any other name."""
    return find_subject(name)()


def find_subject(name: str) -> Callable[[], Subject]:
    """Like `subject`, but returns a function that builds the model; only the name is checked now."""
    if name in zoo.MODELS:
        return lambda: _of_zoo(name)
    found, make = _function(name)
    return lambda: Subject(name, found, _arguments(name, make))


def _arguments(name: str, make: Callable[..., Any], size: Sequence[int] = ()) -> Sequence[Any]:
    """The result of ``inputs(*size)``. OptionError if it takes other numbers, and unless it returns a tuple or list; a
    tensor would unpack into its rows."""
    signature = inspect.signature(make)
    try:
        signature.bind(*size)
    except TypeError:
        given = f"the size {'x'.join(map(str, size))}" if size else "no size"
        hint = "`symshape sweep` calls inputs(rows, columns) with each size; other commands call inputs()"
        raise OptionError(f"inputs{signature} of {name} is called with {given}", next_step=hint) from None
    given = make(*size)
    if not isinstance(given, (tuple, list)):
        hint = "it returns a tuple of the function's arguments: (x,)"
        raise OptionError(f"inputs() of {name} returns a {type(given).__name__}", next_step=hint)
    return given


def _of_zoo(name: str) -> Subject:
    model = zoo.MODELS[name]
    return Subject(name, model.build(), (), model.inputs(model.first_shapes[0]))


def _function(name: str) -> tuple[Any, Callable[..., Any]]:
    """The function of FILE.py:FUNCTION or MODULE:FUNCTION, and ``inputs`` beside it. OptionError if one is missing."""
    file, _, function = name.partition(":")
    module = _module(file) if function else None
    if module is None:
        hint = f"models: {', '.join(zoo.MODELS)}; or FILE.py:FUNCTION, or MODULE:FUNCTION"
        raise OptionError(f"no model, file or module is called {name!r}", next_step=hint)
    hint = "it needs the function and `inputs`, which returns a tuple of its arguments"
    for needed in (function, "inputs"):
        if not hasattr(module, needed):
            raise OptionError(f"{file} has no {needed}", next_step=hint)
        if not callable(getattr(module, needed)):
            raise OptionError(f"{needed} of {file} cannot be called", next_step=hint)
    return getattr(module, function), module.inputs


@dataclass(frozen=True)
class Sized:
    """A program that runs at any size. ``make(size)`` returns its arguments and keywords; ``sizes`` are the default
    sizes to measure."""

    name: str
    fn: Any
    make: Callable[[tuple[int, ...]], tuple[Sequence[Any], dict[str, Any]]]
    sizes: Sequence[tuple[int, ...]] = ()

    def on(self, device: str) -> Any:
        """The function; a module is moved to ``device``."""
        return self.fn.to(device) if isinstance(self.fn, torch.nn.Module) else self.fn

    def inputs(self, size: tuple[int, ...], device: str) -> tuple[Sequence[Any], dict[str, Any]]:
        """Arguments and keywords for ``size``, on ``device``."""
        return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), self.make(size))


def sized(name: str) -> Sized:
    """A model of ``symshape.tools.zoo``, or FILE.py:FUNCTION or MODULE:FUNCTION with a function ``inputs(*sizes)``
    beside it. OptionError for any other name."""
    if name in zoo.MODELS:
        model = zoo.MODELS[name]

        def keywords(size: tuple[int, ...]) -> tuple[Sequence[Any], dict[str, Any]]:
            if len(size) != len(model.axes):
                shown = "x".join(map(str, size))
                raise OptionError(
                    f"{name} has no size {shown}", next_step=f"give {'x'.join(axis.upper() for axis in model.axes)}"
                )
            return (), model.inputs(size)

        sizes = tuple(dict.fromkeys((model.first_shapes[0], *model.large_shapes)))
        return Sized(name, model.build(), keywords, sizes)
    found, make = _function(name)
    return Sized(name, found, lambda size: (_arguments(name, make, size), {}))


def _module(file: str) -> Any:
    """The module of a file, or of a dotted name that can be imported; None if there is neither."""
    if not Path(file).is_file():
        if not all(part.isidentifier() for part in file.split(".")):
            return None
        try:
            return importlib.import_module(file)
        except ModuleNotFoundError as error:
            if error.name is not None and f"{file}.".startswith(f"{error.name}."):
                return None
            raise  # the module exists, but one of its own imports is missing
    spec = importlib.util.spec_from_file_location("symshape_subject", file)
    if spec is None or spec.loader is None:
        raise OptionError(f"{file} is no Python file", next_step="give FILE.py:FUNCTION")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up their module here
    spec.loader.exec_module(module)
    return module
