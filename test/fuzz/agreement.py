"""Runs a program compiled and in eager mode at its sizes; what differs is a `Finding`.

One compile serves all sizes. What PyTorch gets wrong without us is told from our errors by running the same with the
backend "aot_eager": the tracer, functionalisation and decompositions are its, kernels and sizes are ours.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch._dynamo.config
import torch.utils._pytree as pytree
from source import Source

sys.path += [str(Path(__file__).parent.parent / folder) for folder in ("programs", "support")]
from compare import OtherLayout, assert_same, run, storages, tensors_of  # noqa: E402
from poison import guarded  # noqa: E402

import symshape  # noqa: E402
from symshape.tools.measure import Graphs  # noqa: E402

Compiler = Callable[[Any], Any]
BACKENDS: dict[str, Compiler] = {
    "symshape": functools.partial(torch.compile, backend="symshape", dynamic=True),
    "settings": symshape.compile,
    "jit": symshape.jit,
    "triton": functools.partial(torch.compile, backend="symshape", dynamic=True, options={"target": "triton"}),
    "aot_eager": functools.partial(torch.compile, backend="aot_eager", dynamic=True),
    "eager": functools.partial(torch.compile, backend="eager", dynamic=True),
}


@dataclass(frozen=True)
class Finding:
    """``kind``: "value", "layout" (strides, shared memory), "error" (raised where eager does not, or another type),
    "graphs" (more than backend="eager"), "slow". ``whose``: "symshape"; "pytorch" where aot_eager has the same kind of
    difference; "refused" where it is what symshape.jit says of a program that reads the value of a tensor. ``at``: at
    which of the program's sizes."""

    kind: str
    message: str
    whose: str = "symshape"
    at: int | None = None

    @property
    def type_(self) -> str:
        """Of an error, the exception that is raised, and the one behind a backend's."""
        if self.kind != "error":
            return ""
        names = [line.split(":")[0] for line in self.message.splitlines()[1:] if re.match(r"[A-Za-z.]+: ?", line)]
        return " ".join(names[:2])


class Different(Exception):
    """A difference, as a Finding."""

    def __init__(self, kind: str, message: str, at: int) -> None:
        super().__init__(message)
        self.finding = Finding(kind, message, at=at)


def arguments(
    source: Source, names: dict[str, Any], n: int, wide: bool = False, constant_ones: bool = False, guard: bool = False
) -> list[Any]:
    """What ``program`` is called with. ``wide``: the same numbers in float64, sharing memory where they share it.
    ``constant_ones``: sizes of 0 and 1 are marked as static. ``guard``: their memory ends at guard pages."""
    torch.manual_seed(n)
    made = names["inputs"](*source.sizes[n])
    floating = [isinstance(x, torch.Tensor) and x.is_floating_point() for x in made]
    if wide:
        made = widened(made, floating)
    if guard:
        made = guarded(made)
    for x in tensors_of(made) if constant_ones else ():
        for dim in (d for d, size in enumerate(x.shape) if size < 2):
            torch._dynamo.mark_static(x, dim)
    return [x.requires_grad_(source.gradient) if is_floating else x for x, is_floating in zip(made, floating)]


def widened(made: list[Any], floating: list[bool]) -> list[Any]:
    """Of one tensor one, and of tensors of one memory and type tensors of one memory."""
    memories: dict[tuple[int, torch.dtype], torch.Tensor] = {}
    found: dict[int, Any] = {}
    for x, is_floating in zip(made, floating):
        if is_floating and id(x) not in found:
            storage = x.untyped_storage()
            count = storage.nbytes() // x.element_size()
            key = (storage.data_ptr() if count else id(x), x.dtype)
            if key not in memories:
                memories[key] = x.as_strided((count,), (1,), 0).double()
            found[id(x)] = memories[key].as_strided(x.shape, x.stride(), x.storage_offset())
    return [found.get(id(x), x) for x in made]


def outcome(function: Any, inputs: list[Any], gradient: bool) -> Any:
    """What `run` sees, or the error."""
    try:
        return run([function(*inputs)], [inputs], gradient)[0]
    except Exception as error:  # noqa: BLE001 (any type is compared)
        return error


def coarsest_type(inputs: list[Any]) -> torch.dtype:
    """The least exact type of floats among the inputs."""
    found = [x.dtype for x in inputs if isinstance(x, torch.Tensor) and x.is_floating_point()]
    return max(found, key=lambda dtype: torch.finfo(dtype).eps, default=torch.float64)


def reference(source: Source, n: int, expected: Any) -> Any:
    """In float64. ``expected`` itself where a rounding decided something."""
    plain = arguments(source, source.load(), n)
    torch.set_default_dtype(torch.float64)
    try:
        names = source.load(wide=True)
        found = outcome(names["program"], arguments(source, source.load(), n, wide=True), source.gradient)
    finally:
        torch.set_default_dtype(torch.float32)
    leaves = pytree.tree_leaves(found), pytree.tree_leaves(expected)
    if isinstance(found, Exception) or len(leaves[0]) != len(leaves[1]):
        return expected
    half = coarsest_type(plain) in (torch.float16, torch.bfloat16)
    for x, y in zip(*leaves):
        if isinstance(x, torch.Tensor) and (x.shape != y.shape or not same_finite(x, y, half)):
            return expected
    return found


