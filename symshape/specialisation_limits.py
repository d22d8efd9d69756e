"""When a function is no longer compiled for values of a size: the limits of a ``SpecialisationPolicy``, counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import CodeType

from symshape.frontend.bridge.dynamo import is_part
from symshape.frontend.bridge.earlier_entries import Failure
from symshape.frontend.bridge.frame_callback import is_anything_kept_for, kept_for, recompile_limit
from symshape.frontend.bridge.question_origins import Line
from symshape.frontend.opaque_calls.frame_decisions import FrameDecisions
from symshape.frontend.patches.settings import DYNAMO, Change, configured
from symshape.graphs import further_graph, tell_of_limit
from symshape.policy import SpecialisationPolicy

_DECIDED = "symshape: decided sizes"  # in what Dynamo keeps for a code object: those that are no longer specialised on


class Limits:
    """Those of one code object. ``decisions``: of the function, which take what is decided; ``is_static``: sizes and
    integers are constants."""

    def __init__(
        self, policy: SpecialisationPolicy, decisions: FrameDecisions, code: CodeType, is_static: bool
    ) -> None:
        self._policy, self._decisions, self._code, self._is_static = policy, decisions, code, is_static

    @property
    def has_decided(self) -> bool:
        """Whether the graph of this code is broken at questions on a size."""
        return bool(self._decided())

    def is_beyond(self, failed: Sequence[Failure]) -> bool:
        """Counts the earlier entries by what they are not for this call for, and decides. True for a part of a function
        that would be compiled for each value of what another part hands on, such as the length of a list."""
        for source in {one.constant for one in failed if one.constant and not self._is_static}:
            if len(_conditions(failure for failure in failed if failure.constant == source)) >= self._policy.integers:
                self._decisions.integers.add(source)
        limit = min(self._policy.limit, max(recompile_limit() - 1, 1))
        for name in dict.fromkeys(name for failure in failed for name in failure.sizes):
            of_size = [failure for failure in failed if name in failure.sizes]
            count = len(_conditions(of_size))
            if count >= limit and self._refuse(of_size) and name not in self._decided():
                kept_for(self._code).setdefault(_DECIDED, []).append(name)
                tell_of_limit(further_graph(self._code, len(failed) + 1, failed), name, _lines(of_size), count)
        return is_part(self._code) and bool(self._decisions.refused) and len(_conditions(failed)) >= limit

    def settings(self) -> tuple[Change, ...]:
        """The graphs for all values do not count for Dynamo's limit."""
        more = len(self._decided())
        return (configured(DYNAMO, recompile_limit=recompile_limit() + more),) if more else ()

    def _refuse(self, failed: Iterable[Failure]) -> bool:
        lines = set(_lines(failed))
        self._decisions.refused |= lines
        return bool(lines)

    def _decided(self) -> list[str]:
        found: list[str] = kept_for(self._code).get(_DECIDED, []) if is_anything_kept_for(self._code) else []
        return found


def _conditions(failed: Iterable[Failure]) -> set[str]:
    """Several entries may be for the same values of a size, and differ in something else."""
    return {failure.condition for failure in failed}


def _lines(failed: Iterable[Failure]) -> list[Line]:
    return list(dict.fromkeys(failure.origin.user for failure in failed if failure.origin.user is not None))
