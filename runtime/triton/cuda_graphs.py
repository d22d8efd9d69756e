"""A program whose launches are one CUDA graph: ``mode="reduce-overhead"``, the option ``cuda_graphs``.

A graph is captured for each combination of sizes, strides, integers and addresses of parameters, after some calls that
run as they are (`graph_policy.py`). A replay is three steps, in stream order:

    inputs that move are copied to where the graph reads them
    graph.replay()
    what the graph has written is copied to new memory, which is what the caller gets

All that a graph reads and writes, besides parameters and constants, lies in one pool of memory per device, which is
scratch between calls: graphs of other sizes and of other programs overwrite it. Results are ordinary memory: they live
as long as anybody holds them, also what is saved for backward. (The trees of torch/_inductor/cudagraph_trees.py hand
out the pool's own memory instead, and raise an error where it is read after the next call.) What the copies cost is
weighed against the launches that are saved; where they cost more the program runs as it is.

What a graph reads at a fixed address (a parameter, a buffer) is part of what a graph is found by: a replay reads what
the caller passes, or does not happen. An input that lay in one place in all calls so far is read there too (the steps
of a training loop allocate alike), until it comes from elsewhere: then the graph is captured anew, with a copy of it.
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
_STEADY = 3  # calls in which an input lies in one place, before it is expected there
_MOST_GAPS = 4  # memory that a copy takes, for each element
_NEVER = -1  # calls of sizes that are not captured


@dataclass(frozen=True)
class Uncaptured:
    """A program that runs as it is. ``lasting``: positions of inputs whose memory stays where it is; ``launches``: how
    many launches and library calls a call makes."""

    run: Run
    lasting: Collection[int]
    launches: int
    constants: Sequence[Any] = ()
    check: Callable[[], None] = lambda: None  # raises the error of a kernel that has found one


@dataclass
class Bucket:
    """Calls of one combination of sizes, while it has no graph. ``size``: bytes of the last call's results; ``steady``:
    the addresses that inputs have had in all calls, by position; ``wanders``: that has turned out to be chance."""

    calls: int = 0
    size: int = 0
    seen: int = 0
    steady: dict[int, int] = field(default_factory=dict)
    wanders: bool = False

    def note(self, args: Sequence[Any], lasting: Collection[int]) -> None:
        """Of a call: where its inputs lie."""
        found = {i: x.data_ptr() for i, x in enumerate(args) if type(x) in TENSORS and i not in lasting}
        self.steady = found if not self.seen else {i: a for i, a in self.steady.items() if found[i] == a}
        self.seen += 1

    def fixed(self) -> dict[int, int]:
        """Inputs that a graph may read where they are, with their addresses."""
        return {} if self.wanders or self.seen < _STEADY else self.steady


class GraphedProgram:
    """``program(args)``, as ``load_program`` makes it. ``remarks`` takes what is captured, and what is not, and why."""

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
        self.failed = False  # a capture has: none is tried again

    def __call__(self, args: list[Any]) -> Any:
        device = self.device
        if self.failed or device.is_capturing():
            return self.program.run(args)
        key: Key | None = None
        with device.lock:
            if device.recording:  # this thread's, which calls the program
                return self.program.run(args)
            recording = next(reversed(self.graphs.values()), None)  # of the call before
            if recording is None or not recording.expected.test(args):
                recording, key = None, self._key(args)
                if key is not None:
                    recording = self._fitting(key, args) or self._counted(key, args)
                    if recording is not None:
                        self.graphs.move_to_end(key)
            if recording is not None:
                given, args[:] = list(args), []
                return recording.replay(given)
        # Without the lock: what runs as it is may take long, and wait for other threads.
        return self.program.run(args) if key is None else self._run(key, args)

    def _key(self, args: Sequence[Any]) -> Key | None:
        """What a graph is captured for. None where an argument is nothing that can be told apart."""
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
        """A call that runs as it is. The size of its results is what a replay would copy."""
        result = self.program.run(args)
        bucket = self.buckets.get(key)
        if bucket is not None:
            bucket.size = _size(result)
        return result

    def _fitting(self, key: Key, args: Sequence[Any]) -> Recording | None:
        """The graph for these arguments. One that expects an input in another place goes: it will be copied."""
        recording = self.graphs.get(key)
        if recording is None or all(args[i].data_ptr() == address for i, address in recording.fixed.items()):
            return recording
        self._drop(key)
        self.buckets[key] = Bucket(wanders=True)
        return None

    def _counted(self, key: Key, args: Sequence[Any]) -> Recording | None:
        """A graph for these arguments, if it is time for one."""
        bucket = self.buckets.pop(key, None) or Bucket()
        self.buckets[key] = bucket  # the last one
        if len(self.buckets) > self.policy.buckets:
            self.buckets.popitem(last=False)
        if bucket.calls == _NEVER:
            return None
        bucket.note(args, self.program.lasting)
        if bucket.calls < self.policy.calls_before(self.evicted):
            bucket.calls += 1
            return None
        self.program.check()  # what an earlier call has found is no failure of the capture
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
    """Those around a replay, by type: ``inputs``: where the graph reads, and the positions of what is copied there, of
    which ``expanded`` are not copied as they are; ``results``: positions in ``memory``, which they are copied from."""

    moving: list[int]
    expanded: list[int]
    inputs: list[tuple[list[torch.Tensor], list[int]]]
    results: list[list[int]]
    memory: list[torch.Tensor]

    @classmethod
    def of(
        cls, args: Sequence[Any], moving: list[int], statics: list[torch.Tensor], memory: list[torch.Tensor]
    ) -> Copies:
        kinds = [([statics[j] for j in kind], [moving[j] for j in kind]) for kind in _by_type(statics)]
        return cls(moving, [i for i in moving if 0 in args[i].stride()], kinds, _by_type(memory), memory)


@dataclass
class Recording:
    """A captured graph. ``expected``: the arguments, as far as it depends on them; ``fixed``: addresses of inputs that
    it reads where they are, besides those of the key."""

    program: Uncaptured
    device: GraphDevice
    graph: Graph
    copies: Copies
    results: Results
    expected: SameInputs
    fixed: dict[int, int]

    @torch.no_grad()
    def replay(self, args: list[Any]) -> Any:
        """What the program returns for these arguments."""
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
    """Captures a call with these arguments, of which those that are ``moving`` are read from memory of the pool."""

    def like(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=x.device)

    def warm_up() -> None:
        """With copies: they are aligned as memory of the pool is, so that kernels of the same variants run."""
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
    """Positions of the tensors that are copied before a replay. NotCaptured where a copy cannot stand for one."""
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
    """Of an expanded tensor each element once: others can be copied to."""
    if 0 not in x.stride():
        return x
    sizes = [min(size, 1) if stride == 0 else size for size, stride in zip(x.size(), x.stride())]
    return x.as_strided(sizes, x.stride())


def _reach(x: torch.Tensor) -> int:
    """How many elements lie between the first and the last one in memory."""
    return sum(stride * (size - 1) for stride, size in zip(x.stride(), x.size()) if size > 1)


def overlaps(x: torch.Tensor) -> bool:
    """Whether two elements may be one place in memory; False says that they are not."""
    reach = 0
    for stride, size in sorted((stride, size) for stride, size in zip(x.stride(), x.size()) if size > 1):
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def _size(result: Any) -> int:
    """Bytes of the memory of results; what is an input counts too, which is more than is copied."""
    tensors = [x for x in pytree.tree_leaves(result) if isinstance(x, torch.Tensor)]
    return sum({x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in tensors}.values())


def _by_type(tensors: Sequence[torch.Tensor]) -> list[list[int]]:
    found: dict[torch.dtype, list[int]] = {}
    for i, x in enumerate(tensors):
        if x.numel():
            found.setdefault(x.dtype, []).append(i)
    return list(found.values())
