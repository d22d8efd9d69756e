"""Sizes and integers declared static or dynamic: by marks, by sources, or by a policy. Contradictory declarations are
an error."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._dynamo import config, utils
from torch._dynamo.guards import GuardBuilder
from torch._dynamo.variables import ConstantVariable, builder
from torch._dynamo.variables.builder import VariableBuilder
from torch.fx.experimental.symbolic_shapes import DimDynamic

from symshape.errors import OptionError
from symshape.frontend.bridge.shape_env import source_name
from symshape.frontend.importer.specialisations import plain_source
from symshape.frontend.opaque_calls.frame_decisions import current_frame
from symshape.frontend.patches.checks.dynamo_errors import passing
from symshape.frontend.patches.inputs.changed_integers import keeps_changing
from symshape.frontend.patches.patch import Changes

# Attributes in which the marks of torch._dynamo are stored on a tensor.
_DYNAMIC_MARKS = {
    "_dynamo_dynamic_indices": "torch._dynamo.mark_dynamic",
    "_dynamo_unbacked_indices": "torch._dynamo.mark_unbacked",
    "_dynamo_strict_unbacked_indices": "torch._dynamo.mark_unbacked(strict=True)",
}
_SPECIFICATIONS = ("_shapes_spec", "_dynamic_shapes_spec")  # of PyTorch 2.13, and of later ones
_STATIC_MARK = ("_dynamo_static_indices", "torch._dynamo.mark_static")
_POLICY = {True: "the policy's `dynamic`", False: "the policy's `static`"}


def declared_sizes(changes: Changes) -> None:
    """Applies the policy's names, and raises OptionError for contradictions."""
    changes.wrap(builder, "_automatic_dynamic", _declared)


def declared_integers(changes: Changes) -> None:
    """Applies the policy to integers, and makes integers that keep changing dynamic. PyTorch keeps one dispatch table
    by type for all compiles; the frame gets a copy. Where Dynamo predicts what it will make of an integer that it has
    not used yet, in the bounds of a slice, it is told the same."""
    table: Any = VariableBuilder._type_dispatch()
    declared = {**table, int: _declared_integer(table[int])}
    changes.attribute(VariableBuilder, "_type_dispatch", classmethod(lambda _: declared))
    changes.wrap(utils, "is_int_specialization_case", _unless_declared)


@functools.cache
def _declared(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def automatic_dynamic(e: Any, tx: Any, source: Any, static_shapes: Any, *args: Any, **kwargs: Any) -> Any:
        context = original(e, tx, source, static_shapes, *args, **kwargs)
        sizes: Any = getattr(context, "dynamic_sizes", ())
        name = source_name(source)
        for d in range(len(sizes)):
            wanted = _wanted(e, name, d, sizes[d] is not DimDynamic.STATIC)
            if wanted is not None and wanted is (sizes[d] is DimDynamic.STATIC):
                sizes[d] = DimDynamic.DYNAMIC if wanted else DimDynamic.STATIC
                context.constraint_sizes[d] = None
        return context

    return automatic_dynamic


def _wanted(tensor: torch.Tensor, source: str, dim: int, is_dynamic: bool) -> bool | None:
    """Whether the policy declares a size dynamic; None if it does not mention it. OptionError for a contradiction.

    ``is_dynamic``: PyTorch's decision, which counts if a ``shapes_spec`` is set, since PyTorch then ignores marks."""
    said = [*_said(tensor, source, dim)]
    if any(getattr(config, name, None) is not None for name in _SPECIFICATIONS):
        said.append((is_dynamic, "shapes_spec"))
    of_policy = by_policy(source, dim)
    said += [] if of_policy is None else [(of_policy, _POLICY[of_policy])]
    by = dict(reversed(said))
    if len(by) > 1:
        raise passing(
            OptionError(
                f"{plain_source(source)}.size({dim}) is dynamic by {by[True]}, and static by {by[False]}",
                next_step="take one of them back",
            )
        )
    return of_policy


def _said(tensor: torch.Tensor, source: str, dim: int) -> Iterator[tuple[bool, str]]:
    """Declarations of a size other than the policy's: pairs (is dynamic, by what)."""
    for attribute, who in _DYNAMIC_MARKS.items():
        if dim in getattr(tensor, attribute, ()):
            yield True, who
    for sources in ("dynamic_sources", "unbacked_sources"):
        if _is_listed(sources, source, dim):
            yield True, f"torch.compiler.config.{sources}"
    if dim in getattr(tensor, _STATIC_MARK[0], ()):
        yield False, _STATIC_MARK[1]


def _is_listed(sources: str, source: str, dim: int) -> bool:
    asked: Any = {"dynamic_sources": builder.is_dynamic_source, "unbacked_sources": builder.is_unbacked_source}[sources]
    return bool(asked(source, dim) if _takes_dims(asked) else asked(source))


@functools.cache
def _takes_dims(asked: Callable[..., Any]) -> bool:
    """Whether this PyTorch allows single dims in the lists of sources."""
    return len(inspect.signature(asked).parameters) > 1


def by_policy(source: str, dim: int | None = None) -> bool | None:
    """Whether the frame's policy declares a size or an integer dynamic; None if it does not mention it."""
    frame, name = current_frame(), plain_source(source)
    names = {name} if dim is None else {name, f"{name}.size({dim})"}
    return True if names & frame.dynamic else False if names & frame.static else None


@functools.cache
def _declared_integer(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def wrap_literal(self: Any, value: object) -> Any:
        if type(value) is not int:
            return original(self, value)
        wanted = _wanted_integer(value, self.source)
        if wanted is None:
            return original(self, value)
        if wanted:
            return self.wrap_symint(value, dynamism=DimDynamic.DYNAMIC)
        self.install_guards(GuardBuilder.CONSTANT_MATCH)
        return ConstantVariable.create(value=value, source=self.source)

    return wrap_literal


def _wanted_integer(value: int, source: Any) -> bool | None:
    """Whether an integer is declared dynamic, or keeps changing; None if nothing is known of it."""
    name = source_name(source)
    wanted = by_policy(name)
    if wanted is None and (name in current_frame().decisions.integers or keeps_changing(value, source)):
        return True
    return wanted


@functools.cache
def _unless_declared(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def is_int_specialization_case(value: Any, source: Any) -> bool:
        return bool(original(value, source)) and not (type(value) is int and _wanted_integer(value, source))

    return is_int_specialization_case
