"""``dynamic_shapes`` of ``symshape.jit``, in the form of torch.export.

A dim is a ``torch.export.Dim`` or a name (dims of one name are equal), an int (the only size allowed), ``Dim.STATIC``
(every size gets an entry of its own), or None, ``Dim.AUTO``, ``Dim.DYNAMIC`` or nothing: dynamic.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.utils._pytree as pytree

from symshape.codegen.host.entry_guards import Leaf
from symshape.codegen.host.guard_stub import Constraint
from symshape.errors import OptionError, SymshapeError
from symshape.jitted.nested_tensors import Part
from symshape.policy import SpecialisationPolicy
from symshape.prover.numbers.condition import at_least, equals
from symshape.prover.numbers.expr import Expr


@dataclass(frozen=True)
class DimSpec:
    """``value``: the only size allowed; ``static``: not a symbol; ``derived``: a function of the dim ``name``."""

    name: str = ""
    minimum: int | None = None
    maximum: int | None = None
    static: bool = False
    value: int | None = None
    derived: Callable[[Any], Any] | None = None

    @classmethod
    def of(cls, spec: Any, where: str) -> DimSpec:
        """OptionError for anything that is no dim."""
        if spec is None:
            return cls()
        if isinstance(spec, str) and spec.isidentifier():
            return cls(spec)
        if type(spec) is int:
            return cls(value=spec, static=True)
        hint = getattr(getattr(spec, "type", None), "name", "")
        if hint in ("AUTO", "DYNAMIC", "STATIC"):
            return cls(minimum=spec.min, maximum=spec.max, static=hint == "STATIC")
        if hasattr(spec, "root") and hasattr(spec, "fn"):
            return cls(spec.root.__name__, derived=spec.fn)
        if hasattr(spec, "min") and hasattr(spec, "max"):
            return cls(spec.__name__, _bound(spec.min), _bound(spec.max))
        raise OptionError(
            f"dynamic_shapes: {spec!r} is no dim",
            where=where,
            next_step="give a torch.export.Dim, a name, an int for a fixed size, or None",
        )


def _bound(value: Any) -> int | None:
    return int(value) if isinstance(value, int) else None  # infinity is no int


@dataclass(frozen=True)
class Input:
    """An input: its name for messages (``x``, ``batch['ids']``), its value, and the spec of each dim; for an integer,
    of its value; for other values none. ``leaf``: its number in guards (None for a constant).

    Each part of a nested tensor is an input. ``owner``: the nested tensor; ``outer``: the dims of it that the part's
    sizes are sizes of, None for others. ``beyond``: the difference of a size and the declared one: there is one more
    offset than rows.
    """

    name: str
    value: Any
    dims: tuple[DimSpec, ...]
    leaf: Leaf | None
    owner: str = ""
    outer: tuple[int | None, ...] = ()
    beyond: int = 0

    def source(self, dim: int | None = None) -> str:
        """The source of a size (or of the value), as ``Origin.parse`` takes it, with the name of the dim."""
        spec, outer = self.dims[dim or 0], self.outer[dim or 0] if self.outer and not self.beyond else None
        size = f"{self.name}.size()[{dim}]" if outer is None else f"{self.owner}.size()[{outer}]"
        source = self.name if dim is None else size
        return f"{spec.name}: {source}" if spec.name and spec.derived is None and not self.beyond else source

    def called(self, dim: int) -> str:
        """The user's name of a size (or of the value)."""
        if not isinstance(self.value, torch.Tensor):
            return self.name
        outer = self.outer[dim] if self.outer else None
        return f"{self.name}.size({dim})" if outer is None else f"{self.owner}.size({outer})"

    @property
    def is_number(self) -> bool:
        """Whether only its first size is used: it has no elements."""
        return bool(self.owner) and not self.outer and self.value.dim() == 2

    def sizes(self) -> list[tuple[DimSpec, Expr, str]]:
        """(spec, expression, source) of each size that a spec may be of, or of the integer."""
        if self.leaf is None:
            return []
        if self.leaf.rank is None:
            return [(self.dims[0], self.leaf.value, self.source())]
        sizes = enumerate(zip(self.dims, self.leaf.sizes))
        return [(spec, size - self.beyond, self.source(d)) for d, (spec, size) in sizes]

    def strides(self) -> dict[str, str]:
        """The source of each stride and of the storage offset."""
        if self.leaf is None or self.leaf.rank is None:
            return {}
        steps = {str(stride): f"{self.name}.stride()[{d}]" for d, stride in enumerate(self.leaf.strides)}
        return steps | {str(self.leaf.storage_offset): f"{self.name}.storage_offset()"}


