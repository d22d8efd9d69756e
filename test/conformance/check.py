"""Runs the cases of a variant through a backend of ``torch.compile`` and in eager mode, and compares."""

from __future__ import annotations

import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
from cases import Case, alone, cases, tensors_in
from differences import HALVES, WRONG, difference
from draws import DRAWS, compare
from variants import Variant

import symshape
import symshape.backend

for _folder in ("programs", "support"):
    sys.path.append(str(Path(__file__).parent.parent / _folder))
import poison  # noqa: E402

UNINITIALISED = ("empty", "new_empty", "empty_like", "empty_permuted", "empty_strided", "new_empty_strided")
ERROR = "error"


@dataclass
class Outcome:
    """What became of one case: ``kind`` is "" (equal to eager's), "wrong value", "wrong layout" or "error"."""

    label: str
    kind: str = ""
    what: str = ""
    gradient: bool = False  # whether gradients were compared
    entry: str = ""  # "symshape.compile" where torch.compile alone cannot trace it
    trace: str = field(default="", repr=False)


@dataclass
class Result:
    """All cases of a variant. ``calls``: the library calls of its graphs, by kind; ``graphs``: how many there are."""

    key: str
    group: str
    backend: str
    outcomes: list[Outcome]
    calls: dict[str, list[str]]
    graphs: int
    seconds: float

    @property
    def status(self) -> str:
        kinds = [one.kind for one in self.outcomes if one.kind]
        return next((kind for kind in (WRONG, ERROR, *kinds) if kind in kinds), "pass" if self.outcomes else "none")

    def record(self) -> dict[str, Any]:
        made = asdict(self) | {"status": self.status}
        for one in made["outcomes"]:
            del one["trace"]
        return made


@dataclass
class Ran:
    """What a call left behind; ``gradients`` is None where none were asked for or eager has none. ``generator``: the
    state of the one for random numbers."""

    result: Any
    inputs: Any
    gradients: list[torch.Tensor | None] | None
    shared: list[int]
    generator: torch.Tensor


def check(
    variant: Variant,
    dtype: torch.dtype,
    backend: str = "symshape",
    most: int = 0,
    only: str = "",
    target: str = "",
    writing: bool | None = None,
) -> Result:
    """Every case of a variant; ``only``: those whose label begins so. ``target``: of symshape's code.

    ``writing``: only the cases in place and with ``out=``, or all but these.
    """
    started = time.process_time()
    torch._dynamo.reset()
    outcomes: list[Outcome] = []
    compiled = Compiled(backend, target)
    with Recorded() as graphs, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in cases(variant, dtype, most):
            if case.label.startswith(only) and writing in (None, bool(case.parts)):
                outcomes += run_case(case, compiled, variant.info.name not in UNINITIALISED)
    torch._dynamo.reset()
    calls: dict[str, list[str]] = {}
    for kind, called in graphs:
        calls[kind] = sorted({*calls.get(kind, ()), *called})
    return Result(
        variant.key, variant.group, backend, outcomes, calls, len(graphs), round(time.process_time() - started, 2)
    )


class Compiled:
    """What is compiled of the functions of cases, once for each; ``more``: by ``symshape.compile``."""

    def __init__(self, backend: str, target: str) -> None:
        self.backend, self.options = backend, {"target": target} if target else {}
        self._made: dict[tuple[int, bool], Callable[..., Any]] = {}

    def __call__(self, case: Case, more: bool = False) -> Callable[..., Any]:
        key = id(case.function), more
        if key not in self._made:
            if more:
                self._made[key] = symshape.compile(case.function, fullgraph=True, **self.options)
            else:
                options = {"options": self.options} if self.options else {}
                self._made[key] = torch.compile(
                    case.function, backend=self.backend, dynamic=True, fullgraph=True, **options
                )
        return self._made[key]


class Recorded:
    """(kind, library calls) of every graph that symshape compiles."""

    def __enter__(self) -> list[tuple[str, list[str]]]:
        graphs: list[tuple[str, list[str]]] = []
        self.before = compile_graph = symshape.backend.compile_traced

        def recording(gm: Any, options: Any, *, kind: str = "forward", keep_stages: bool = False) -> Any:
            made = compile_graph(gm, options, kind=kind, keep_stages=keep_stages)
            graphs.append((kind, made.report.library_calls))
            return made

        symshape.backend.compile_traced = recording
        return graphs

    def __exit__(self, *_: Any) -> None:
        symshape.backend.compile_traced = self.before


def run_case(case: Case, compiled: Compiled, values: bool = True) -> list[Outcome]:
    """None where eager itself raises; the parts of a case one by one where together they fail.

    What ``torch.compile`` cannot do is tried with ``symshape.compile``, which traces more, and the outcome says so.
    """
    try:
        expected = call(case, case.function, 0)
    except Exception:  # noqa: BLE001 - no case for a compiler
        return []
    seeded = compiled.backend == "symshape"
    outcome = _compare(case, compiled(case), expected, values, seeded)
    if outcome.kind and len(case.parts) > 1:
        return [one for part in alone(case) for one in run_case(part, compiled, values)]
    if outcome.kind == ERROR and compiled.backend == "symshape":
        again = _compare(case, compiled(case, more=True), expected, values, seeded)
        if again.kind != ERROR:
            again.entry, outcome = "symshape.compile", again
    return [outcome]


