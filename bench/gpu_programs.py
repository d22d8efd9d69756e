"""Programs of bench/gpu.py: masks without waiting, programs of two devices, padded matrix products."""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
from gpu_kernels import DTYPES, compared
from gpu_run import Job, Row, Run, Work
from mask_programs import CASES, differentiated, own
from mixed_devices import MIXED

from symshape.options import Options
from symshape.tools.measure import compile_for, no_synchronisation, relative_error, tensors_of

ELEMENTS: Final = 1 << 24
SHARE: Final = 0.5  # of a mask that is true
PADDING: Final = "pad_products"  # the option that is switched on and off
PRODUCTS: Final = ((1025, 1025, 1025), (4097, 4095, 4097), (255, 255, 255), (1001, 4096, 1001), (33, 8191, 8191))
MIXED_SIZES: Final = ((5, 7), (1, 1), (0, 3), (1009, 2003))


# Masks.


def waits(run: Run, call: Callable[[], Any]) -> str:
    """That the call waits for the GPU, as PyTorch says it, and where; "" if it does not."""
    try:
        with no_synchronisation(run.device != "cpu"):
            call()
    except RuntimeError as error:
        where = [f"{frame.f_code.co_filename}:{line}" for frame, line in traceback.walk_tb(error.__traceback__)]
        return f"{str(error).splitlines()[0]}, at {', '.join(where[-3:])}"
    return ""


def mask_calls(run: Run, number: int, backward: bool, n: int) -> dict[str, Callable[[], Any]]:
    """The program in each way, bound to inputs on the device and compiled."""
    case = CASES[number]
    torch.manual_seed(0)
    inputs = [x.to(run.device) for x in case.inputs(n, SHARE)]
    leaves = [x.requires_grad_() for x in inputs if backward and x.is_floating_point()]
    ways: dict[str, Callable[..., Any]] = {
        "eager": case.masked,
        "inductor": compile_for("eager" if run.dry else "inductor", own(case.masked)),
        "symshape": compile_for("symshape", own(case.masked), **run.options),
        "by hand": compile_for("symshape", own(case.by_hand), **run.options),
    }
    made = {name: differentiated(fn, leaves) if backward else fn for name, fn in ways.items()}
    return {name: partial(fn, *inputs) for name, fn in made.items()}


def measure_mask(run: Run, number: int, backward: bool, n: int) -> Work:
    """Times of the mask form, and whether a call waits for the GPU once it is compiled."""
    calls = mask_calls(run, number, backward, n)
    results = {name: call() for name, call in calls.items()}
    error = relative_error(results["symshape"], results["eager"])
    yield
    return {
        **compared(run.times(calls)),
        "waits": waits(run, calls["symshape"]),
        "error": error,
        "accurate": error <= 1e-4,
    }


def mask_jobs(dry: bool) -> list[Job]:
    n = 64 if dry else ELEMENTS
    found = []
    for number, case in enumerate(CASES[:1] if dry else CASES):
        for backward in (False, True):
            name = f"{case.name}{', with backward' if backward else ''}"
            work = partial(measure_mask, number=number, backward=backward, n=n)
            found.append(Job("masks", name, "float32", (n,), work, expected=12.0))
    return found


# Programs of two devices.


def check_mixed(run: Run, name: str) -> Row:
    """A program of tensors on the CPU and on the device, at several sizes: equal to eager mode, where eager mode puts
    it."""
    mixed = MIXED[name]
    call = partial(mixed.run, run.device)
    compiled = compile_for("symshape", call, **run.options)
    worst, devices = 0.0, True
    for n, m in MIXED_SIZES[:3] if run.dry else MIXED_SIZES:
        given = mixed.make(n, m)
        sides = [[x.to(run.device if there else "cpu", copy=True) for x, there in zip(given, mixed.on_device)]
                 for _ in range(2)]  # fmt: skip
        actual, expected = tensors_of(compiled(*sides[0])), tensors_of(call(*sides[1]))
        devices = devices and [t.device for t in actual] == [t.device for t in expected]
        worst = max(worst, *(relative_error(a.cpu(), b.cpu()) for a, b in zip(actual, expected, strict=True)))
    return {"error": worst, "same_devices": devices, "accurate": devices and worst <= 1e-4}


def mixed_jobs(dry: bool) -> list[Job]:
    names = list(MIXED)[:1] if dry else list(MIXED)
    return [Job("mixed", name, "", (), partial(check_mixed, name=name), expected=1.0) for name in names]


# Padded products.


def can_pad() -> bool:
    """Whether there is the option."""
    return PADDING in {field.name for field in dataclasses.fields(Options)}


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.relu(a @ b + 1)


def measure_padding(run: Run, dtype: str, shape: tuple[int, int, int]) -> Work:
    """A product of odd sizes with the option and without."""
    m, k, n = shape
    a, b = (torch.randn(sizes, device=run.device, dtype=DTYPES[dtype]) for sizes in ((m, k), (k, n)))
    ways: dict[str, Callable[..., Any]] = {"eager": product}
    for name, pad in (("symshape", True), ("unpadded", False)):
        ways[name] = compile_for("symshape", own(product), **run.options, **{PADDING: pad})
    ways["inductor"] = compile_for("eager" if run.dry else "inductor", own(product))
    exact = product(a.double(), b.double())
    errors = {name: relative_error(call(a, b).double(), exact) for name, call in ways.items()}
    yield
    times = run.times({name: partial(call, a, b) for name, call in ways.items()})
    floor = float(torch.finfo(DTYPES[dtype]).eps)
    return {**compared(times), "errors": errors, "accurate": errors["symshape"] <= max(2 * errors["eager"], floor)}


def padding_jobs(run: Run) -> list[Job]:
    if not can_pad():
        run.notes.append(f"padding was left out: there is no option {PADDING}")
        return []
    shapes = ((5, 7, 3),) if run.dry else PRODUCTS
    return [
        Job("padding", "product", dtype, shape, partial(measure_padding, dtype=dtype, shape=shape))
        for dtype in ("bfloat16", "float32")
        for shape in shapes
    ]
