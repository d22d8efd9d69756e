"""Captures the launches of a program as a CUDA graph: ``mode="reduce-overhead"``, the option ``cuda_graphs``.

A graph is captured for each combination of sizes, strides, integers and addresses of parameters, after a few calls
without one (`graph_policy.py`). A replay has three steps, in stream order:

    inputs that may move are copied to where the graph reads them
    graph.replay()
    what the graph wrote is copied to new memory, which is returned to the caller

All that a graph reads and writes, except for parameters and constants, lies in one memory pool per device, which is
scratch between calls: graphs of other sizes and programs overwrite it. Results are ordinary memory and live as long as
they are referenced, also if saved for backward. (The trees of torch/_inductor/cudagraph_trees.py return the pool's own
memory instead, and raise an error if it is read after the next call.) The cost of copies is weighed against the
launches saved; if copies cost more, the program runs without a graph.

Addresses that a graph reads directly (of parameters and buffers) are part of the key by which it is found, so that a
replay never reads another tensor than the caller's. An input that had the same address in all calls so far is read in
place too (steps of a training loop allocate alike). If it moves later, the graph is captured again, with a copy of it.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.utils._pytree as pytree

from symshape.runtime.torch_c import copy_all
from symshape.runtime.triton.captured_results import NotCaptured, Results, read_results
from symshape.runtime.triton.cuda_device import Graph, GraphDevice
from symshape.runtime.triton.graph_policy import GraphPolicy
from symshape.runtime.triton.same_inputs import TENSORS, SameInputs

log = logging.getLogger("symshape.cuda_graphs")
Key = tuple[Any, ...]
Run = Callable[[list[Any]], Any]
_VALUES = (int, bool, type(None), str, torch.dtype, torch.device)
_STEADY = 3  # number of calls with an input at one address, after which it is read in place
_MOST_GAPS = 4  # maximum memory of a copied input, in multiples of its elements
_NEVER = -1  # number of calls of a bucket that is never captured


@dataclass(frozen=True)
class Uncaptured:
    """A program without CUDA graphs. ``lasting``: positions of inputs whose memory does not move; ``launches``: number
    of launches and library calls per call."""

    run: Run
    lasting: Collection[int]
    launches: int
    constants: Sequence[Any] = ()
    check: Callable[[], None] = lambda: None  # raises the error that a kernel has reported


@dataclass
class Bucket:
    """Counts calls with one combination of sizes that has no graph yet. ``size``: bytes of the last call's results;
    ``steady``: addresses, by position, that inputs had in all calls; ``wanders``: they turned out to change after
    all."""

    calls: int = 0
    size: int = 0
    seen: int = 0
    steady: dict[int, int] = field(default_factory=dict)
    wanders: bool = False

    def note(self, args: Sequence[Any], lasting: Collection[int]) -> None:
        """Records the addresses of a call's inputs."""
        found = {i: x.data_ptr() for i, x in enumerate(args) if type(x) in TENSORS and i not in lasting}
        self.steady = found if not self.seen else {i: a for i, a in self.steady.items() if found[i] == a}
        self.seen += 1

    def fixed(self) -> dict[int, int]:
        """Inputs that a graph may read in place, with their addresses."""
        return {} if self.wanders or self.seen < _STEADY else self.steady


