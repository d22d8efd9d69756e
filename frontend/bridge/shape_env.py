"""Reads the symbols of a ShapeEnv: hints, ranges, sources, and the tensors that were traced with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sympy
import torch

from symshape.frontend.bridge.source_lines import user_frame


def symbol_hint(env: Any, symbol: Any) -> int | None:
    """The size first seen for a backed symbol (torch <= 2.11 calls the table ``var_to_val``)."""
    table = env.backed_var_to_val if hasattr(env, "backed_var_to_val") else env.var_to_val
    value = table.get(symbol)
    try:
        return None if value is None else int(value)
    except (TypeError, ValueError):
        return None


def symbol_range(env: Any, symbol: Any) -> tuple[int | None, int | None]:
    """Inclusive bounds of a symbol; None where unbounded."""

    bounds = env.var_to_range.get(symbol)
    if bounds is None:
        return None, None

    def as_int(x: Any) -> int | None:
        return int(x) if isinstance(x, sympy.Integer) and abs(int(x)) < 2**62 else None

    return as_int(bounds.lower), as_int(bounds.upper)


def symbol_source(env: Any, symbol: Any) -> str:
    """The framework's name for where a symbol comes from, such as ``L['x'].size()[0]``; "" if unknown."""
    table = getattr(env, "var_to_sources", None) or getattr(env, "source_to_var", {})
    sources = table.get(symbol) or ()
    return next((source_name(source) for source in sources), "")


def symbol_sources(env: Any) -> dict[Any, list[str]]:
    """The framework's names for each backed symbol: several where sizes were equal at the first call."""
    return {symbol: [source_name(s) for s in sources] for symbol, sources in env.var_to_sources.items()}


def source_name(source: Any) -> str:
    """The framework's name of one source (a method in older versions)."""
    return source.name() if callable(source.name) else str(source.name)


def path_to_symbol(path: Any) -> tuple[str, tuple[int, ...]]:
    """Where a new symbol is in a node's result: the property of a tensor ("size", "stride"; "" for a number), and the
    positions on the path to it."""
    kinds = [step.name for step in path if hasattr(step, "name")]
    return (kinds[0] if kinds else ""), tuple(step.idx for step in path if hasattr(step, "idx"))


def replacements(env: Any) -> list[tuple[Any, Any, tuple[str, int]]]:
    """Symbols that the ShapeEnv replaced: (symbol, by what, (file, line) of the first reason). Not data-dependent ones
    that a second trace gave another name."""
    reasons, renamed = env.replacements_slocs, env.unbacked_renamings
    found = [(s, env.replace(value), user_frame(reasons.get(s))) for s, value in env.replacements.items()]
    return [(s, value, line) for s, value, line in found if s not in renamed or value != env.replace(renamed[s])]


@dataclass(frozen=True)
class InputSizes:
    """Sizes of a tensor input; ``marked``: dims that the user marked dynamic; ``small``: those that could have been
    symbols but were 0 or 1 at the first call."""

    source: str
    sizes: tuple[Any, ...]
    marked: tuple[int, ...]
    small: tuple[int, ...]


def input_sizes(env: Any) -> list[InputSizes]:
    """Every tensor input that Dynamo traced with symbols."""
    found = []
    for tracked in env.tracked_fakes or ():
        context, tensor = tracked.symbolic_context, tracked.fake
        wanted = getattr(context, "constraint_sizes", None)
        if not isinstance(tensor, torch.Tensor) or wanted is None:
            continue
        sizes = tuple(tensor.size())
        marked = (d for d, one in enumerate(wanted) if one is not None and not one.warn_only)
        dynamic = (d for d, kind in enumerate(context.dynamic_sizes) if kind.name in ("DUCK", "DYNAMIC"))
        small = (d for d in dynamic if type(sizes[d]) is int and sizes[d] < 2)
        found.append(InputSizes(source_name(tracked.source), sizes, tuple(marked), tuple(small)))
    return found


def size_functions() -> dict[str, Any]:
    """PyTorch's sympy classes of the functions of sizes: those that its guards can be printed and solved with."""
    from torch.utils._sympy import functions

    return {"floordiv": functions.FloorDiv, "mod": functions.PythonMod, "max": functions.Max, "min": functions.Min}


def symbols_of(env: Any) -> dict[str, Any]:
    """All symbols of a ShapeEnv, by name; empty for None."""
    return {} if env is None else {str(symbol): symbol for symbol in env.var_to_range}


def symbol_hints(env: Any) -> dict[str, int]:
    """The sizes first seen, by name of the symbol; not of data-dependent ones."""
    found = {name: symbol_hint(env, symbol) for name, symbol in symbols_of(env).items()}
    return {name: hint for name, hint in found.items() if hint is not None}


def env_of_size(size: torch.SymInt) -> Any:
    """The ShapeEnv that a symbolic size belongs to."""
    return size.node.shape_env


def symint_of(env: Any, symbol: Any) -> Any:
    """A SymInt for a symbol of a ShapeEnv."""
    return env.create_symintnode(symbol, hint=symbol_hint(env, symbol))


def unbacked_number(env: Any, kind: type) -> Any:
    """A new unbacked number: a SymInt, SymFloat or SymBool for int, float and bool."""
    make = {int: env.create_unbacked_symint, float: env.create_unbacked_symfloat, bool: env.create_unbacked_symbool}
    return make[kind]()


def size_above_one(env: Any) -> Any:
    """A new unbacked size that is traced as one that does not broadcast. The code that is traced with it must be valid
    for 0 and 1 too, where nothing but broadcasting depends on it."""
    from torch.utils._sympy.numbers import int_oo
    from torch.utils._sympy.value_ranges import ValueRanges

    size = unbacked_number(env, int)
    env.var_to_range[size.node.expr] = ValueRanges(2, int_oo)
    return size
