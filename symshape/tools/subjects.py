"""What a command works on: a model of the zoo, or a function of the user's file or module."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from symshape.errors import OptionError
from symshape.tools import zoo


@dataclass(frozen=True)
class Subject:
    """``fn(*inputs, **keywords)``"""

    name: str
    fn: Any
    inputs: Sequence[Any] = ()
    keywords: dict[str, Any] = field(default_factory=dict)


def subject(name: str) -> Subject:
    """A model of ``symshape.tools.zoo`` at its first shape, or FILE.py:FUNCTION or MODULE:FUNCTION with ``inputs()``
    beside it: a tuple of the function's arguments. OptionError for anything else."""
    if name in zoo.MODELS:
        model = zoo.MODELS[name]
        return Subject(name, model.build(), (), model.inputs(model.first_shapes[0]))
    file, _, function = name.partition(":")
    module = _module(file) if function else None
    if module is None:
        hint = f"models: {', '.join(zoo.MODELS)}; or FILE.py:FUNCTION, or MODULE:FUNCTION"
        raise OptionError(f"no model, file or module is called {name!r}", next_step=hint)
    for needed in (function, "inputs"):
        if not hasattr(module, needed):
            hint = "it needs the function and `inputs()`, a tuple of its arguments"
            raise OptionError(f"{file} has no {needed}", next_step=hint)
    return Subject(name, getattr(module, function), module.inputs())


def _module(file: str) -> Any:
    """A file, or what can be imported by a dotted name; None if there is neither."""
    if not Path(file).is_file():
        if not all(part.isidentifier() for part in file.split(".")):
            return None
        try:
            return importlib.import_module(file)
        except ModuleNotFoundError as error:
            if error.name is not None and f"{file}.".startswith(f"{error.name}."):
                return None
            raise  # of what the module imports
    spec = importlib.util.spec_from_file_location("symshape_subject", file)
    if spec is None or spec.loader is None:
        raise OptionError(f"{file} is no Python file", next_step="give FILE.py:FUNCTION")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look for their module there
    spec.loader.exec_module(module)
    return module
