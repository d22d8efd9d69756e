"""Decisions about a frame that is traced again: where its graph breaks, which masks are not merged.

A decision that is made late, when the graph is compiled, ends the compile with `Reanalyse`; the frame is then analysed
again with it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Literal, NoReturn
from weakref import WeakKeyDictionary

import torch

from symshape.frontend.bridge.dynamo import unimplemented
from symshape.frontend.bridge.question_origins import Line
from symshape.runtime.torch_c import user_lines

log = logging.getLogger("symshape.frames")
CallSite = tuple[str, str]  # a function that is called, and the user's line


@dataclass
class FrameDecisions:
    """The decisions of all frames of a function. ``breaks``: call sites before which the graph is broken, with the
    reason; ``own_lengths``: call sites of masks that must not be merged with equal ones; ``views``: call sites with
    guards on the sizes that decide whether the result is a view; ``refused``: lines whose conditions on sizes break the
    graph; ``integers``: sources of integers that are symbols, since they keep changing; ``module_sizes``: sizes of the
    parameters and buffers that each module was met with, and its integers, None for what has changed;
    ``global_integers``: the same for global variables; ``met``: values of each integer of a module; ``sizes``: by
    source, the sizes of a tensor, None for one that is a symbol, or an integer, that the latest graph has as constants;
    ``sizes_change``: one of them had another value at a later call."""

    breaks: dict[CallSite, str] = field(default_factory=dict)
    own_lengths: set[CallSite] = field(default_factory=set)
    views: set[CallSite] = field(default_factory=set)
    refused: set[Line] = field(default_factory=set)
    integers: set[str] = field(default_factory=set)
    global_integers: dict[str, tuple[int | None, ...]] = field(default_factory=dict)
    met: dict[str, set[int]] = field(default_factory=dict)
    sizes: dict[str, tuple[int | None, ...] | int] = field(default_factory=dict)
    sizes_change: bool = False
    module_sizes: WeakKeyDictionary[torch.nn.Module, dict[str, tuple[int | None, ...]]] = field(
        default_factory=WeakKeyDictionary
    )

    def __getstate__(self) -> dict[str, Any]:
        """Without the modules: those of a copy are others."""
        return {name: value for name, value in vars(self).items() if name != "module_sizes"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, module_sizes=WeakKeyDictionary())


@dataclass(frozen=True)
class Frame:
    """A frame that is being compiled. ``one_graph``: a graph break is an error; ``running``: the Python frame;
    ``static``, ``dynamic``: names of sizes and integers that a policy declares; ``integers``: of a plain frame, for how
    many values an integer that modules of one class have is a constant; ``traced``, if given, is called instead
    of Dynamo's function that traces a frame, with the code, Dynamo's state of earlier attempts, and that function."""

    decisions: FrameDecisions
    one_graph: bool
    running: Any = None
    static: frozenset[str] = frozenset()
    dynamic: frozenset[str] = frozenset()
    integers: int = 0
    traced: Callable[[CodeType, Any, Callable[[], Any]], Any] | None = None


NO_FRAME = Frame(FrameDecisions(), False)  # Dynamo's own compile, or a trace without Dynamo
_FRAME: ContextVar[Frame] = ContextVar("symshape_frame", default=NO_FRAME)


class Reanalyse(Exception):
    """The frame has to be analysed again, with another decision of the kind ``of`` for ``site``, because of
    ``reason``."""

    def __init__(self, site: CallSite, reason: str, of: Literal["breaks", "own_lengths", "views"] = "breaks") -> None:
        super().__init__(reason)
        self.site, self.reason, self.of = site, reason, of


def current_frame() -> Frame:
    """The frame that this thread compiles."""
    return _FRAME.get()


def compile_with_decisions(compile_frame: Callable[[], Any], frame: Frame) -> Any:
    """Compiles a frame, as often as a decision is missing. Its decisions are those known for the function; more are
    added."""
    with deciding(frame):
        while True:
            try:
                return compile_frame()
            except Exception as error:
                wanted = getattr(error, "inner_exception", None)
                if not isinstance(wanted, Reanalyse) or not learn(frame.decisions, wanted):
                    raise


@contextlib.contextmanager
def deciding(frame: Frame) -> Iterator[None]:
    """While entered, the decisions of ``frame`` apply, and new ones are added to them."""
    token = _FRAME.set(frame)
    try:
        yield
    finally:
        _FRAME.reset(token)


def learn(decisions: FrameDecisions, wanted: Reanalyse) -> bool:
    """Adds a decision. False if it was made before, so that analysing the frame again would change nothing."""
    sites = {"own_lengths": decisions.own_lengths, "views": decisions.views}.get(wanted.of)
    known = wanted.site in decisions.breaks or sites is not None and wanted.site in sites
    if sites is not None:
        sites.add(wanted.site)
    else:
        decisions.breaks[wanted.site] = wanted.reason
    return not known


def call_site(node: torch.fx.Node) -> CallSite:
    file, line = (user_lines(node) or [("", 0)])[-1]
    return str(getattr(node.target, "__name__", node.target)), f"{file}:{line}"


_SAID: set[CallSite] = set()


def log_broken_frame(name: str, line: str, reason: str, hint: str = "") -> None:
    """Tells, once for each line, where a graph is broken. ``hint``: what to do about it."""
    if (name, line) not in _SAID:
        _SAID.add((name, line))
        log.warning("the graph is broken at %s, %s: %s%s", name, line, reason, f"; {hint}" if hint else "")


def break_graph(node: torch.fx.Node, reason: str, error: Exception | None = None, hint: str = "") -> NoReturn:
    """Makes Dynamo break the graph at this call, with one log line for each source line. ``hint``: what the user can
    do."""
    name, line = call_site(node)
    log_broken_frame(name, line, reason, hint)
    unimplemented(f"{name} at {line}", reason, error, hint)
