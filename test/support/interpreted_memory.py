"""Finds races and accesses out of bounds in interpreted Triton launches. The interpreter runs one program after the
other, in the memory of the whole process, so it shows neither by itself.

On a GPU two programs of a launch run in any order, and so do a store of one thread and a load of another one of the
same program, up to the next barrier. An atomic operation on one number that releases and acquires orders what comes
before it in a program before what comes after it in those that find it done. An error slot is left out: every program
may store the same number there.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import torch

Array = np.ndarray[Any, Any]
# Of the interpreter's builder: the kind of access, and the positions of its addresses, its mask and what is stored.
_METHODS = {
    "create_masked_load": ("load", 0, 1, None),
    "create_masked_store": ("store", 0, 2, 1),
    "create_atomic_rmw": ("atomic", 1, 3, None),
}
_SEMANTICS = 4  # position of an atomic operation's memory order


@dataclass(frozen=True)
class Access:
    """Of one instruction in one program. ``kind``: "load", "store", "atomic", "order" (an atomic operation that orders
    others), "barrier". ``values``: what is stored at each address."""

    kind: str
    program: tuple[int, ...]
    addresses: Array
    size: int
    values: Array | None = None

    def at(self, chosen: Array) -> Access:
        values = None if self.values is None else self.values[chosen]
        return Access(self.kind, self.program, self.addresses[chosen], self.size, values)


@dataclass
class Launch:
    """The accesses of one launch, in their order, and the tensors that it was given."""

    name: str
    tensors: Sequence[torch.Tensor]
    accesses: list[Access] = field(default_factory=list)

    def problems(self) -> Iterator[str]:
        """What is wrong, in words."""
        spans = [_span(x) for x in self.tensors if x.numel()]
        slots = [_span(x) for x in self.tensors if x.numel() == 1 and x.dtype == torch.int64]
        for access in self.accesses:
            if outside := int((~_inside(access.addresses, access.size, spans)).sum()):
                yield f"{outside} elements of a {access.kind} lie in none of the tensors"
        own = [access.at(~_inside(access.addresses, access.size, slots)) for access in self.accesses]
        yield from _of_one_program(own)
        yield from _of_several_programs(own)


def _of_one_program(accesses: Sequence[Access]) -> Iterator[str]:
    stored: dict[tuple[int, ...], set[int]] = {}
    for access in accesses:
        before = stored.setdefault(access.program, set())
        if access.kind == "barrier":
            before.clear()
        if access.kind == "load" and before and not before.isdisjoint(access.addresses.tolist()):
            yield "a program loads what it has stored"
        if access.kind == "store":
            assert access.values is not None
            different, last = np.unique(access.addresses, return_inverse=True)
            kept = np.empty(different.size, access.values.dtype)
            kept[last] = access.values
            if kept[last].tobytes() != access.values.tobytes():
                yield "a program stores several values at one address"
            before.update(different.tolist())


def _of_several_programs(accesses: Sequence[Access]) -> Iterator[str]:
    numbers = {program: i for i, program in enumerate(dict.fromkeys(access.program for access in accesses))}
    orders = {access.program: int(access.addresses[0]) for access in accesses if access.kind == "order"}
    first, later = list[Access](), dict[tuple[int, ...], list[Access]]()
    passed = set[tuple[int, ...]]()
    for access in accesses:
        (later.setdefault(access.program, []) if access.program in passed else first).append(access)
        if access.kind == "order":
            passed.add(access.program)
    yield from _conflicts(first, first, numbers)
    for program, after in later.items():
        done = {other for other, at in orders.items() if at == orders[program] and numbers[other] < numbers[program]}
        rest = [access for access in first if access.program not in done]
        rest += [access for other, own in later.items() if other != program for access in own]
        yield from (*_conflicts(after, rest, numbers), *_conflicts(rest, after, numbers))


def _conflicts(ones: Sequence[Access], others: Sequence[Access], numbers: dict[tuple[int, ...], int]) -> Iterator[str]:
    for one, other in (("store", "store"), ("store", "load"), ("atomic", "store"), ("atomic", "load")):
        if count := _shared(*_places(ones, one, numbers), *_places(others, other, numbers)):
            yield f"{count} accesses: {one} of one program, {other} of another"


def _places(accesses: Sequence[Access], kind: str, numbers: dict[tuple[int, ...], int]) -> tuple[Array, Array]:
    """The addresses of a kind of access, each with the number of its program."""
    kinds = (kind, "order") if kind == "atomic" else (kind,)
    own = [(access.addresses, numbers[access.program]) for access in accesses if access.kind in kinds]
    if not own:
        return np.zeros(0, np.uint64), np.zeros(0, np.int64)
    return np.concatenate([a for a, _ in own]), np.concatenate([np.full(a.size, p) for a, p in own])


def _shared(addresses: Array, programs: Array, others: Array, their_programs: Array) -> int:
    """How many of the others are at an address that a different program has."""
    if not addresses.size or not others.size:
        return 0
    known, place = np.unique(addresses, return_inverse=True)
    first, last = np.full(known.size, np.iinfo(np.int64).max), np.full(known.size, -1)
    np.minimum.at(first, place, programs)
    np.maximum.at(last, place, programs)
    at = np.minimum(np.searchsorted(known, others), known.size - 1)
    differs = (first[at] != their_programs) | (last[at] != their_programs)
    return int(((known[at] == others) & differs).sum())


def _span(x: torch.Tensor) -> tuple[int, int]:
    """The addresses that a tensor's elements lie in."""
    elements = 1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride()))
    return x.data_ptr(), x.data_ptr() + elements * x.element_size()


