"""Constants computed from parameters: at the first call, and again before each call after which a parameter has
changed.

Autograd's version counters do not show all changes: writes through ``parameter.data``, through NumPy, or by another
process do not increment these. So large parameters are watched: PyTorch's copy-on-write storages notice whoever writes
to them, or asks for their address to write there (`watch_writes` in ``runtime/torch_c.py``). What cannot be watched
(memory of NumPy, of a file, of several processes or tensors), and what is small, is hashed before each call.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from symshape.runtime.cpu.content_hash import ContentHash
from symshape.runtime.torch_c import address_of, is_watched, watch_writes

_MOST: Final = 256  # modules that share a graph
_LEAST_WATCHED: Final = 1 << 14  # bytes; fewer are hashed in the time of a question
_MOST_ALARMS: Final = 8  # times that memory was written to without a change; after that it is hashed


class _Watches:
    """``count``: how often this process has begun to watch memory. Memory that is watched while the count is as before
    was watched all the time: nobody has begun anew after a write."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()

    def begin(self, parameters: Sequence[torch.Tensor], wanted: Collection[int]) -> list[int]:
        """Watches the parameters at the positions ``wanted`` that can be watched; returns their positions."""
        if all(is_watched(parameters[i]) for i in wanted):
            return [*wanted]
        with self._lock:
            self.count += 1  # first: see `_Known.is_unchanged`
            return [i for i in wanted if is_watched(parameters[i]) or watch_writes(parameters[i])]


_watches: Final = _Watches()


@dataclass(frozen=True)
class _Known:
    """The constants of one module. ``contents``: the hash of its parameters; ``parameters``: whether they live;
    ``watched``: position and address of each that is watched, at the time of ``count`` watches; ``rest``: positions of
    the others; ``alarms``: see `_MOST_ALARMS`."""

    contents: bytes
    parameters: tuple[weakref.ref[torch.Tensor], ...]
    constants: tuple[torch.Tensor, ...]
    watched: tuple[tuple[int, int], ...]
    count: int
    rest: tuple[int, ...]
    hash_of_rest: ContentHash
    contents_of_rest: bytes
    alarms: int

    def is_unchanged(self, parameters: Sequence[torch.Tensor]) -> bool:
        for i, address in self.watched:
            parameter = parameters[i]
            if not is_watched(parameter) or address_of(parameter) != address:
                return False
        # Read last: if another thread has begun anew what was found to be watched, it has raised the count before.
        if self.watched and self.count != _watches.count:
            return False
        return self.hash_of_rest([address_of(parameters[i]) for i in self.rest]) == self.contents_of_rest


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
        key = tuple(map(id, parameters))
        known = self._known.get(key)
        if known is not None and known.is_unchanged(parameters):
            return known.constants
        with self._lock:
            known = self._looked_at(self._known.get(key), parameters)
            self._keep(key, known)
        return known.constants

    def _looked_at(self, known: _Known | None, parameters: Sequence[torch.Tensor]) -> _Known:
        """What is known of a module whose parameters may have changed."""
        if self._hash is None:
            self._hash = ContentHash([parameter.nbytes for parameter in parameters])
        if known is None:
            wanted = [i for i, parameter in enumerate(parameters) if parameter.nbytes >= _LEAST_WATCHED]
        else:  # what could not be watched is not tried again: each attempt makes others look
            wanted = [i for i, _ in known.watched if known.alarms < _MOST_ALARMS]
        was_written = not all(is_watched(parameters[i]) for i in wanted)
        watched = _watches.begin(parameters, wanted)
        # Now what is watched, then hashes, then constants: a write in between is found at the next call.
        count = _watches.count
        rest = tuple(i for i in range(len(parameters)) if i not in {*watched})
        hash_of_rest = ContentHash([parameters[i].nbytes for i in rest])
        contents_of_rest = hash_of_rest([address_of(parameters[i]) for i in rest])
        contents = self._hash([address_of(parameter) for parameter in parameters])
        is_known = known is not None and known.contents == contents
        return _Known(
            contents,
            tuple(map(weakref.ref, parameters)),
            known.constants if known is not None and is_known else self._computed(parameters),
            tuple((i, address_of(parameters[i])) for i in watched),
            count,
            rest,
            hash_of_rest,
            contents_of_rest,
            known.alarms + was_written if known is not None and is_known else 0,
        )

    def _computed(self, parameters: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        with torch.inference_mode(False), torch.no_grad():
            return tuple(self._compute(*parameters))

    def _keep(self, key: tuple[int, ...], known: _Known) -> None:
        """Stores the constants of a module; drops those of dead parameters, and the oldest module's if there are too
        many."""
        gone = [one for one, it in self._known.items() if any(parameter() is None for parameter in it.parameters)]
        for one in gone:
            del self._known[one]
        if key not in self._known and len(self._known) >= _MOST:
            del self._known[next(iter(self._known))]
        self._known[key] = known
