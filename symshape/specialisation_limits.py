"""Counts graphs per specialised size, and applies the limits of a ``SpecialisationPolicy``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import CodeType

from symshape.frontend.bridge.dynamo import is_part
from symshape.frontend.bridge.earlier_entries import Failure
from symshape.frontend.bridge.frame_callback import is_anything_kept_for, kept_for, recompile_limit
from symshape.frontend.bridge.question_origins import Line
from symshape.frontend.opaque_calls.frame_decisions import FrameDecisions
from symshape.frontend.patches.settings import DYNAMO, Change, configured
from symshape.graphs import further_graph, log_limit
from symshape.policy import SpecialisationPolicy

_DECIDED = "symshape: decided sizes"  # in what Dynamo keeps for a code object: those that are no longer specialised on


class Limits:
    """The limits of one code object. ``decisions``: of the function, to which new ones are added; ``most``: the number
    of graphs after which only graphs for all values are made; ``is_static``: sizes and integers are constants."""

    def __init__(
        self, policy: SpecialisationPolicy, decisions: FrameDecisions, code: CodeType, most: int, is_static: bool
    ) -> None:
        self._policy, self._decisions, self._code = policy, decisions, code
        self._most, self._is_static = most, is_static

    @property
    def has_decided(self) -> bool:
        """Whether the graph of this code is broken at questions on a size."""
        return bool(self._decided())

    def is_beyond(self, failed: Sequence[Failure]) -> bool:
        """Counts the earlier entries by the guard that fails for this call, and adds decisions. True for a resume
        function that would be compiled for each value that the part before it passes on, such as the length of a
        list."""
        for source in {one.constant for one in failed if one.constant and not self._is_static}:
            if len(_conditions(failure for failure in failed if failure.constant == source)) >= self._policy.integers:
                self._decisions.integers.add(source)
        for name in dict.fromkeys(name for failure in failed for name in failure.sizes):
            of_size = [failure for failure in failed if name in failure.sizes]
            lines = self._beyond(of_size, is_last=0 < self._most <= len(failed))
            self._decisions.refused.update(lines)
            if lines and name not in self._decided():
                kept_for(self._code).setdefault(_DECIDED, []).append(name)
                graph = further_graph(self._code, len(failed) + 1, failed)
                log_limit(graph, name, lines, len(_conditions(of_size)))
        others = _conditions(failure for failure in failed if not failure.sizes)
        return is_part(self._code) and bool(self._decisions.refused) and len(others) >= self._policy.limit

    def _beyond(self, of_size: Sequence[Failure], is_last: bool) -> list[Line]:
        """The lines with conditions on one size that have been answered for the maximal number of values. Before Dynamo
        would give the function up, all of them."""
        asked: dict[Line, list[Failure]] = {}
        for failure in of_size:
            if failure.origin.user is not None:
                asked.setdefault(failure.origin.user, []).append(failure)
        enough = [line for line, failed in asked.items() if len(_conditions(failed)) >= self._policy.limit]
        return enough or (list(asked) if is_last else [])

    def settings(self) -> tuple[Change, ...]:
        """The graphs for all values do not count for Dynamo's limit."""
        more = len(self._decided())
        return (configured(DYNAMO, recompile_limit=recompile_limit() + more),) if more else ()

    def _decided(self) -> list[str]:
        found: list[str] = kept_for(self._code).get(_DECIDED, []) if is_anything_kept_for(self._code) else []
        return found


def _conditions(failed: Iterable[Failure]) -> set[str]:
    """Several entries may be for the same values of a size, and differ in something else."""
    return {failure.condition for failure in failed}