def _inside(addresses: Array, size: int, spans: Sequence[tuple[int, int]]) -> Array:
    inside = np.zeros(addresses.shape, bool)
    for begin, end in spans:
        inside |= (addresses >= begin) & (addresses + np.uint64(size) <= end)
    return inside


@contextlib.contextmanager
def watched() -> Iterator[list[Launch]]:
    """Raises AssertionError at the end of a launch with a problem. Gives the launches, each without its accesses once
    they have been looked at. For interpreted launches only."""
    from triton._C.libtriton.ir import MEM_SEMANTIC
    from triton.runtime import interpreter

    from symshape.runtime.triton import launch

    builder, launches, own = interpreter.interpreter_builder, list[Launch](), threading.local()  # of each thread

    def noting(method: Callable[..., Any], kind: str, at: int, mask: int, stored: int | None) -> Callable[..., Any]:
        def call(*args: Any, **given: Any) -> Any:
            shape, held = (
                args[at].data.shape,
                np.broadcast_to(args[mask].data, args[at].data.shape).astype(bool).ravel(),
            )
            values = None if stored is None else np.broadcast_to(args[stored].data, shape).ravel()[held]
            size = np.dtype(interpreter._get_np_dtype(args[at].get_element_ty())).itemsize
            addresses = np.asarray(args[at].data, np.uint64).ravel()[held]
            ordered = kind == "atomic" and args[at].data.size == 1 and args[_SEMANTICS] == MEM_SEMANTIC.ACQUIRE_RELEASE
            noted = "order" if ordered and held.all() else kind
            own.launch.accesses.append(Access(noted, tuple(builder.grid_idx), addresses, size, values))
            return method(*args, **given)

        return call

    def barrier(*args: Any, **given: Any) -> Any:
        own.launch.accesses.append(Access("barrier", tuple(builder.grid_idx), np.zeros(0, np.uint64), 1))
        return builder_barrier(*args, **given)

    builder_barrier, given = builder.create_barrier, launch._Interpreted.__call__

    def launching(self: Any, device: torch.device, programs: int, *args: Any) -> None:
        own.launch = Launch(self.stage.function, [x for x in args if isinstance(x, torch.Tensor)])
        launches.append(own.launch)
        given(self, device, programs, *args)
        problems = list(dict.fromkeys(own.launch.problems()))
        own.launch.accesses.clear()
        assert not problems, f"{self.stage.function} {dict(self.stage.constants)}: {'; '.join(problems)}"

    with contextlib.ExitStack() as patches:
        for name, (kind, *positions) in _METHODS.items():
            wrapped = noting(getattr(builder, name), kind, *positions)  # type: ignore[arg-type]
            patches.enter_context(mock.patch.object(builder, name, wrapped))
        patches.enter_context(mock.patch.object(builder, "create_barrier", barrier))
        patches.enter_context(mock.patch.object(launch._Interpreted, "__call__", launching))
        yield launches