class GraphedProgram:
    """A program that replays CUDA graphs; called like the result of ``load_program``. ``remarks`` collects what is
    captured, and why other calls are not."""

    def __init__(
        self,
        program: Uncaptured,
        device: GraphDevice,
        policy: GraphPolicy | None = None,
        remarks: list[str] | None = None,
    ) -> None:
        self.program, self.device, self.policy = program, device, policy or GraphPolicy()
        self.remarks = [] if remarks is None else remarks
        self.graphs: OrderedDict[Key, Recording] = OrderedDict()  # the least recently used first
        self.buckets: OrderedDict[Key, Bucket] = OrderedDict()
        self.evicted = 0
        self.failed = False  # a capture failed; no other is tried

    def __call__(self, args: list[Any]) -> Any:
        device = self.device
        if self.failed or device.is_capturing():
            return self.program.run(args)
        key: Key | None = None
        with device.lock:
            if device.recording:  # this thread is capturing, and the capture calls the program
                return self.program.run(args)
            recording = next(reversed(self.graphs.values()), None)  # the last one used
            if recording is None or not recording.expected.test(args):
                recording, key = None, self._key(args)
                if key is not None:
                    recording = self._fitting(key, args) or self._counted(key, args)
                    if recording is not None:
                        self.graphs.move_to_end(key)
            if recording is not None:
                given, args[:] = list(args), []
                return recording.replay(given)
        # Outside of the lock: a call without a graph may take long, and may wait for other threads.
        return self.program.run(args) if key is None else self._run(key, args)

    def _key(self, args: Sequence[Any]) -> Key | None:
        """The key of a graph for these arguments. None if the type of an argument is not supported."""
        lasting = self.program.lasting
        key: list[Any] = [x.data_ptr() for x in self.program.constants if isinstance(x, torch.Tensor)]
        for i, x in enumerate(args):
            if type(x) in TENSORS:
                key += [x.shape, x.stride(), x.data_ptr() if i in lasting else None]
            elif isinstance(x, float):
                key.append(x.hex())  # 0.0 is not -0.0
            elif isinstance(x, _VALUES):
                key += [type(x), x]
            else:
                self._say(f"runs as it is: argument {i} is a {type(x).__name__}")
                return None
        return tuple(key)

    def _run(self, key: Key, args: list[Any]) -> Any:
        """A call without a graph. Records the size of its results, which a replay would have to copy."""
        result = self.program.run(args)
        bucket = self.buckets.get(key)
        if bucket is not None:
            bucket.size = _size(result)
        return result

    def _fitting(self, key: Key, args: Sequence[Any]) -> Recording | None:
        """The graph for these arguments. A graph that reads an input in place which has moved is dropped: the next one
        will copy it."""
        recording = self.graphs.get(key)
        if recording is None or all(args[i].data_ptr() == address for i, address in recording.fixed.items()):
            return recording
        self._drop(key)
        self.buckets[key] = Bucket(wanders=True)
        return None

    def _counted(self, key: Key, args: Sequence[Any]) -> Recording | None:
        """Counts a call, and captures a graph if it is time for one; else None."""
        bucket = self.buckets.pop(key, None) or Bucket()
        self.buckets[key] = bucket  # moved to the end: most recently used
        if len(self.buckets) > self.policy.buckets:
            self.buckets.popitem(last=False)
        if bucket.calls == _NEVER:
            return None
        bucket.note(args, self.program.lasting)
        if bucket.calls < self.policy.calls_before(self.evicted):
            bucket.calls += 1
            return None
        self.program.check()  # raise an earlier call's error here, so that it does not fail the capture
        try:
            recording = self._record(args, bucket)
        except NotCaptured as reason:
            bucket.calls = _NEVER
            self._say(f"runs as it is: {reason}")
            return None
        except Exception as error:
            self.failed = True
            self._say(f"runs as it is: the capture failed: {type(error).__name__}: {error}")
            log.warning("symshape: %s", self.remarks[-1])
            return None
        del self.buckets[key]
        self._keep(key, recording)
        return recording

    def _record(self, args: Sequence[Any], bucket: Bucket) -> Recording:
        fixed = bucket.fixed()
        moving = moving_inputs(args, {*self.program.lasting, *fixed}, self.device.device)
        bytes_copied = bucket.size + sum(args[i].nbytes for i in moving)
        copies = len({args[i].dtype for i in moving}) + bool(bucket.size)
        if not self.policy.pays(self.program.launches, copies, bytes_copied):
            saved = f"{self.program.launches} launches are no more work"
            raise NotCaptured(f"{saved} than copies of inputs and results, at some sizes")
        return record(self.program, self.device, args, moving, fixed)

    def _keep(self, key: Key, recording: Recording) -> None:
        self.graphs[key] = recording
        self._say("captured for each combination of sizes that recurs")
        if len(self.graphs) > self.policy.graphs:
            self.evicted += 1
            self._drop(next(iter(self.graphs)))

    def _drop(self, key: Key) -> None:
        self.device.wait()
        self.graphs.pop(key).graph.reset()

    def _say(self, remark: str) -> None:
        if remark not in self.remarks:
            self.remarks.append(remark)
            log.info("%s", remark)


@dataclass(frozen=True)
class Copies:
    """The copies around a replay, grouped by element type. ``inputs``: pairs of where the graph reads and the positions
    of the inputs copied there; ``expanded``: positions of inputs that are copied without repeated elements;
    ``results``: positions in ``memory``, from which results are copied."""

    expanded: list[int]
    inputs: list[tuple[list[torch.Tensor], list[int]]]
    results: list[list[int]]
    memory: list[torch.Tensor]

    @classmethod
    def of(
        cls, args: Sequence[Any], moving: list[int], statics: list[torch.Tensor], memory: list[torch.Tensor]
    ) -> Copies:
        kinds = [([statics[j] for j in kind], [moving[j] for j in kind]) for kind in _by_type(statics)]
        return cls([i for i in moving if 0 in args[i].stride()], kinds, _by_type(memory), memory)


