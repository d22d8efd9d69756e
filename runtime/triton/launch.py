"""Loads and runs generated Triton kernels: on a GPU, or on CPU tensors under TRITON_INTERPRET=1."""

from __future__ import annotations

import functools
import linecache
import os
import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import torch

from symshape.artifact.element_types import DTYPES
from symshape.artifact.triton_kernels import TritonKernel, TritonStage, TritonVariant
from symshape.errors import KernelError
from symshape.runtime.torch_c import current_gpu
from symshape.runtime.triton.binary import compile_stage, signature
from symshape.runtime.triton.counters import zero_counters
from symshape.runtime.triton.direct_launch import Launch, direct_launch
from symshape.runtime.triton.interpreter import comparisons_are_bools

# Number of multiprocessors that launchers see in interpreter mode on CPU tensors.
INTERPRETED_PROCESSORS: Final = 16
_NONE: Final[Mapping[str, Callable[..., None]]] = MappingProxyType({})
_ON: Final = ("1", "true", "on", "yes")
_INTERPRETER: Final = threading.Lock()  # while it runs a kernel, the interpreter replaces functions of triton.language
_DTYPES: Final = {text: getattr(torch, name) for name, text in DTYPES.items()}


def interpreting() -> bool:
    """Whether kernels are interpreted. KernelError if TRITON_INTERPRET changed after triton was imported."""
    wanted = os.environ.get("TRITON_INTERPRET", "0").lower() in _ON
    import triton.language as tl
    from triton.runtime.interpreter import InterpretedFunction

    actual = isinstance(tl.sum, InterpretedFunction)
    if wanted != actual:
        raise KernelError(
            f"TRITON_INTERPRET={int(wanted)} was set after triton was imported, which took it as {int(actual)}",
            where="the environment of this process",
            next_step="set TRITON_INTERPRET before the first import of triton (best in the shell), and start again",
        )
    return actual


def load_source(kernel: TritonKernel) -> dict[str, Any]:
    """Executes a kernel's source and returns its namespace. The source is added to linecache, where Triton reads it."""
    file = f"<triton {kernel.name} {hash(kernel.source) & 0xFFFFFFFF:08x}>"
    linecache.cache[file] = (len(kernel.source), None, kernel.source.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"__name__": f"symshape_triton_{kernel.name}"}
    exec(compile(kernel.source, file, "exec"), namespace)
    return namespace


def load_triton(
    kernel: TritonKernel, processors: int | None = None, others: Mapping[str, Callable[..., None]] = _NONE
) -> Callable[..., None]:
    """The kernel as a callable of tensors, symbols and, if it checks indices, the error slot (an int64 tensor).

    A variant is compiled when it is first chosen; the source is executed only then. ``processors``: overrides the
    device's number of multiprocessors in conditions and split counts. ``others``: kernels that this one launches, by
    name.
    """
    interpreted = interpreting()
    if interpreted:
        comparisons_are_bools()
    functions = functools.cache(lambda: load_source(kernel))
    namespace: dict[str, Any] = {"processor_count": processor_count, "empty": _empty, "max": max, "min": min}
    namespace["zero_counters"] = zero_counters
    namespace.update((name, others[name]) for name in kernel.calls)
    if processors is not None:
        namespace["processor_count"] = lambda _device: processors
    make = _Interpreted if interpreted else _Compiled
    for variant in kernel.variants:
        for i, stage in enumerate(variant.stages):
            name = variant.name if len(variant.stages) == 1 else f"{variant.name}_{i}"
            namespace[name] = make(kernel, variant, stage, functions)
    text = launcher_source(kernel, addresses=not interpreted)
    exec(compile(text, f"<launcher of {kernel.name}>", "exec"), namespace)
    launch: Callable[..., None] = namespace["launch"]
    return launch


def launcher_source(kernel: TritonKernel, addresses: bool) -> str:
    """The launcher with tensors passed as ``addresses`` (compiled code), or as tensors (interpreter)."""
    names = [name for name, _ in kernel.tensors]
    given = {name: f"address{i}" if addresses else name for i, name in enumerate(names)}
    return functools.reduce(lambda text, name: text.replace(f"{{{name}}}", given[name]), names, kernel.launcher)


Functions = Callable[[], dict[str, Any]]


class _Interpreted:
    """One launch of a variant in the interpreter, on CPU or GPU tensors."""

    def __init__(self, kernel: TritonKernel, variant: TritonVariant, stage: TritonStage, functions: Functions) -> None:
        import triton.language as tl

        self.stage, self.functions = stage, functions
        types = [type_ for _, type_ in kernel.arguments(stage.function)]
        self.narrow = [i for i, type_ in enumerate(types) if type_ == "int" and variant.index_bits == 32]
        self.constants = {"INDEX": getattr(tl, variant.index_dtype), **dict(stage.constants)}

    def __call__(self, device: torch.device, programs: int, *args: Any) -> None:
        import numpy

        function = self.functions()[self.stage.function]
        for i in self.narrow:
            if not -(1 << 31) <= args[i] < 1 << 31:
                problem = f"argument {i} is {args[i]}: a GPU would take its last 32 bits"
                raise KernelError(problem, where=self.stage.function, next_step="this is a bug of the code generator")
        with _INTERPRETER, numpy.errstate(all="ignore"):  # lanes out of bounds compute with zeros
            function[(programs,)](*args, **self.constants)


class _Compiled:
    """One launch of a variant on a GPU; compiled for each device at its first launch there.

    Bypasses Triton's dispatch, which would inspect every argument to find its specialisation: the variant determines
    it.
    """

    def __init__(self, kernel: TritonKernel, variant: TritonVariant, stage: TritonStage, functions: Functions) -> None:
        import triton.language as tl

        self.kernel, self.variant, self.stage, self.functions = kernel, variant, stage, functions
        self.constants = (getattr(tl, variant.index_dtype), *(value for _, value in stage.constants))
        self.loaded: dict[int, Launch] = {}

    def __call__(self, device: torch.device, programs: int, *args: Any) -> None:
        launch = self.loaded.get(device.index) or self.load(device)
        if device.index == current_gpu():
            launch(programs, args)
        else:
            with torch.cuda.device(device):
                launch(programs, args)

    def load(self, device: torch.device) -> Launch:
        """Compiles and loads the launch for a device, with Triton's cache on disk. KernelError for a CPU."""
        if device.type != "cuda":
            step = "set TRITON_INTERPRET=1 before triton is imported, or use target 'cpu'"
            raise KernelError("a Triton kernel was launched on CPU tensors", where=self.stage.function, next_step=step)
        with torch.cuda.device(device):
            function = self.functions()[self.stage.function]
            compiled = compile_stage(self.kernel, self.variant, self.stage, function)
            types = signature(self.kernel, self.variant, self.stage)["signature"]
            launch = direct_launch(compiled, types, device.index) or self._by_triton(compiled)
        self.loaded[device.index] = launch
        return launch

    def _by_triton(self, compiled: Any) -> Launch:
        return lambda programs, args: compiled[(programs, 1, 1)](*args, *self.constants)


@functools.cache
def processor_count(device: torch.device) -> int:
    """Number of multiprocessors of a GPU."""
    if device.type != "cuda":
        return INTERPRETED_PROCESSORS
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def _empty(size: int, dtype: str, device: torch.device) -> torch.Tensor:
    return torch.empty(size, dtype=_DTYPES[dtype], device=device)
