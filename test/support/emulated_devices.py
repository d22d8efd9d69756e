"""GPUs that are CPU memory: programs of tensors on several devices are traced, compiled and run without a GPU.

An ``Emulated`` tensor says that it is on "cuda:0" (or another GPU) and holds a CPU tensor. What runs on it obeys the
rules of eager mode: operands are on one device, but for those without dims on the CPU; indices may be on the CPU;
copies go between any two. A kernel of ours is run by Triton's interpreter, and faults if it is given a tensor of
another device than the program's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
import torch.utils._pytree as pytree
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.utils._python_dispatch import TorchDispatchMode

from symshape import compiler
from symshape.frontend.decompositions.table import decomposition_table
from symshape.frontend.graph_rewrites.masks import rewrite_masks
from symshape.options import Options
from symshape.runtime import program as programs
from symshape.runtime.load_kernels import load_kernels


class WrongDevice(AssertionError):
    """Something read or wrote a tensor of another device than its own."""


class Emulated(torch.Tensor):
    """A tensor that says that it is on a GPU; ``memory`` is a CPU tensor."""

    memory: torch.Tensor

    @staticmethod
    def __new__(cls, memory: torch.Tensor, device: torch.device) -> Emulated:
        """Of the same sizes, strides and type as its memory."""
        made: Emulated = torch.Tensor._make_wrapper_subclass(
            cls,
            memory.size(),
            strides=memory.stride(),
            storage_offset=memory.storage_offset(),
            dtype=memory.dtype,
            device=device,
        )
        made.memory = memory
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Emulated({self.device}, {self.memory})"


class Devices(TorchDispatchMode):
    """While entered, what is made on a GPU is emulated."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})


# What moves data between devices, and what takes indices of another one (the positions that may be on the CPU).
_COPIES = frozenset({"aten::_to_copy", "aten::copy_", "aten::copy", "aten::_copy_from"})
_INDICES = {"aten::index": 1, "aten::index_put": 1, "aten::index_put_": 1, "aten::_unsafe_index": 1}


def run(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """An operator as eager mode runs it: on the device of its operands, or where it is told to. WrongDevice where eager
    mode refuses the operands."""
    name = func._schema.name
    if name == "prims::device_put":  # a transfer
        return on(memory(args[0]), str(torch.device(args[1])))
    told = kwargs.get("device")
    device = _device_of(name, args, kwargs) if told is None else torch.device(told)
    if name in _COPIES and told is None:
        device = args[0].device
    wrappers = {id(t.memory): t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, Emulated)}
    given_args, given = pytree.tree_map_only(Emulated, lambda t: t.memory, (tuple(args), dict(kwargs)))
    if told is not None:
        given["device"] = torch.device("cpu")
    result = func(*given_args, **given)
    if device.type == "cpu":
        return result
    known = lambda t: wrappers[id(t)] if id(t) in wrappers else Emulated(t, device)  # noqa: E731
    return pytree.tree_map_only(torch.Tensor, known, result)