def _compare(case: Case, compiled: Callable[..., Any], expected: Ran, values: bool, seeded: bool) -> Outcome:
    """``seeded``: it draws eager mode's random numbers."""
    outcome = Outcome(case.label, gradient=expected.gradients is not None)
    try:
        actual = call(case, compiled, 0, gradient=outcome.gradient)
        random = values and bool(difference(call(case, case.function, 1).result, expected.result)[1])
        other = random and not seeded
        outcome.kind, outcome.what = _between(actual, expected, None, values and not other)
        halves = any(one.dtype in HALVES for one in tensors_in((case.args, case.kwargs)))
        if (outcome.kind == WRONG or halves) and case.wide is not None and not random:
            exact = call(case.wide, case.function, 0)
            outcome.kind, outcome.what = _between(actual, expected, exact, values)
        if outcome.kind == WRONG and case.redraw is not None and not random:
            outcome.kind, outcome.what = compare(_draws(case, compiled, outcome.gradient))
        if not (other or outcome.kind or torch.equal(actual.generator, expected.generator)):
            outcome.kind, outcome.what = WRONG, "the generator of random numbers is in another state"
        if other and not outcome.kind:
            again = call(case, compiled, 0, gradient=outcome.gradient)
            kind, what = _between(again, actual, None, True)
            if kind:
                outcome.kind, outcome.what = kind, f"not the same again after torch.manual_seed: {what}"
    except Exception as error:  # noqa: BLE001 - an error is a result
        outcome.kind, outcome.what = ERROR, summary(error)
        outcome.trace = "".join(traceback.format_exception(error))
    return outcome


def _draws(case: Case, compiled: Callable[..., Any], gradient: bool) -> Iterator[tuple[Any, Any, Any]]:
    """What a call leaves behind, compiled, in eager mode, in float64: for the database's numbers, then for others."""
    for seed in range(DRAWS):
        one = case.redraw(seed)
        given = (one, compiled), (one, case.function), (one.wide, case.function)
        runs = [call(which, function, 0, gradient) for which, function in given]
        yield tuple([run.result, run.inputs, run.gradients] for run in runs)


def _between(actual: Ran, expected: Ran, exact: Ran | None, values: bool) -> tuple[str, str]:
    for what, name in (("result", ""), ("inputs", "an argument afterwards: "), ("gradients", "gradient: ")):
        sides = [getattr(one, what, None) for one in (actual, expected, exact)]
        kind, text = difference(*sides, values=values)
        if kind and not (what == "gradients" and kind == "wrong layout"):  # of gradients eager promises none
            return kind, name + text
    if actual.shared != expected.shared:
        return "wrong layout", f"memory is shared as {actual.shared} instead of {expected.shared}"
    return "", ""


def call(case: Case, function: Callable[..., Any], seed: int, gradient: bool | None = None) -> Ran:
    """Runs a case once. ``gradient``: must there be one; None: only if eager has it."""
    args, kwargs = case.inputs()
    if function is not case.function and not case.parts:  # a tensor that is an ``out`` may have to grow
        args, kwargs = poison.guarded((args, kwargs))
    before = tensors_in((args, kwargs))
    torch.manual_seed(seed)
    with torch.set_grad_enabled(case.gradient):
        result = function(*args, **kwargs)
        processed = case.process(result) if case.process is not None else result
    gradients = None
    if case.gradient and gradient is not False:
        try:
            gradients = _gradients(processed, before)
        except Exception:
            if gradient:
                raise
    outputs = tensors_in(result)
    inputs = (args, kwargs) if not _has_module(args) else before
    return Ran(result, inputs, gradients, shared([*before, *outputs]), torch.get_rng_state())


def _has_module(args: Any) -> bool:
    return any(isinstance(one, torch.nn.Module) for one in args)


def _gradients(result: Any, inputs: list[torch.Tensor]) -> list[torch.Tensor | None] | None:
    outputs = [one for one in tensors_in(result) if one.requires_grad]
    wanted = [one for one in inputs if one.requires_grad and one.is_leaf]
    if not outputs or not wanted:
        return None
    generator = torch.Generator().manual_seed(7)
    weights = [torch.randn(one.shape, generator=generator, dtype=torch.float64).to(one.dtype) for one in outputs]
    return list(torch.autograd.grad(outputs, wanted, weights, allow_unused=True))


def shared(tensors: list[torch.Tensor]) -> list[int]:
    """For each tensor the first one whose memory it is in."""
    keys = [one.untyped_storage()._cdata if one.layout == torch.strided else id(one) for one in tensors]
    return [keys.index(key) for key in keys]


def summary(error: BaseException) -> str:
    """An error in one line: its type, and what says most of it."""
    while isinstance(error, torch._dynamo.exc.BackendCompilerFailed) and error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.endswith(" raised:")]
    marks = ("got RuntimeError", "Could not guard", "Explanation:", "Error:")
    told = [line for line in lines if any(mark in line for mark in marks)] or lines[:1]
    details = [line for line in lines if line.startswith("Developer debug context")]
    return f"{type(error).__name__}: {' '.join([*told[:1], *details[:1]])}"[:300]
