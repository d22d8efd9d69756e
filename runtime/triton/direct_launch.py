"""Launches Triton's machine code with PyTorch's static launcher, if this PyTorch has one.

Triton generates a C launcher for each signature, which runs a C compiler at first use, and three Python functions
precede each launch. PyTorch's launcher (torch/csrc/inductor/static_launcher) is a single call for all signatures. It
supports neither launch hooks nor scratch memory: kernels that need them are launched by Triton.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from typing import Any, Final

from symshape.runtime.torch_c import raw_stream, static_launcher

Launch = Callable[[int, tuple[Any, ...]], None]  # number of programs, arguments without constexprs
_KINDS: Final = {"i32": "i", "i64": "l", "fp32": "f"}  # type codes of numbers; types that begin with "*" are pointers
_SCRATCH: Final = ("global_scratch_size", "profile_scratch_size")
_MOST_ARGUMENTS: Final = 118  # leaves room for two scratch pointers in PyTorch's limit


def direct_launch(compiled: Any, signature: Mapping[str, str], device: int) -> Launch | None:
    """A launch of Triton's compiled kernel on GPU ``device``, which must be current both now and at the launch. None if
    the kernel needs Triton's own launcher. ``signature``: types of the arguments by name."""
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
    """Whether a hook is registered for Triton's launches."""
    from triton import knobs

    hooks = (knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook)
    return any(hook is not None and getattr(hook, "calls", True) for hook in hooks)
