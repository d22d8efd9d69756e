"""Parses pipeline text: ``builtin.module(fold-sizes,canonicalize,func.func(cse))`` is split at top-level commas.

Our passes have no textual name inside MLIR, so each element is looked up in the registry first; other elements stay
text, which MLIR runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from symshape.errors import OptionError
from symshape.passes.framework import registry
from symshape.passes.framework.base import Pass

Step = Pass | str  # a pass of ours, or a pipeline element of MLIR as text

_CANONICALIZE = re.compile(r"(?<![\w-])canonicalize\b(?!-)(?:\{(?P<options>(?:[^{}]|\{[^{}]*\})*)\})?")
# By the names that compilers give it.
_ERASE = "EraseIdentityLinalgOp<mlir::linalg::GenericOp>"
_KEEP = f'disable-patterns={{"{{anonymous}}::{_ERASE}","(anonymous namespace)::{_ERASE}"}}'
_INLINE = re.compile(r"(?<![\w-])inline\b(?!-)(?:\{(?P<options>(?:[^{}]|\{[^{}]*\})*)\})?")
_OPEN, _CLOSE = "([{", ")]}"
_ELEMENT = re.compile(r"(?P<name>[\w.-]+)\s*(?:\{(?P<options>.*)\})?", re.DOTALL)


def parse_pipeline(text: str, own: Mapping[str, type[Pass]] | None = None) -> list[Step]:
    """The steps of a pipeline, with or without the ``builtin.module(...)`` around it. ``own``: passes by name besides
    those of the registry, which go before them."""
    text = text.strip()
    if text.startswith("builtin.module(") and text.endswith(")"):
        text = text[len("builtin.module(") : -1]
    return [parse_step(element, own) for element in split_top_level(text, ",")]


def parse_step(element: str, own: Mapping[str, type[Pass]] | None = None) -> Step:
    """One element: a ``Pass`` built from ``name{opt=value ...}`` if the name is in the registry, else the text
    itself."""
    match = _ELEMENT.fullmatch(element.strip())
    if match is None:
        return element.strip()
    cls = (own or {}).get(match["name"]) or registry.lookup(match["name"])
    return element.strip() if cls is None else _built(cls, match["options"] or "")


def pass_with(name: str, options: str) -> Pass:
    """The pass of the registry with this name, from the text of its options: ``opt=value ...``. OptionError for an
    unknown name or option."""
    cls = registry.lookup(name)
    if cls is None:
        raise OptionError(f"no pass is called '{name}'", next_step=f"passes: {', '.join(registry.names())}")
    return _built(cls, options)


def _built(cls: type[Pass], options: str) -> Pass:
    return cls.from_options(_parse_options(cls.name, options))


def print_pipeline(steps: Iterable[Step]) -> str:
    """The text that ``parse_pipeline`` reads back."""
    return "builtin.module(" + ",".join(step_text(step) for step in steps) + ")"


def step_text(step: Step) -> str:
    return step if isinstance(step, str) else step.as_text()


def step_name(step: Step) -> str:
    """The name a step is switched off, printed and timed by: without options."""
    return step.split("{")[0].strip() if isinstance(step, str) else step.name


def keep_copies(element: str) -> str:
    """MLIR's ``canonicalize``, also that within ``inline``, without the pattern that puts the source in the place of a
    copy.

    Of a tensor's value that is true, but here a copy has storage and strides of its own (``clone``, ``contiguous``).
    """
    element = _INLINE.sub(_with_its_canonicalize, element)
    return _CANONICALIZE.sub(lambda match: f"canonicalize{{{match['options'] or ''} {_KEEP}}}", element)


def _with_its_canonicalize(inline: re.Match[str]) -> str:
    """``inline`` with its default option written out: the pipeline that it runs on each changed function."""
    options = inline["options"] or ""
    return inline[0] if "default-pipeline" in options else f"inline{{{options} default-pipeline=canonicalize}}"


def split_top_level(text: str, separator: str) -> list[str]:
    """Splits at ``separator`` outside brackets and quotes; empty parts are dropped."""
    parts, depth, start, quote = [], 0, 0, ""
    for at, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in _OPEN:
            depth += 1
        elif char in _CLOSE:
            depth -= 1
        elif char == separator and depth == 0:
            parts.append(text[start:at])
            start = at + 1
        if depth < 0:
            break
    if depth or quote:
        raise OptionError(
            f"unbalanced brackets or quotes in pipeline '{text}'", next_step="check the --pass-pipeline text"
        )
    return [part.strip() for part in (*parts, text[start:]) if part.strip()]


def _parse_options(name: str, text: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for part in split_top_level(" ".join(text.split()), " "):
        key, _, value = part.partition("=")
        if key in options:
            raise OptionError(f"pass '{name}': option '{key}' is given twice", next_step="give it once")
        options[key] = value.strip("\"'")
    return options
