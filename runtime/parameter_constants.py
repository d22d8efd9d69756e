"""Constants computed from parameters: at the first call, and again before each call after which a parameter has
changed.

Changes are detected by hashes of the contents, not by autograd's version counters: writes through ``parameter.data``,
through NumPy, or by another process do not increment these.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from symshape.runtime.cpu.content_hash import ContentHash

_MOST: Final = 256  # modules that share a graph


@dataclass(frozen=True)
class _Known:
    """The constants of one module. ``contents``: the hash of its parameters; ``parameters``: whether they live."""

    contents: bytes
    parameters: tuple[weakref.ref[torch.Tensor], ...]
    constants: tuple[torch.Tensor, ...]


class ParameterConstants:
    """``of(args)``: the constants for the arguments of a call. ``compute(*parameters)`` makes them; ``positions``: of
    the parameters among the arguments. They are on a CPU, each is one range of memory, and layouts do not change.

    Modules of one class may share a compiled graph (layers that are compiled one by one): each has its constants, for
    as long as its parameters live.
    """

    def __init__(self, compute: Callable[..., Sequence[torch.Tensor]], positions: Sequence[int]) -> None:
        self._compute, self._positions = compute, tuple(positions)
        self._known: dict[tuple[int, ...], _Known] = {}
        self._lock = threading.Lock()
        self._hash: ContentHash | None = None

    def of(self, args: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        parameters = [args[i] for i in self._positions]
        if self._hash is None:
            self._hash = ContentHash([parameter.nbytes for parameter in parameters])
        contents = self._hash([parameter.data_ptr() for parameter in parameters])
        key = tuple(map(id, parameters))
        known = self._known.get(key)
        if known is not None and known.contents == contents:
            return known.constants
        with self._lock:
            known = self._known.get(key)
            if known is None or known.contents != contents:
                known = self._computed(contents, parameters)
                self._keep(key, known)
        return known.constants

    def _computed(self, contents: bytes, parameters: Sequence[torch.Tensor]) -> _Known:
        with torch.inference_mode(False), torch.no_grad():
            constants = tuple(self._compute(*parameters))
        return _Known(contents, tuple(map(weakref.ref, parameters)), constants)

    def _keep(self, key: tuple[int, ...], known: _Known) -> None:
        """Stores the constants of a module; drops those of dead parameters, and the oldest module's if there are too
        many."""
        gone = [one for one, it in self._known.items() if any(parameter() is None for parameter in it.parameters)]
        for one in gone:
            del self._known[one]
        if key not in self._known and len(self._known) >= _MOST:
            del self._known[next(iter(self._known))]
        self._known[key] = known
