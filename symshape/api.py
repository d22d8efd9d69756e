"""The public functions: ``symshape.compile``, ``symshape.jit`` and ``symshape.explain``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload

from symshape.configured_backend import ConfiguredBackend
from symshape.errors import OptionError
from symshape.frame_compiler import Tracing, compile_apart, compile_with
from symshape.frontend.bridge.dynamo import code_of
from symshape.frontend.importer.assumptions import Assumptions, argument_names
from symshape.machine.mlir_library import load_mlir
from symshape.options import Options, require_mapping
from symshape.policy import SpecialisationPolicy, require_known

if TYPE_CHECKING:
    import torch

    from symshape.frontend.bridge.dynamo_counters import GraphBreak
    from symshape.jitted.jitted_function import EntryReport
    from symshape.jitted.jitted_module import JitModule
    from symshape.tools.report import Report

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)


class Jitted(Protocol[Parameters, Result_co]):
    """The type of ``jit``'s result: called like the function, and bound like a method if it is an attribute of a class.
    ``entries``: the guards of each compiled entry, with the reports of its graphs."""

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result_co: ...

    def __get__(self, instance: Any, owner: Any = None) -> Jitted[..., Result_co]: ...

    @property
    def entries(self) -> list[EntryReport]: ...


@overload
def compile(
    model: Callable[Parameters, Result],
    *,
    fullgraph: bool = ...,
    dynamic: bool | None = ...,
    backend: str | None = ...,
    mode: str | None = ...,
    options: Mapping[str, Any] | None = ...,
    name: str | None = ...,
    disable: bool = ...,
    recompile_limit: int | None = ...,
    isolate_recompiles: bool = ...,
    shapes_spec: Any = ...,
    **keywords: Any,
) -> Callable[Parameters, Result]: ...


@overload
def compile(
    model: None = None,
    *,
    fullgraph: bool = ...,
    dynamic: bool | None = ...,
    backend: str | None = ...,
    mode: str | None = ...,
    options: Mapping[str, Any] | None = ...,
    name: str | None = ...,
    disable: bool = ...,
    recompile_limit: int | None = ...,
    isolate_recompiles: bool = ...,
    shapes_spec: Any = ...,
    **keywords: Any,
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]: ...


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | None = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: Any = None,
    **keywords: Any,
) -> Any:
    """``torch.compile`` with backend "symshape" and the settings that give the fewest graphs.

    Takes and returns what ``torch.compile`` does: a function, method, module or class; without ``model`` it is a
    decorator, ``@symshape.compile(fullgraph=True)``. Functions and modules compiled with equal options share their
    compiled code, as there: twelve layers of one class are compiled once.

    ``fullgraph``           the function must be one graph: a graph break is an error
    ``dynamic``             None and True: sizes, strides and integer arguments are symbols from the first call on;
                            False: they are constants, with a graph for each value
    ``mode``                "default", "max-autotune", "max-autotune-no-cudagraphs", "reduce-overhead"
    ``options``             those of ``symshape.options.Options``; as keywords too. Among them ``assume=["x.size(0) <=
                            64", "x.size(1) % 8 == 0"]``: facts about sizes of arguments that the compiler may use, and
                            ``policy``: a ``SpecialisationPolicy``.
                            ``guard_filter_fn`` as for ``torch.compile``.
    ``disable``             return ``model`` as it is
    ``recompile_limit``     how many graphs of a function are compiled before it runs in eager mode; by default
                            ``torch._dynamo.config.recompile_limit``
    ``isolate_recompiles``  whether this compile has a limit and code of its own (PyTorch 2.13)
    ``shapes_spec``         which sizes are symbols (PyTorch 2.13); not together with ``dynamic``
    ``name``                accepted, as ``torch.compile`` does, and has no effect

    OptionError for an object that cannot be compiled, an unknown option, an invalid value of an argument, ``mode``
    together with ``options``, or another ``backend``. Calls with inputs that violate an assumption or a
    ``torch._check`` raise ShapeConstraintError.
    """
    _check_arguments({"fullgraph": fullgraph, "disable": disable, "isolate_recompiles": isolate_recompiles})
    if model is None:
        given = {key: value for key, value in locals().items() if key not in ("model", "keywords")} | keywords
        return lambda decorated: compile(_compilable(decorated), **given)
    _compilable(model)
    _check_backend(backend)
    chosen = _merged(options, keywords, mode)
    guard_filter = chosen.pop("guard_filter_fn", None)
    _check_habits(recompile_limit, guard_filter)
    parsed = Options.parse(chosen, mode)
    _check_names(parsed.policy, model)
    configured = ConfiguredBackend(parsed, Assumptions(parsed.assume, model), dynamic)
    _check_dynamic(dynamic, shapes_spec, parsed.policy)
    habits = {"disable": disable, "recompile_limit": recompile_limit, "isolate_recompiles": isolate_recompiles}
    habits |= {"guard_filter_fn": guard_filter, "shapes_spec": shapes_spec}
    given = {key: value for key, value in habits.items() if value is not None and value is not False}
    tracing = Tracing(parsed.probe_custom_operators, parsed.strict, policy=parsed.policy)
    return compile_with(model, configured, fullgraph=fullgraph, dynamic=dynamic, tracing=tracing, **given)


def _check_dynamic(dynamic: Any, shapes_spec: Any, policy: SpecialisationPolicy) -> None:
    if dynamic is not None and type(dynamic) is not bool:
        raise OptionError(f"dynamic cannot be {dynamic!r}", next_step="it is True, False or None")
    if dynamic is not None and shapes_spec is not None:
        raise OptionError("dynamic and shapes_spec both say which sizes are symbols", next_step="give one of them")
    usual = SpecialisationPolicy()
    if shapes_spec is not None and replace(policy, limit=usual.limit, integers=usual.integers) != usual:
        raise OptionError("policy and shapes_spec both say which sizes are symbols", next_step="give one of them")
    if dynamic is not None and policy.sizes not in (usual.sizes, "symbols" if dynamic else "static"):
        raise OptionError(
            f"dynamic={dynamic} contradicts the policy's sizes={policy.sizes!r}", next_step="give one of them"
        )


def _check_arguments(switches: Mapping[str, Any]) -> None:
    for name, value in switches.items():
        if type(value) is not bool:
            raise OptionError(f"{name} cannot be {value!r}", next_step="it is True or False")


def _check_habits(recompile_limit: Any, guard_filter: Any) -> None:
    if recompile_limit is not None and (type(recompile_limit) is not int or recompile_limit < 0):
        raise OptionError(f"recompile_limit cannot be {recompile_limit!r}", next_step="it is an integer from 0 on")
    if guard_filter is not None and not callable(guard_filter):
        hint = "it is a function that takes the guards and returns a list of booleans"
        raise OptionError(f"guard_filter_fn cannot be {guard_filter!r}", next_step=hint)


def _check_names(policy: SpecialisationPolicy, model: Any) -> None:
    """OptionError for a name of the policy that does not occur in ``model``. Functions that it calls may be inlined, so
    all names in its code count."""
    known = argument_names(model) if policy.static or policy.dynamic else None
    code = code_of(model)
    if known is not None and code is not None:
        known = known | dict.fromkeys((*code.co_varnames, *code.co_freevars, *code.co_names))
        require_known(policy, known)


def _compilable(model: Any) -> Any:
    """OptionError for what ``torch.compile`` takes neither as a function nor as a class."""
    immutable = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE: the call of its instances cannot be replaced
    if not callable(model) or (isinstance(model, type) and model.__flags__ & immutable):
        raise OptionError(f"{model!r} cannot be compiled", next_step="pass a function or a module")
    return model


def _check_backend(backend: Any) -> None:
    if backend in (None, "symshape"):
        return
    shown = backend if isinstance(backend, str) else getattr(backend, "__name__", repr(backend))
    raise OptionError(f"symshape.compile has no backend {shown!r}", next_step="use torch.compile(backend=...) for it")


def _merged(options: Mapping[str, Any] | None, keywords: Mapping[str, Any], mode: str | None) -> dict[str, Any]:
    if options is not None and mode is not None:
        raise OptionError(
            "mode and options cannot be given together",
            next_step="give options as keywords: symshape.compile(fn, mode=..., target=...)",
        )
    require_mapping(options)
    for twice in sorted(set(options or ()) & set(keywords)):
        raise OptionError(f"option {twice!r} is given twice", next_step="leave it out of options, or as a keyword")
    return {**(options or {}), **keywords}


@overload
def jit(fn: torch.nn.Module, *, dynamic_shapes: Any = ..., options: Mapping[str, Any] | None = ...) -> JitModule: ...


@overload
def jit(
    fn: Callable[Parameters, Result], *, dynamic_shapes: Any = ..., options: Mapping[str, Any] | None = ...
) -> Jitted[Parameters, Result]: ...


@overload
def jit(
    fn: None = None, *, dynamic_shapes: Any = ..., options: Mapping[str, Any] | None = ...
) -> Callable[[Callable[Parameters, Result]], Jitted[Parameters, Result]]: ...


def jit(fn: Any = None, *, dynamic_shapes: Any = None, options: Mapping[str, Any] | None = None) -> Any:
    """Compiles ``fn`` (a function or a module) without Dynamo, once for each set of guards that its inputs satisfy.

    ``dynamic_shapes``: as for torch.export (``symshape.jitted.dynamic_shapes``); without it all sizes and integers are
    dynamic. ``options``: those of ``compile``, and ``entry_limit`` (default 64): the least recently used entries are
    evicted. Calls raise ShapeConstraintError, before anything is computed, for inputs that violate a declaration or a
    ``torch._check``. Without ``fn`` a decorator. See docs/jit.md.
    """
    load_mlir()
    from symshape.jitted.jitted_module import jitted

    frame = sys._getframe(1)
    location = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    if fn is None:
        return lambda function: jitted(function, dynamic_shapes, options, location)
    return jitted(fn, dynamic_shapes, options, location)


def explain(fn: Any, *args: Any, options: dict[str, Any] | None = None, **kwargs: Any) -> Report:
    """Compiles ``fn``, runs it once on these inputs, and reports every graph; ``report.result`` is the result of
    ``fn``.

    ``report.run(*others)`` calls it again and adds the graphs that are compiled then, with the reasons
    (``report.further``); ``report.breaks`` says where a graph was broken. ``options`` are those of ``compile``.
    OptionError for an unknown option, and for an object that cannot be compiled.
    """
    load_mlir()
    from symshape.tools.report import FrameReport, Report

    parsed = Options.parse(options)
    _check_names(parsed.policy, _compilable(fn))
    report = Report()

    def traced(function: str, line: str, seconds: float, breaks: Sequence[GraphBreak]) -> None:
        report.frames.append(FrameReport(function, line, seconds, len(report.graphs), tuple(breaks)))

    configured = ConfiguredBackend(parsed, Assumptions(parsed.assume, fn), reports=report.graphs)
    tracing = Tracing(
        parsed.probe_custom_operators, parsed.strict, policy=parsed.policy, further=report.further, traced=traced
    )
    report.compiled = compile_apart(fn, configured, tracing)
    report.run(*args, **kwargs)
    return report
