"""Constants that are computed of parameters: recomputed at the first call, and at each one before which a parameter
has changed.

Whether one has is asked of its contents, not of autograd's count of writes: a write through ``parameter.data``, through
NumPy, or by another process counts nowhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from symshape.runtime.cpu.content_hash import ContentHash

Run = Callable[[list[Any]], Any]


class ParameterConstants:
    """``update(args)`` before each call. ``compute(*parameters)`` returns the new contents of ``constants``;
    ``positions``: of the parameters among the arguments. They are on a CPU, and their layouts do not change."""

    def __init__(
        self,
        compute: Callable[..., Sequence[torch.Tensor]],
        positions: Sequence[int],
        constants: Sequence[torch.Tensor],
    ) -> None:
        self._compute, self._positions, self._constants = compute, tuple(positions), tuple(constants)
        self._lock = threading.Lock()
        self._hash: ContentHash | None = None
        self._seen = b""

    def update(self, args: Sequence[Any]) -> None:
        parameters = [args[i] for i in self._positions]
        if self._hash is None:
            self._hash = ContentHash([parameter.nbytes for parameter in parameters])
        now = self._hash([parameter.data_ptr() for parameter in parameters])
        if now == self._seen:
            return
        with self._lock:
            if now == self._seen:
                return
            with torch.inference_mode(False), torch.no_grad():
                for constant, new in zip(self._constants, self._compute(*parameters), strict=True):
                    constant.copy_(new)
            self._seen = now
