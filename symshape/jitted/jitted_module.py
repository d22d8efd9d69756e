"""The module that ``symshape.jit`` returns for a module, with the interface of ``torch.compile``'s."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from symshape.jitted.jitted_function import EntryReport, JitFunction


class JitModule(torch.nn.Module):
    """A module whose call is compiled. Parameters, buffers, the training flag and every other attribute are those of
    the original module (``_orig_mod``), for reads and writes.

    As in ``torch._dynamo.OptimizedModule``, the original is its only child: names in ``state_dict()`` start with
    ``_orig_mod.``. Hooks of the original are compiled; hooks of this module run around the compiled call.
    """

    _OWN = frozenset({"_orig_mod", "forward", "_jit"})

    def __init__(
        self, module: torch.nn.Module, dynamic_shapes: Any, options: Mapping[str, Any] | None, location: str
    ) -> None:
        super().__init__()
        self._orig_mod = module
        self._jit = JitFunction(module, dynamic_shapes, options, location)
        self.forward = self._jit

    @property
    def entries(self) -> list[EntryReport]:
        """See ``JitFunction.entries``."""
        return self._jit.entries

    @property
    def training(self) -> bool:  # type: ignore[override]
        return self._orig_mod.training

    @training.setter
    def training(self, value: bool) -> None:
        if "_modules" in self.__dict__ and "_orig_mod" in self._modules:  # not while it is being made
            self._orig_mod.training = value

    def __getattr__(self, name: str) -> Any:
        if name in ("_orig_mod", "_modules"):
            return super().__getattr__(name)
        return getattr(self._orig_mod, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._OWN or hasattr(type(self), name) or "_orig_mod" not in self.__dict__.get("_modules", ()):
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        if name in self._OWN or hasattr(type(self), name):
            super().__delattr__(name)
        else:
            delattr(self._orig_mod, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._orig_mod)})

    def __bool__(self) -> bool:
        return bool(self._orig_mod)

    def __len__(self) -> int:
        return len(self._orig_mod)  # type: ignore[arg-type]

    def __getitem__(self, key: Any) -> Any:
        return self._orig_mod[key]  # type: ignore[index]

    def __iter__(self) -> Any:
        return iter(self._orig_mod)  # type: ignore[call-overload]

    def __reduce__(self) -> Any:
        """Compiled code is neither copied nor pickled: the copy compiles anew."""
        jit = self._jit
        return JitModule, (self._orig_mod, jit.dynamic_shapes, jit.given_options, jit.location)


def jitted(fn: Any, dynamic_shapes: Any, options: Mapping[str, Any] | None, location: str) -> Any:
    """The function or module that ``symshape.jit`` returns for ``fn``."""
    made = JitModule if isinstance(fn, torch.nn.Module) else JitFunction
    return made(fn, dynamic_shapes, options, location)
