"""Requirements of a traced graph on its arguments, read from the trace, since compiled IR may have fewer facts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from symshape.codegen.host.entry_guards import EntryGuards, SymbolRange
from symshape.codegen.host.guard_stub import Constraint
from symshape.dialects.sizes import Layout
from symshape.frontend.importer.shape_env_guards import open_guards
from symshape.frontend.importer.traced_symbols import collect_symbols, layout_of
from symshape.prover.numbers.expr import Expr


def traced_entry(fakes: Sequence[Any], env: Any) -> EntryGuards:
    """The requirements of a trace on its arguments: layouts, ranges of symbols, guards."""
    rows = collect_symbols(list(fakes), env)
    guards = open_guards(env, {Expr.symbol(row.name) for row in rows})
    return EntryGuards(
        tuple(tensor_layout(fake) for fake in fakes),
        tuple(SymbolRange(row.name, row.binding, row.min, row.max, 1) for row in rows),
        tuple(Constraint(one.condition, "decided while tracing", f"{one.file}:{one.line}") for one in guards),
    )


def tensor_layout(fake: Any) -> Layout | None:
    """Sizes, strides and offset of a fake tensor; None for one without a strided layout."""
    found = layout_of(fake) if isinstance(fake, torch.Tensor) else None
    return None if found is None else Layout(tuple(found[0]), tuple(found[1]), found[2])