def read_inputs(fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any], spec: Any, first: int) -> list[Input]:
    """The leaves of a call in the order of ``tree_flatten((args, kwargs))``; ``first``: the position of the first."""
    names, specs = _parameters(fn, args, kwargs, spec)
    found: list[Input] = []
    leaves: Any = pytree.tree_flatten_with_path((tuple(args), dict(kwargs)))[0]
    for path, value in leaves:
        key = path[1].idx if path[0].idx == 0 else path[1].key
        part = path[-1] if isinstance(path[-1], Part) else None
        inner = path[2:] if part is None else path[2:-1]
        name = names[key] + pytree.keystr(inner)
        spec, position = _spec_at(specs.get(key), inner, name), first + len(found)
        found.append(_input(name, value, spec, position) if part is None else _part(name, part, value, spec, position))
    return found


def _parameters(fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any], spec: Any) -> tuple[Any, Any]:
    """Names and specs by position (an int) and keyword (a str)."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):  # a builtin
        parameters = []
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = next((p.name for p in parameters if p.kind == p.VAR_POSITIONAL), "args")
    names: dict[int | str, str] = {key: key for key in kwargs}
    for i in range(len(args)):
        names[i] = named[i] if i < len(named) else f"{rest}[{i - len(named)}]"
    if spec is None:
        return names, {}
    if isinstance(spec, Mapping):
        known = {p.name for p in parameters} or set(names.values())
        if unknown := [key for key in spec if key not in known]:
            raise OptionError(
                f"dynamic_shapes: no argument is called {unknown[0]!r}",
                next_step=f"arguments: {', '.join(sorted(known))}",
            )
        return names, {
            k: spec[rest][k - len(named)] if type(k) is int and k >= len(named) and rest in spec else spec.get(name)
            for k, name in names.items()
        }
    if not isinstance(spec, (tuple, list)):
        raise OptionError("dynamic_shapes is neither a dict nor a tuple", next_step="give one entry for each argument")
    by_position = dict(enumerate(spec))
    return names, {k: by_position.get(k if type(k) is int else named.index(name)) for k, name in names.items()}


def _spec_at(spec: Any, path: Sequence[Any], name: str) -> Any:
    for key in path:
        if spec is None:
            return None
        try:
            spec = spec[getattr(key, "idx", getattr(key, "key", getattr(key, "name", None)))]
        except (KeyError, IndexError, TypeError):
            if isinstance(spec, Mapping):
                return None
            hint = "nest it like the argument; None stands for all dims dynamic"
            what = "dynamic_shapes has another structure than the argument"
            raise OptionError(what, where=name, next_step=hint) from None
    return spec


def _input(name: str, value: Any, spec: Any, position: int) -> Input:
    if isinstance(value, torch.Tensor) and value.is_nested:
        what, hint = (
            "no guard can be made for a nested tensor of the strided layout",
            "make it with layout=torch.jagged",
        )
        raise SymshapeError(what, where=name, next_step=hint)
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided:
            what = f"no guard can be made for an argument of type {value.layout} tensor"
            raise SymshapeError(what, where=name, next_step="pass its indices and values, or use symshape.compile")
        dims = _dims(value.dim(), spec, name)
        return Input(name, value, dims, Leaf(position, value.dim(), value.is_contiguous()))
    if type(value) is int:
        return Input(name, value, (DimSpec.of(spec, name),), Leaf(position))
    if spec is not None and DimSpec.of(spec, name).value is None:
        raise OptionError(f"dynamic_shapes: {name} is no tensor or integer", next_step="leave it out, or give None")
    return Input(name, value, (), None)


def _part(owner: str, part: Part, value: torch.Tensor, spec: Any, position: int) -> Input:
    """A part of a nested tensor, with the declarations of its dims."""
    ragged, inside = part.form.dim, part.form.rank
    dims = _dims(inside + 1, spec, owner)
    if dims[ragged] != DimSpec():
        hint = "declare dense dims and rows, dim 0; or give None for this one"
        raise OptionError("dynamic_shapes: the ragged dim has no size", where=f"{owner}.size({ragged})", next_step=hint)
    leaf = Leaf(position, value.dim(), value.is_contiguous())
    made = Input(f"{owner}{part}", value, (DimSpec(), DimSpec(static=True))[: value.dim()], leaf, owner)
    if part.name == "values":
        outer = (None if d == ragged else d for d in range(1, inside + 1))
        return replace(made, dims=dims[1:], outer=tuple(outer))
    if part.name == "offsets":
        return replace(made, dims=dims[:1], outer=(0,), beyond=1)
    return made


def _dims(rank: int, spec: Any, name: str) -> tuple[DimSpec, ...]:
    if isinstance(spec, Mapping):
        wrong = [dim for dim in spec if type(dim) is not int or not -rank <= dim < rank]
        by_dim = {dim % rank: one for dim, one in spec.items() if dim not in wrong}
    elif isinstance(spec, (tuple, list)):
        wrong, by_dim = ([] if len(spec) == rank else [len(spec)]), dict(enumerate(spec))
    else:
        wrong, by_dim = ([] if spec is None else [spec]), {}
    if wrong:
        raise OptionError(
            f"dynamic_shapes: {spec!r} does not fit a tensor of {rank} dims",
            where=name,
            next_step="give a dict from dims, or a tuple with an entry for each dim",
        )
    return tuple(DimSpec.of(by_dim.get(d), f"{name}.size({d})") for d in range(rank))


def check_policy(policy: SpecialisationPolicy) -> None:
    """OptionError for settings of a policy that ``symshape.jit`` does not support: it sees no earlier calls, and breaks
    no graph."""
    usual = SpecialisationPolicy()
    for name in ("integers", "limit"):
        if getattr(policy, name) != getattr(usual, name):
            hint = "leave it out; entry_limit bounds the entries"
            raise OptionError(f"policy: {name} has no meaning for symshape.jit", next_step=hint)
    if policy.sizes == "changed":
        raise OptionError("policy: sizes cannot be 'changed' for symshape.jit", next_step="values: symbols, static")


def by_policy(inputs: Sequence[Input], policy: SpecialisationPolicy) -> list[Input]:
    """The inputs with a policy's declarations where ``dynamic_shapes`` has none. OptionError for contradictions."""
    if policy == SpecialisationPolicy():
        return list(inputs)
    return [replace(one, dims=tuple(_by_policy(one, d, policy) for d in range(len(one.dims)))) for one in inputs]


