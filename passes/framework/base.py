"""The base class of passes: a frozen dataclass whose fields are its options.

A pass is written once and serves everywhere: ``symshape-opt --my-pass``,
``--pass-pipeline='builtin.module(my-pass{n=2})'`` and ``torch.compile(options={"passes": ["my-pass{n=2}"]})``.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn, Self

from torch_mlir import ir

from symshape.dialects.locations import source_line
from symshape.errors import CompileError, OptionError
from symshape.prover.numbers.condition import Condition

LOOPS = "loops"


def _refuse_requirement(condition: Condition, reason: str) -> None:
    raise CompileError(
        f"a pass requires `{condition}` of an input: {reason}",
        next_step="compile through a frontend (it ties requirements to the inputs' guards), or disable the pass",
    )


@dataclass
class PassContext:
    """The state that the passes of one compile share. It is passed here, never in globals.

    ``options``  of the compile, read-only: "target", "cpu" (the instructions that CPU code may use), and "kind"
                 ("inference", "forward" or "backward").
    ``disabled`` names of steps that the user disables: for passes that run steps of code generation.
    ``facts``    the prover's store for the symbols of the module, once a stage has made one.
    ``statistics``  counts of passes, by pass and statistic; see ``Pass.count``.
    ``remarks``  remarks of passes about single operations, by pass; see ``Pass.remark``.
    ``constraints``  the entries of removed constraints.
    ``scratch``  analyses that consecutive passes share; the manager clears it after a step that may have changed
                 anything but what it returns as changed. ``LOOPS``: the loop forms of kernels by name, as read, which
                 code generation uses.
    ``require``  called with (condition, reason) when a pass must require a condition of an input. The frontend makes
                 it a guard of the compiled entry; without a frontend it is an error.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    disabled: frozenset[str] = frozenset()
    facts: Any = None
    statistics: dict[str, dict[str, int]] = field(default_factory=dict)
    remarks: dict[str, list[Any]] = field(default_factory=dict)
    constraints: list[Any] = field(default_factory=list)
    scratch: dict[str, Any] = field(default_factory=dict)
    require: Callable[[Condition, str], None] = _refuse_requirement


@dataclass(frozen=True)
class Pass:
    """Base of all passes. A subclass sets ``name`` (kebab-case), its options as fields with defaults, and ``run``.

    ``targets``: the targets of compiles that it runs for, if not for all. Without a compile (`symshape-opt`) it always
    runs. ``instead``: the pipeline element that replaces it where it is disabled; "" for none. ``statistics``: what it
    counts, with descriptions (MLIR's ``Statistic``); reports and ``symshape-opt --mlir-pass-statistics`` print them.
    """

    name: ClassVar[str] = ""
    statistics: ClassVar[dict[str, str]] = {}
    targets: ClassVar[tuple[str, ...]] = ()
    instead: ClassVar[str] = ""

    def run(self, module: ir.Module, context: PassContext) -> bool | list[ir.Operation] | None:
        """Changes ``module`` in place; the manager verifies it afterwards, unless the result is False: nothing was
        changed.

        A list of operations: nothing was changed outside of these, and only they are verified. Raise errors through
        ``fail(op, message)``.
        """
        raise NotImplementedError

    def count(self, context: PassContext, **amounts: int) -> None:
        """Adds to statistics of the pass. ValueError for one that it does not declare."""
        found = context.statistics.setdefault(self.name, dict.fromkeys(self.statistics, 0))
        for statistic, amount in amounts.items():
            if statistic not in found:
                raise ValueError(f"pass '{self.name}' declares no statistic '{statistic}'")
            found[statistic] += amount

    def remark(self, context: PassContext, *remarks: Any) -> None:
        """Records remarks about single operations: text, or objects that print as text."""
        context.remarks.setdefault(self.name, []).extend(remarks)

    @classmethod
    def description(cls) -> str:
        """The first paragraph of the docstring, on one line."""
        return " ".join((inspect.getdoc(cls) or "").split("\n\n")[0].split())

    @classmethod
    def from_options(cls, texts: Mapping[str, str]) -> Self:
        """Builds the pass from option texts: ``{"tile": "8"}``; kebab-case and snake_case names are the same option."""
        types = typing.get_type_hints(cls) if texts else {}
        fields = {f.name for f in dataclasses.fields(cls)}
        values: dict[str, Any] = {}
        for key, text in texts.items():
            name = key.replace("-", "_")
            if name not in fields:
                known = ", ".join(sorted(fields)) or "none"
                raise OptionError(f"pass '{cls.name}' has no option '{key}'", next_step=f"its options: {known}")
            if name in values:
                raise OptionError(f"pass '{cls.name}': option '{key}' is given twice", next_step="give it once")
            values[name] = _parse_value(cls.name, key, types[name], text)
        return cls(**values)

    def as_text(self) -> str:
        """The pipeline element that builds this pass again: ``my-pass{tile=8}``, without options at their default."""
        shown = [
            f"{f.name.replace('_', '-')}={_print_value(getattr(self, f.name))}"
            for f in dataclasses.fields(self)
            if getattr(self, f.name) != f.default
        ]
        return self.name + ("{" + " ".join(shown) + "}" if shown else "")


def fail(op: ir.Operation | ir.OpView, message: str) -> NoReturn:
    """Ends the pass with an error at ``op``: its name and source location travel with the message. What to do next, the
    command that replays the pass on its IR, is added by the pass manager."""
    op.location.emit_error(f"'{op.operation.name}' op {message}")
    raise CompileError(f"'{op.operation.name}' op {message}", where=source_line(op.location))


_BOOLEANS = {"": True, "true": True, "1": True, "false": False, "0": False}
_PARSERS: dict[Any, Callable[[str], Any]] = {
    bool: lambda text: _BOOLEANS[text.lower()],
    int: int,
    float: float,
    str: str,
    tuple[str, ...]: lambda text: tuple(re.split(r",\s*", text)) if text else (),
    tuple[int, ...]: lambda text: tuple(int(part) for part in text.split(",")) if text else (),
    tuple[int, int]: lambda text: _pair(text),
}


def _pair(text: str) -> tuple[int, int]:
    first, second = (int(part) for part in text.split(","))
    return first, second


def _parse_value(pass_name: str, key: str, type_: Any, text: str) -> Any:
    try:
        return _PARSERS[type_](text)
    except (KeyError, ValueError):
        kind = type_.__name__ if isinstance(type_, type) else str(type_)
        raise OptionError(
            f"pass '{pass_name}': option '{key}' cannot be '{text}'", next_step=f"its type is {kind}"
        ) from None


def _print_value(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(str(part) for part in value)
    return str(value).lower() if isinstance(value, bool) else str(value)