def _device_of(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.device:
    indices = pytree.tree_leaves(args[_INDICES[name]]) if name in _INDICES else []
    tensors = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    counted = [t for t in tensors if not (t.device.type == "cpu" and any(t is index for index in indices))]
    devices = {t.device for t in counted if t.dim() or t.device.type != "cpu"} or {t.device for t in counted}
    if len(devices) > 1 and name not in _COPIES:
        raise WrongDevice(f"{name} of tensors on {sorted(map(str, devices))}")
    return next(iter(devices), torch.device("cpu"))


@dataclass
class Compiled:
    """A program of a function: its text, the kernels, the calls that stay and why, and how it is run."""

    built: compiler.Built
    graph: torch.fx.GraphModule
    autotune: bool = False

    @property
    def source(self) -> str:
        return self.built.program.source

    @property
    def kept(self) -> dict[str, str]:
        return {one.target: one.reason for one in self.built.report.remarks.get("lower-aten", ())}

    def __call__(self, *inputs: Any) -> Any:
        """On emulated tensors. WrongDevice where a kernel or a call is given what it cannot reach."""
        program = self.built.program
        own = torch.device(program.device)
        kernels = load_kernels(self.built.kernels.image, autotune=self.autotune)
        with ExitStack() as stack:
            slot = torch.zeros(1, dtype=torch.int64)
            for name, function in _memory_functions(slot).items():
                stack.enter_context(mock.patch.object(programs, name, function))
            launches = {name: _reachable(kernel, own, slot) for name, kernel in kernels.items()}
            loaded = programs.load_program(program, launches)
            with Devices():
                return loaded(list(inputs))


def _reachable(kernel: Callable[..., None], own: torch.device, slot: torch.Tensor) -> Callable[..., None]:
    """The kernel, given tensors of its device, numbers, and the slot for errors, which is memory of the host."""

    def launch(*args: Any) -> None:
        for position, value in enumerate(args):
            if isinstance(value, torch.Tensor) and value is not slot and value.device != own:
                raise WrongDevice(f"argument {position} of a kernel on {own} is on {value.device}")
        kernel(*(value.memory if isinstance(value, Emulated) else value for value in args))

    return launch


def _memory_functions(slot: torch.Tensor) -> dict[str, Any]:
    """What the program asks of memory, by the name in symshape.runtime.program."""

    def emulated(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def call(x: torch.Tensor, *rest: Any) -> torch.Tensor:
            if not isinstance(x, Emulated):
                return function(x, *rest)
            return Emulated(function(x.memory, *rest), x.device)

        return call

    def allocator(device: str) -> Callable[..., torch.Tensor]:
        def empty(sizes: Any, strides: Any, dtype: torch.dtype) -> torch.Tensor:
            made = torch.empty_strided(sizes, strides, dtype=dtype)
            return made if device == "cpu" else Emulated(made, torch.device(device))

        return empty

    def number_of(x: torch.Tensor) -> int | float:
        if isinstance(x, Emulated):
            raise WrongDevice(f"the host reads a number on {x.device}")
        return plain_number(x)

    plain_number = programs._number_of
    return {
        "reinterpret_tensor": emulated(programs.reinterpret_tensor),
        "differentiable_view": emulated(programs.differentiable_view),
        "memory_of": emulated(programs.memory_of),
        "_allocator": allocator,
        "_number_of": number_of,
        "_slot_maker": lambda _program: lambda: slot,
    }


def compile_on(function: Callable[..., Any], inputs: Sequence[torch.Tensor], devices: Sequence[str]) -> Compiled:
    """A functional program of tensors on ``devices``, whose sizes are all dynamic. Strict: a step that fails raises."""
    mode = FakeTensorMode(shape_env=ShapeEnv(duck_shape=False), allow_non_fake_inputs=True)
    fakes = [_fake(mode, x, device, f"x{i}") for i, (x, device) in enumerate(zip(inputs, devices, strict=True))]
    with mode, enable_python_dispatcher():
        graph = make_fx(function, decomposition_table=decomposition_table(), _allow_non_fake_inputs=True)(*fakes)
    graph.graph.eliminate_dead_code()
    graph, _ = rewrite_masks(graph)
    built = []

    def keep(made: compiler.Built, *_rest: Any) -> Any:
        built.append(made)
        return mock.MagicMock()

    with mock.patch.object(compiler, "load", keep):
        compiler.compile_graph(graph, Options(strict=True), kind="inference", keep_stages=True)
    return Compiled(built[-1], graph)


def _fake(mode: FakeTensorMode, x: torch.Tensor, device: str, name: str) -> torch.Tensor:
    dynamic = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] * x.dim())
    shape = mode.from_tensor(x.to("meta"), source=ConstantSource(name), symbolic_context=dynamic).shape
    with mode:
        return torch.empty(shape, dtype=x.dtype, device=device)


def on(x: torch.Tensor, device: str) -> torch.Tensor:
    """A copy of a CPU tensor on a device; on "meta" without elements."""
    if device == "meta":
        return x.to("meta")
    return x.clone() if device == "cpu" else Emulated(x.clone(), torch.device(device))


def memory(x: Any) -> Any:
    """The elements of a tensor on any device."""
    return x.memory if isinstance(x, Emulated) else x
