"""CUDA graphs without a GPU: a capture notes the operators and launches of a call, a replay runs them again on the same
memory, of which nothing is left between calls.

An operator is noted with the tensors that it got and gave (it runs, for the sake of what it returns); a replay runs it
on the same tensors and copies what it gives into the memory of the capture. So a replay that is given the address of
anything else, or results that are not copied out of the pool, give wrong numbers, as on a GPU.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from symshape.runtime.torch_c import tensor_at

GARBAGE = 0xA5


class _Tape(TorchDispatchMode):
    """Notes each operator that does work, and the memory that operators make."""

    def __init__(self) -> None:
        super().__init__()
        self.work: list[Callable[[], None]] = []
        self.memory: list[torch.UntypedStorage] = []
        self.held: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        tensors = [x for x in pytree.tree_leaves(result) if isinstance(x, torch.Tensor)]
        self.held.append((args, kwargs, tensors))
        if func.is_view or func.namespace == "prim" or torch.Tag.inplace_view in func.tags:
            return result
        if not func._schema.is_mutable:
            self.memory += [x.untyped_storage() for x in tensors]
        if "empty" not in func.__name__:
            self.work.append(lambda: _again(func, args, kwargs, tensors))
        return result


def _again(func: Any, args: Any, kwargs: Any, tensors: list[torch.Tensor]) -> None:
    found = [x for x in pytree.tree_leaves(func(*args, **kwargs)) if isinstance(x, torch.Tensor)]
    if not func._schema.is_mutable:
        for x, y in zip(tensors, found, strict=True):
            x.copy_(y)


class FakeGraph:
    def __init__(self, device: FakeDevice, tape: _Tape) -> None:
        self.device, self.tape, self.replays, self.is_reset = device, tape, 0, False

    def replay(self) -> None:
        assert not self.is_reset and self.device.turns, "a graph is replayed in turn"
        self.replays += 1
        for one in self.tape.work:
            one()

    def reset(self) -> None:
        assert self.device.waits, "what runs must not be taken away"
        self.is_reset = True


class FakeDevice:
    """In the place of ``CudaDevice`` (runtime/triton), for CPU tensors. ``foreign``: somebody else captures."""

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        self.lock = threading.RLock()
        self.recording = self.foreign = False
        self.graphs: list[FakeGraph] = []
        self.tape: _Tape | None = None
        self.turns = self.waits = self.captures_in = 0

    def is_capturing(self) -> bool:
        return self.foreign or (self.tape is not None and self.captures_in == threading.get_ident())

    def record(self, warm_up: Callable[[], object], work: Callable[[], Any]) -> tuple[FakeGraph, Any]:
        self.recording = True
        try:
            state = torch.get_rng_state()
            warm_up()
            torch.set_rng_state(state)
            self.tape, self.captures_in = _Tape(), threading.get_ident()
            with torch.no_grad(), self.tape:
                result = work()
            graph = FakeGraph(self, self.tape)
            torch.set_rng_state(state)  # a capture draws nothing
        finally:
            self.recording, self.tape = False, None
        self.graphs.append(graph)
        return graph, result

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        assert not self.turns
        self._spoil()
        self.turns += 1
        try:
            yield
        finally:
            self.turns -= 1
            self._spoil()

    def _spoil(self) -> None:
        for graph in self.graphs:
            for storage in graph.tape.memory:
                storage.fill_(GARBAGE)

    def wait(self) -> None:
        self.waits += 1

    def at(self, x: torch.Tensor) -> torch.Tensor:
        return tensor_at(x)

    def launched(self, kernel: Callable[..., None]) -> Callable[..., None]:
        """A kernel, whose launches a capture notes, and does not run: what is in memory then is garbage."""

        def launch(*args: Any) -> None:
            if self.tape is None:
                kernel(*args)
            else:
                self.tape.held.append(args)
                self.tape.work.append(lambda: kernel(*args))

        return launch