@dataclass
class Recording:
    """A captured graph. ``expected``: tests whether arguments match; ``fixed``: addresses of inputs read in place,
    besides those in the key."""

    program: Uncaptured
    device: GraphDevice
    graph: Graph
    copies: Copies
    results: Results
    expected: SameInputs
    fixed: dict[int, int]

    @torch.no_grad()
    def replay(self, args: list[Any]) -> Any:
        """Replays the graph; returns the program's result for these arguments."""
        given, copies = list(args), self.copies
        for i in copies.expanded:
            given[i] = one_of_each(given[i])
        with self.device.in_turn():
            for statics, positions in copies.inputs:
                copy_all(statics, [given[i] for i in positions])
            self.graph.replay()
            made = [torch.empty_like(x) for x in copies.memory]
            for kind in copies.results:
                copy_all([made[i] for i in kind], [copies.memory[i] for i in kind])
        self.program.check()
        return self.results.make(args, made)


def record(
    program: Uncaptured, device: GraphDevice, args: Sequence[Any], moving: Sequence[int], fixed: dict[int, int]
) -> Recording:
    """Captures a call with these arguments. The graph reads inputs at the positions ``moving`` from the pool, those of
    ``fixed`` in place."""

    def like(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=x.device)

    def warm_up() -> None:
        """Runs on copies, which are aligned as memory of the pool is, so that the same variants run."""
        given = list(args)
        for i in moving:
            given[i] = like(args[i])
            one_of_each(given[i]).copy_(one_of_each(args[i]))
        program.run(given)

    def work() -> tuple[list[torch.Tensor], Results]:
        given = list(args)
        for i in moving:
            given[i] = like(args[i])
        inputs = {i: x for i, x in enumerate(given) if isinstance(x, torch.Tensor)}
        returned = program.run(given)
        statics = [device.at(one_of_each(inputs[i])) for i in moving]
        return statics, read_results(returned, inputs, program.constants, device.device, device.at)

    graph, (statics, results) = device.record(warm_up, work)
    copies = Copies.of(args, list(moving), statics, results.memory)
    expected = SameInputs(args, {*program.lasting, *fixed}, program.constants)
    return Recording(program, device, graph, copies, results, expected, fixed)


def moving_inputs(args: Sequence[Any], lasting: Collection[int], device: torch.device) -> list[int]:
    """Positions of the tensors that are copied before a replay. NotCaptured if one cannot be copied."""
    moving = []
    for i, x in enumerate(args):
        if not isinstance(x, torch.Tensor):
            continue
        if x.device != device:
            raise NotCaptured(f"argument {i} lies on {x.device}")
        if i in lasting:
            continue
        if overlaps(one_of_each(x)):
            raise NotCaptured(f"elements of argument {i} overlap")
        if x.numel() and _reach(one_of_each(x)) > _MOST_GAPS * x.numel():
            raise NotCaptured(f"argument {i} is spread over much memory")
        moving.append(i)
    return moving


def one_of_each(x: torch.Tensor) -> torch.Tensor:
    """A view of a tensor without the repeated elements of expanded dims, to which data can be copied."""
    if 0 not in x.stride():
        return x
    sizes = [min(size, 1) if stride == 0 else size for size, stride in zip(x.size(), x.stride())]
    return x.as_strided(sizes, x.stride())


def _reach(x: torch.Tensor) -> int:
    """Distance in elements between a tensor's first and last element in memory."""
    return sum(stride * (size - 1) for stride, size in zip(x.stride(), x.size()) if size > 1)


def overlaps(x: torch.Tensor) -> bool:
    """Whether two elements may share memory. False is exact; True may be a false alarm."""
    reach = 0
    for stride, size in sorted((stride, size) for stride, size in zip(x.stride(), x.size()) if size > 1):
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def _size(result: Any) -> int:
    """Bytes of the storages of results; an upper bound on what is copied, since results that are inputs count too."""
    tensors = [x for x in pytree.tree_leaves(result) if isinstance(x, torch.Tensor)]
    return sum({x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in tensors}.values())


def _by_type(tensors: Sequence[torch.Tensor]) -> list[list[int]]:
    found: dict[torch.dtype, list[int]] = {}
    for i, x in enumerate(tensors):
        if x.numel():
            found.setdefault(x.dtype, []).append(i)
    return list(found.values())
