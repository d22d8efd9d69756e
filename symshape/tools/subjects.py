"""What a command works on: a model of the zoo, or a function of the user's file."""

from __future__ import annotations

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
    """A model of ``symshape.tools.zoo`` at its first shape, or FILE.py:FUNCTION, whose file has ``inputs()`` too: a
    tuple of the function's arguments. OptionError for anything else."""
    if name in zoo.MODELS:
        model = zoo.MODELS[name]
        return Subject(name, model.build(), (), model.inputs(model.first_shapes[0]))
    file, _, function = name.partition(":")
    if not function or not Path(file).is_file():
        models = ", ".join(zoo.MODELS)
        raise OptionError(f"no model or file is called {name!r}", next_step=f"models: {models}; or FILE.py:FUNCTION")
    spec = importlib.util.spec_from_file_location("symshape_subject", file)
    if spec is None or spec.loader is None:
        raise OptionError(f"{file} is no Python file", next_step="give FILE.py:FUNCTION")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look for their module there
    spec.loader.exec_module(module)
    for needed in (function, "inputs"):
        if not hasattr(module, needed):
            hint = "it needs the function and `inputs()`, a tuple of its arguments"
            raise OptionError(f"{file} has no {needed}", next_step=hint)
    return Subject(name, getattr(module, function), module.inputs())