def same_finite(wide: torch.Tensor, narrow: torch.Tensor, half: bool) -> bool:
    """Whether the same elements are finite; those of a half type may have overflowed."""
    finite = wide.isfinite()
    return torch.equal(finite & narrow.isfinite() if half else finite, narrow.isfinite())


def compare(
    n: int, actual: Any, expected: Any, wide: Any, ours: list[Any], theirs: list[Any], layouts: bool = True
) -> None:
    """One size; Different says what differs, in ``layouts`` or else."""
    if isinstance(expected, Exception) or isinstance(actual, Exception):
        if type(actual) is type(expected):
            return
        shown = [f"{type(x).__name__}: {x}" if isinstance(x, Exception) else "no error" for x in (actual, expected)]
        raise Different(
            "error", f"{shown[0].splitlines()[0]} (eager: {shown[1].splitlines()[0]}) at {n}\n{shown[0]}", n
        )
    names = [pytree.keystr(path) for path, _ in pytree.tree_flatten_with_path(expected)[0]]
    leaves = [pytree.tree_leaves(tree) for tree in (actual, expected, wide)]
    if len(leaves[0]) != len(leaves[1]):
        raise Different("value", f"{len(leaves[0])} leaves instead of {len(leaves[1])} at {n}", n)
    coarsest = coarsest_type(theirs)
    for name, *values in zip(names, *leaves):
        try:
            assert_same(name, *values, coarsest=coarsest, may_be_copy=not layouts)
        except AssertionError as error:
            kind = "layout" if isinstance(error, OtherLayout) else "value"
            raise Different(kind, f"{error} (at size {n})", n) from error
    shared = [storages(tensors_of([inputs, tree["result"]])) for inputs, tree in ((ours, actual), (theirs, expected))]
    if layouts and shared[0] != shared[1]:
        raise Different("layout", f"storages {shared[0]} instead of {shared[1]} at {n}", n)


def has_zero_or_one(source: Source, n: int) -> bool:
    """Whether an argument has a dim of size 0 or 1."""
    return any(size < 2 for x in tensors_of(arguments(source, source.load(), n)) for size in x.shape)


def differences(
    source: Source, backend: str, layouts_of_ones: bool = True, constant_ones: bool = False
) -> tuple[Finding | None, int]:
    """The first difference to eager, and how many graphs were compiled. ``layouts_of_ones``: layouts count where an
    argument has a size of 0 or 1, too. ``constant_ones``: as in ``arguments``."""
    names = source.load()
    with Graphs() as graphs:
        compiled = BACKENDS[backend](names["program"])
        for n in range(len(source.sizes)):
            theirs = arguments(source, names, n)
            ours = arguments(source, names, n, constant_ones=constant_ones, guard=True)
            expected = outcome(names["program"], theirs, source.gradient)
            actual = outcome(compiled, ours, source.gradient)
            wide = expected if isinstance(expected, Exception) else reference(source, n, expected)
            layouts = layouts_of_ones or not has_zero_or_one(source, n)
            try:
                compare(n, actual, expected, wide, ours, theirs, layouts)
            except Different as different:
                return different.finding, graphs.read().graphs
    return None, graphs.graphs


def layout_of_larger_sizes(source: Source, backend: str, finding: Finding) -> bool:
    """Whether a layout differs because sizes of 0 and 1 are sizes like others (docs/tracing.md, "Sizes 0 and 1"): an
    argument has one, and nothing differs with them as constants."""
    if finding.kind != "layout" or finding.at is None or not has_zero_or_one(source, finding.at):
        return False
    return differences(source, backend, constant_ones=True)[0] is None


def check(source: Source, backend: str = "symshape", count_graphs: bool = True) -> Finding | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        finding, ours = differences(source, backend)
        if finding is not None and layout_of_larger_sizes(source, backend, finding):
            finding, ours = differences(source, backend, layouts_of_ones=False)
        if finding is not None and backend == "jit" and "a value of a tensor decides" in finding.message:
            return dataclasses.replace(finding, whose="refused")
        if finding is not None:
            captures = backend == "settings"
            with torch._dynamo.config.patch(capture_scalar_outputs=captures, capture_dynamic_output_shape_ops=captures):
                theirs, _ = differences(source, "aot_eager")
            same = theirs is not None and theirs.kind == finding.kind
            return dataclasses.replace(finding, whose="pytorch" if same else "symshape")
        if count_graphs and backend not in ("triton", "jit"):
            _, most = differences(source, "eager")
            if ours > most:
                _, theirs = differences(source, "aot_eager")
                whose = "symshape" if ours > theirs else "pytorch"
                return Finding("graphs", f"{ours} graphs instead of {most}; {theirs} with aot_eager", whose)
    return None
