"""All error classes. Each says what is wrong, where (op and user line) and what to do next; ``make lint`` checks it."""

from __future__ import annotations

import linecache
from collections.abc import Mapping, Sequence
from typing import Any


class SymshapeError(Exception):
    """Base of all errors that symshape raises: ``what``, ``where`` (op or user line) and ``next_step``."""

    def __init__(self, what: str, *, where: str = "", next_step: str = "") -> None:
        self.what, self.where, self.next_step = what, where, next_step
        lines = [what]
        if where:
            lines.append(f"  at: {where}")
        if next_step:
            lines.append(f"  next: {next_step}")
        super().__init__("\n".join(lines))


class OptionError(SymshapeError, ValueError):
    """An unknown option, mode, target or pass name; the message lists the valid ones."""


class CompileError(SymshapeError, RuntimeError):
    """An internal error of a stage: names the stage and the op, and the file that replays it."""


class PatchError(CompileError):
    """PyTorch differs from what a patch of its tracer needs: names the patch, and what has changed in PyTorch."""


class StepFailure(CompileError):
    """A pass or a step of code generation failed.

    ``step`` is its name, ``operations`` the nodes of the traced graph that it was working on (empty if unknown),
    ``command`` runs it again on the IR before it.
    """

    def __init__(
        self,
        what: str,
        *,
        step: str,
        operations: Sequence[str] = (),
        command: str = "",
        where: str = "",
        next_step: str = "",
    ) -> None:
        super().__init__(what, where=where, next_step=next_step)
        self.step, self.operations, self.command = step, tuple(operations), command


class ShapeConstraintError(SymshapeError, RuntimeError):
    """A constraint on sizes does not hold at run time. A RuntimeError, like eager mode's.

    ``constraint`` is its text and ``values`` the values of its sizes, both by the user's names (``x.size(0)``, or the
    name of a dim).
    """

    def __init__(
        self,
        what: str,
        *,
        where: str = "",
        next_step: str = "",
        constraint: str = "",
        values: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(what, where=where, next_step=next_step)
        self.constraint, self.values = constraint, dict(values or {})


class OffsetsError(SymshapeError, RuntimeError):
    """Invalid offsets of rows, found before anything is read with them. PyTorch's own operators would read out of
    bounds, so they are not run for their error."""

    def __init__(self, kernel: str = "") -> None:
        found = f" (found by {kernel})" if kernel else ""
        super().__init__(
            f"offsets of rows decrease, are negative, or end past the values{found}",
            next_step="offsets begin with 0 or more, do not decrease, and end with at most the number of values",
        )


class ContradictionError(SymshapeError, ValueError):
    """Facts that cannot all hold. ``reasons`` is a smallest such set: each with its ``text`` and ``origin``."""

    def __init__(self, reasons: Sequence[Any], *, where: str = "") -> None:
        self.reasons = tuple(reasons)
        listed = "".join(f"\n    {reason}" for reason in self.reasons)
        super().__init__(
            f"these facts cannot all hold:{listed}", where=where, next_step="leave out or correct one of them"
        )


class KernelError(SymshapeError, RuntimeError):
    """Kernel code could not be generated, compiled or loaded."""


class KernelFailure(StepFailure, KernelError):
    """A step of code generation failed for one kernel or more."""


class AccuracyError(SymshapeError):
    """Compiled code computes other numbers than eager mode. Only raised if numbers are compared, on request
    (``TORCHDYNAMO_REPRO_LEVEL=4``)."""


class FallbackWarning(UserWarning):
    """A part of a graph was not compiled: what failed, what is done instead, and the command that replays it."""


class CacheError(SymshapeError, RuntimeError):
    """The cache on disk cannot be used, or something cannot be kept in it."""


def joined_steps(*steps: str) -> str:
    """Several next steps as one; empty ones are left out."""
    return "; ".join(filter(None, steps))


def with_text(location: str) -> str:
    """``file:line`` with the text of the line, if the file can be read."""
    file, _, line = location.rpartition(":")
    text = linecache.getline(file, int(line)).strip() if line.isdigit() else ""
    return f"{location}: {text}" if text else location


def rule_to_register(operator: str, arguments: Sequence[str], result: str = "...") -> str:
    """A next step: the code that registers a fake rule for a user's operator, with the names of its arguments;
    ``result``: the expression that the rule returns."""
    code = f'@torch.library.register_fake("{operator}")\n    def _({", ".join(arguments)}):\n        return {result}'
    return f"register one:\n    {code}"
