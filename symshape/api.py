"""What users call: ``symshape.compile``, ``symshape.jit`` and ``symshape.explain``."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from symshape.backend import symshape_backend
from symshape.frontend.assumptions import Assumptions
from symshape.options import Options
from symshape.settings import compile_with

if TYPE_CHECKING:
    from symshape.report import Report


def compile(fn: Any, *, fullgraph: bool = False, mode: str | None = None, **options: Any) -> Any:
    """``torch.compile`` with backend "symshape", dynamic sizes and the settings that give the fewest graphs.

    ``options`` are those of ``symshape.options.Options``; OptionError for an unknown one. Among them:
    ``assume=["x.size(0) <= 64", "x.size(1) % 8 == 0"]``, facts about sizes of arguments that the compiler may use.
    Inputs that break one meet a ShapeConstraintError.
    """
    parsed = Options.parse(options, mode)
    assumptions = Assumptions(parsed.assume, fn)
    backend = functools.partial(symshape_backend, mode=mode, options=options, assumptions=assumptions)
    return compile_with(fn, _named(backend), fullgraph=fullgraph, probe=parsed.probe_custom_operators)


def jit(fn: Any = None, *, dynamic_shapes: Any = None, options: Mapping[str, Any] | None = None) -> Any:
    """``fn`` (a function or a module) compiled without Dynamo, once for each set of guards that its inputs satisfy.

    ``dynamic_shapes``: as for torch.export (``symshape.dynamic_shapes``); without it all sizes and integers are
    dynamic. ``options``: those of ``compile``, and ``entry_limit`` (default 64): the least recently used entries make
    room for new ones. ShapeConstraintError, before anything is computed, for inputs that break what is declared or
    what ``torch._check`` demands. Without ``fn`` a decorator. See docs/jit.md.
    """
    from symshape.jit_function import JitFunction

    frame = sys._getframe(1)
    location = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    if fn is None:
        return lambda function: JitFunction(function, dynamic_shapes, options, location)
    return JitFunction(fn, dynamic_shapes, options, location)


def explain(fn: Any, *args: Any, options: dict[str, Any] | None = None, **kwargs: Any) -> Report:
    """Compiles ``fn``, runs it once on these inputs, and reports every graph; ``report.result`` is what fn returned.

    ``options`` are those of ``compile``.
    """
    from symshape.report import Report

    parsed = Options.parse(options)
    assumptions = Assumptions(parsed.assume, fn)
    report = Report()
    backend = functools.partial(symshape_backend, options=options, reports=report.graphs, assumptions=assumptions)
    report.result = compile_with(fn, _named(backend), probe=parsed.probe_custom_operators)(*args, **kwargs)
    return report


def _named(backend: functools.partial[Any]) -> Callable[..., Any]:
    """Dynamo shows a backend's ``__name__`` in its messages."""
    backend.__name__ = "symshape"  # type: ignore[attr-defined]
    return backend
