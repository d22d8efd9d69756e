"""The ``arguments`` attribute of a ``host.call``: Python call text in which ``$i`` stands for the i-th operand."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

_OPERAND = re.compile(r"\$(\d+)")


@dataclass(frozen=True)
class TorchName:
    """A name of the torch module in a template (``torch.float32``), kept as text, so that parsing needs no torch
    import."""

    name: str


class _TorchNames:
    def __getattr__(self, name: str) -> TorchName:
        return TorchName(name)

    def device(self, *args: Any) -> TorchName:
        return TorchName(f"device{args}")


@lru_cache(maxsize=4096)
def _compiled(text: str) -> Callable[[Any], Any]:
    source = _OPERAND.sub(r"_operands[\1]", text)
    namespace = {"torch": _TorchNames(), "constant": _Constants(), "inf": float("inf"), "nan": float("nan")}
    return eval(f"lambda _operands: _call{source}", {**namespace, "_call": lambda *args, **kwargs: (args, kwargs)})


class _Constants:
    def __getitem__(self, i: int) -> TorchName:
        return TorchName(f"constant[{i}]")


def instantiate(text: str, operands: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of a call, with ``$i`` replaced by ``operands[i]``."""
    args, kwargs = _compiled(text)(operands)
    return args, kwargs


def operand_indices(text: str) -> list[int]:
    return [int(i) for i in _OPERAND.findall(text)]


def substitute(text: str, names: list[str]) -> str:
    """The template as Python source, operands replaced by names."""
    return _OPERAND.sub(lambda match: names[int(match.group(1))], text)
