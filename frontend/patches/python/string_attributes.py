"""String attributes of PyTorch's own classes and functions: ``type(weight).__module__.startswith("torchao.")``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch._dynamo.symbolic_convert import InstructionTranslatorBase
from torch._dynamo.variables import ConstantVariable, TorchInGraphFunctionVariable
from torch._dynamo.variables.misc import GetAttrVariable

from symshape.frontend.patches.patch import Changes


def names_are_strings(changes: Changes) -> None:
    """Makes these attributes constants. Libraries ask for a class's module; Dynamo guards the class."""
    changes.wrap(InstructionTranslatorBase, "_load_attr", _loading)


@functools.cache
def _loading(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps ``_load_attr``, whose result for a class callable in the graph (``torch.nn.Parameter``) has no methods."""

    @functools.wraps(original)
    def _load_attr(self: Any, attr: Any) -> None:
        original(self, attr)
        found = self.stack[-1]
        if isinstance(found, GetAttrVariable) and isinstance(found.obj, TorchInGraphFunctionVariable):
            text = getattr(found.obj.value, found.name)
            if type(text) is str:
                self.stack[-1] = ConstantVariable.create(text)

    return _load_attr
