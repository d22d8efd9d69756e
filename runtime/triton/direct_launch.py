"""Triton's machine code launched by PyTorch's own launcher, where PyTorch has one.

Triton makes a launcher for each signature: a C compiler runs for the first kernel that has it, and three functions in
Python stand before each launch. The launcher of PyTorch (torch/csrc/inductor/static_launcher) is one call for any
signature. It knows neither hooks nor scratch memory: kernels with these are launched as Triton does.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from typing import Any, Final

from symshape.runtime.torch_c import raw_stream, static_launcher

Launch = Callable[[int, tuple[Any, ...]], None]  # programs, arguments but constants
_KINDS: Final = {"i32": "i", "i64": "l", "fp32": "f"}  # of numbers; what begins with "*" is an address
_SCRATCH: Final = ("global_scratch_size", "profile_scratch_size")
_MOST_ARGUMENTS: Final = 118  # with two addresses of scratch memory


def direct_launch(compiled: Any, signature: Mapping[str, str], device: int) -> Launch | None:
    """A launch of Triton's compiled kernel on a GPU, which is the current device then and now; None where it takes
    Triton's launcher. ``signature``: types of the arguments by name."""
    launcher = static_launcher()
    if launcher is None:
        return None
    (load, launch), metadata = launcher, compiled.metadata
    types = [_kind(type_) for type_ in signature.values() if type_ != "constexpr"]
    scratch = [getattr(metadata, name) for name in _SCRATCH if hasattr(metadata, name)]
    simple = None not in types and len(types) <= _MOST_ARGUMENTS and not any(scratch) and metadata.num_ctas == 1
    if not simple or _hooked():
        return None
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        function = load(file.name, metadata.name, metadata.shared, device)[-3]
    warps, shared = metadata.num_warps, metadata.shared
    kinds, more = "".join(map(str, types)) + "O" * len(scratch), (None,) * len(scratch)

    def run(programs: int, args: tuple[Any, ...]) -> None:
        launch(function, programs, 1, 1, warps, shared, kinds, args + more, raw_stream(device))

    return run


def _kind(type_: str) -> str | None:
    return "O" if type_.startswith("*") else _KINDS.get(type_)


def _hooked() -> bool:
    """Whether somebody wants to know of each launch of Triton's."""
    from triton import knobs

    hooks = (knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook)
    return any(hook is not None and getattr(hook, "calls", True) for hook in hooks)
