"""``SpecialisationPolicy``: which sizes are symbols, and for how many values of one a function is compiled."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from symshape.errors import OptionError

SIZES = ("symbols", "changed", "static")
_NAME = re.compile(r"(?P<name>[A-Za-z_][\w.\[\]'\"]*?)(?:\.(?:size\((?P<size>\d+)\)|shape\[(?P<shape>\d+)\]))?")


@dataclass(frozen=True)
class SpecialisationPolicy:
    """``sizes``     how sizes of inputs and integer arguments start: "symbols": from the first call on;
                  "changed": constants until they have another value at a later call; "static": constants, with a
                  graph for each value. ``torch._dynamo.mark_dynamic`` and its like take precedence
    ``static``    sizes that are constants whatever ``sizes`` is: "x.size(1)", "x" for all of a tensor or for an
                  integer
    ``dynamic``   sizes that are symbols whatever ``sizes`` is, in the same form
    ``integers``  for how many values of an integer that is a constant (an attribute of a module, 0 and 1) a function
                  is compiled before it becomes a symbol
    ``limit``     how many graphs a line may cause that makes a guard on a size, or on an integer that is a symbol. For
                  the next value the graph is broken at that line, with a log message: the parts before it, and after it
                  where tracing can resume, are graphs for all values. Not where ``fullgraph`` forbids a break"""

    sizes: str = "symbols"
    static: tuple[str, ...] = ()
    dynamic: tuple[str, ...] = ()
    integers: int = 4
    limit: int = 4

    def __post_init__(self) -> None:
        if self.sizes not in SIZES:
            raise OptionError(f"policy: sizes cannot be {self.sizes!r}", next_step=f"values: {', '.join(SIZES)}")
        for name in ("static", "dynamic"):
            object.__setattr__(self, name, _spelled(name, getattr(self, name)))
        for name in ("integers", "limit"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise OptionError(f"policy: {name} cannot be {value!r}", next_step="it is an integer from 1 on")
        for one in self.static:
            for other in self.dynamic:
                if one == other or one.startswith(f"{other}.size(") or other.startswith(f"{one}.size("):
                    raise OptionError(
                        f"policy: {one} is among the static sizes, and {other} among the dynamic ones",
                        next_step="leave one of them out",
                    )


def require_known(policy: SpecialisationPolicy, names: Collection[str]) -> None:
    """OptionError for a size of ``policy`` whose name starts with none of these."""
    for name in (*policy.static, *policy.dynamic):
        if re.split(r"[.\[]", name)[0] not in names:
            hint = f"names: {', '.join(names) or 'none'}"
            raise OptionError(f"policy: {name} is no argument, or no size of one", next_step=hint)


def _spelled(field: str, names: object) -> tuple[str, ...]:
    """Names of sizes, each as ``x.size(1)``."""
    if not isinstance(names, list | tuple):
        raise OptionError(f"policy: {field} cannot be {names!r}", next_step='it is a list of texts: "x.size(1)", "x"')
    found = []
    for text in names:
        parts = _NAME.fullmatch(text) if isinstance(text, str) else None
        if parts is None:
            raise OptionError(
                f"policy: {field} cannot have {text!r}", next_step='it is a list of texts: "x.size(1)", "x"'
            )
        dim = parts["size"] or parts["shape"]
        found.append(parts["name"] + (f".size({dim})" if dim else ""))
    return tuple(found)
