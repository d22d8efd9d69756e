"""What users call: ``symshape.compile`` and ``symshape.explain``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from symshape.backend import symshape_backend
from symshape.options import Options
from symshape.report import Report
from symshape.settings import compile_with


def compile(fn: Any, *, fullgraph: bool = False, mode: str | None = None, **options: Any) -> Any:
    """``torch.compile`` with backend "symshape", ``dynamic=True`` and the settings that give the fewest graphs.

    ``options`` are those of ``symshape.options.Options``; OptionError for an unknown one.
    """
    Options.parse(options, mode)
    backend = functools.partial(symshape_backend, mode=mode, options=options)
    return compile_with(fn, _named(backend), fullgraph=fullgraph)


def explain(fn: Any, *args: Any, options: dict[str, Any] | None = None, **kwargs: Any) -> Report:
    """Compiles ``fn``, runs it once on these inputs, and reports every graph; ``report.result`` is what fn returned.

    ``options`` are those of ``compile``.
    """
    Options.parse(options)
    report = Report()
    backend = functools.partial(symshape_backend, options=options, reports=report.graphs)
    report.result = compile_with(fn, _named(backend))(*args, **kwargs)
    return report


def _named(backend: functools.partial[Any]) -> Callable[..., Any]:
    """Dynamo shows a backend's ``__name__`` in its messages."""
    backend.__name__ = "symshape"  # type: ignore[attr-defined]
    return backend