def _by_policy(one: Input, dim: int, policy: SpecialisationPolicy) -> DimSpec:
    spec = one.dims[dim]
    name = one.called(dim)
    said = {one.owner or one.name, name}
    says = {field: bool(said & set(getattr(policy, field))) for field in ("static", "dynamic")}
    declared_dynamic = spec != DimSpec() and not spec.static
    if (says["static"] and declared_dynamic) or (says["dynamic"] and spec.static):
        words = ("static", "dynamic") if says["static"] else ("dynamic", "static")
        raise OptionError(
            f"{name} is {words[0]} by the policy's `{words[0]}`, and {words[1]} by dynamic_shapes",
            next_step="take one of them back",
        )
    is_static = says["static"] or (policy.sizes == "static" and spec == DimSpec() and not says["dynamic"])
    return replace(spec, static=True) if is_static else spec


def declared(inputs: Sequence[Input], location: str) -> tuple[list[Constraint], dict[str, str]]:
    """The declarations as constraints over the leaves of the inputs, and the source of each symbol."""
    found: list[Constraint] = []
    sources = {symbol: source for one in inputs for symbol, source in one.strides().items()}
    named: dict[str, tuple[Expr, str]] = {}
    sizes = [size for one in inputs for size in one.sizes()]
    for spec, size, source in sizes:
        sources |= dict.fromkeys(size.symbols, source)
        if spec.name and spec.derived is None:
            named.setdefault(spec.name, (size, source))
    for spec, size, source in sizes:
        where = f"{location}: dynamic_shapes" if location else "dynamic_shapes"
        if spec.value is not None:
            found.append(Constraint(equals(size, spec.value), "declared as a fixed size", where))
        if spec.minimum is not None and spec.minimum > 0:
            found.append(Constraint(at_least(size, spec.minimum), f"outside the declared range {_range(spec)}", where))
        if spec.maximum is not None:
            found.append(Constraint(at_least(spec.maximum, size), f"outside the declared range {_range(spec)}", where))
        if spec.derived is not None:
            root = named.get(spec.name)
            if root is None:
                raise OptionError(
                    f"dynamic_shapes: no size is the dim {spec.name!r} itself",
                    where=source,
                    next_step="declare one, or use a dim of its own here",
                )
            found.append(Constraint(equals(size, spec.derived(root[0])), "declared as derived", where))
        elif spec.name and named[spec.name][0] != size:
            # Two dims of one name: the message tells them apart by where they are.
            sources[str(size)] = source.partition(": ")[2]
            found.append(Constraint(equals(size, named[spec.name][0]), f"both are declared as {spec.name!r}", where))
    return found, sources


def _range(spec: DimSpec) -> str:
    low = spec.minimum or 0
    return f"of {spec.name or 'the dim'}, {low} to {'any' if spec.maximum is None else spec.maximum}"
