"""Launches Triton kernels with the variant and number of warps measured to be fastest.

Every variant whose condition holds is correct (``kernel_types.TritonVariant``). The fastest is measured at the first
launch for a bucket of sizes (powers of two), and stored on disk.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Callable
from typing import Any

import torch

from symshape.artifact.triton_kernels import TritonKernel, TritonVariant
from symshape.runtime.autotune import Autotuner, bucket_of
from symshape.runtime.triton.launch import interpreting, load_triton, processor_count

_MOST_WARPS = 16
Launch = Callable[..., None]


def load_tuned(kernel: TritonKernel, tuner_of: Callable[[torch.device], Autotuner] | None = None) -> Launch:
    """Like ``load_triton``, but chooses the variant by measured time. ``tuner_of`` is replaced in tests."""
    candidates = [v for variant in kernel.variants for v in _with_warps(variant, not interpreting())]
    launch_of = functools.cache(lambda i: load_triton(_only(kernel, candidates[i])))
    facts = _facts(kernel, candidates)
    identity = hashlib.sha256(repr(kernel).encode()).hexdigest()
    first, (placed, _) = len(kernel.tensors), kernel.placed[0]
    known: dict[tuple[Any, ...], int] = {}

    def choose(device: torch.device, bucket: tuple[int, ...], able: list[int], args: tuple[Any, ...]) -> int:
        scratch = (*_scratch(kernel, args[:first]), *args[first:])
        names = [candidates[i].name for i in able]
        tuner = (tuner_of or _tuner)(device)
        run = lambda i: launch_of(able[i])(*scratch)  # noqa: E731
        return able[tuner.choose(f"{kernel.name} {identity}", str(bucket), names, run)]

    def launch(*args: Any) -> None:
        xnumel, rnumel, holding = facts(*args)
        if xnumel <= 0:
            return
        device, bucket = args[placed].device, bucket_of(xnumel, rnumel)
        chosen = known.get((device, holding, bucket))
        if chosen is None:
            able = _worth_measuring(candidates, [i for i, holds in enumerate(holding) if holds])
            if _is_captured(device):  # measuring is impossible during capture, so the choice is not stored
                chosen = able[0]
            else:
                chosen = known[device, holding, bucket] = choose(device, bucket, able, args)
        launch_of(chosen)(*args)

    return launch


@functools.cache
def _tuner(device: torch.device) -> Autotuner:
    return Autotuner(device)


def _worth_measuring(candidates: list[TritonVariant], able: list[int]) -> list[int]:
    """The candidates in ``able``, without persistent variants with blocks over twice the smallest such block."""
    held = {i: dict(candidates[i].stages[0].constants)["RBLOCK"] for i in able if candidates[i].form == "persistent"}
    least = min(held.values(), default=0)
    return [i for i in able if held.get(i, 0) <= 2 * least]


def _with_warps(variant: TritonVariant, warps: bool) -> list[TritonVariant]:
    """The variant, and copies of it with half and twice the warps in the first launch."""
    stage, *rest = variant.stages
    own = stage.num_warps
    others = [n for n in (own // 2, own * 2) if 1 <= n <= _MOST_WARPS] if warps else []
    return [
        variant,
        *(
            dataclasses.replace(
                variant, name=f"{variant.name}_w{n}", stages=(dataclasses.replace(stage, num_warps=n), *rest)
            )
            for n in others
        ),
    ]


def _only(kernel: TritonKernel, variant: TritonVariant) -> TritonKernel:
    """The kernel with a single variant, which is launched unconditionally."""
    body, own = _readings(kernel), []
    if variant.splits:
        body.append(f"splits = {variant.splits}")
        for dtype, size in variant.workspace:
            body.append(f"workspace_{dtype} = empty({size}, {dtype!r}, device)")
            own.append(f"workspace_{dtype}")
        own.append("splits")
    tensors = [name if name in kernel.by_value else f"{{{name}}}" for name, _ in kernel.tensors]
    given = ", ".join([*tensors, *_arguments(kernel)[len(tensors) :], *own])
    for i, stage in enumerate(variant.stages):
        name = variant.name if len(variant.stages) == 1 else f"{variant.name}_{i}"
        body.append(f"{name}(device, {stage.programs}, {given})")
    return dataclasses.replace(kernel, variants=(variant,), launcher=_text(kernel, "launch", body))


def _facts(kernel: TritonKernel, variants: list[TritonVariant]) -> Callable[..., tuple[int, int, tuple[bool, ...]]]:
    """A function of a launch's arguments that returns the numbers of parallel and of reduced points, and for each
    variant whether its condition holds."""
    holding = ", ".join(f"bool({v.condition})" for v in variants)
    text = _text(kernel, "facts", [*_readings(kernel), f"return xnumel, rnumel, ({holding},)"])
    scope: dict[str, Any] = {"processor_count": processor_count, "max": max, "min": min}
    exec(compile(text, f"<conditions of {kernel.name}>", "exec"), scope)
    facts: Callable[..., tuple[int, int, tuple[bool, ...]]] = scope["facts"]
    return facts


def _readings(kernel: TritonKernel) -> list[str]:
    """Lines that define the names used in conditions, split counts and grids."""
    addresses = [f"address{i} = {name}.data_ptr()" for i, name in kernel.placed]
    device = [f"device = {kernel.placed[0][1]}.device", "processors = processor_count(device)"]
    return [f"xnumel = {kernel.xnumel}", f"rnumel = {kernel.rnumel}", *addresses, *device]


def _arguments(kernel: TritonKernel) -> list[str]:
    return [*(name for name, _ in kernel.tensors), *kernel.symbols, *(["error_slot"] if kernel.checks_index else [])]


def _text(kernel: TritonKernel, name: str, body: list[str]) -> str:
    return "\n".join([f"def {name}({', '.join(_arguments(kernel))}):", *(f"    {line}" for line in body), ""])


def _scratch(kernel: TritonKernel, tensors: tuple[Any, ...]) -> list[torch.Tensor]:
    """The tensors, with outputs replaced by copies, since an output may also be an input."""
    return [_copy(tensor) if name.startswith("out") else tensor for (name, _), tensor in zip(kernel.tensors, tensors)]


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    made = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return made.copy_(tensor)


def _is_captured(device: torch.device) -> bool:
    """Whether launches on a device are being captured in a CUDA graph. Asks about that device's current stream, not the
    current device's."""
    if device.type != "cuda":
        return False
    with torch.cuda.device(device):
        return torch.cuda.is_current_stream_capturing()
