"""What ``symshape.jit`` returns: many entries in one function, chosen by our own guard tree."""

from __future__ import annotations

import functools
import itertools
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree

from symshape.codegen.entry_guards import Leaf
from symshape.codegen.guard_stub import Constraint, check_texts
from symshape.codegen.guard_tree import Case, MatchText, emit_match
from symshape.dynamic_shapes import Input, declared, read_inputs
from symshape.errors import CompileError, OptionError, SymshapeError
from symshape.jit_trace import Call, trace_call
from symshape.options import Options
from symshape.report import GraphReport
from symshape.runtime.checks import CheckText, Origin, error_of, holds, user_text
from symshape.runtime.guard_tree import Entry, GuardTree, InputClass, apart, stand_in
from symshape.runtime.torch_private import is_fake

DEFAULT_ENTRY_LIMIT = 64
# Tracing changes settings of the process while it runs.
_TRACING = threading.RLock()


@dataclass(frozen=True)
class EntryGuard:
    """What an entry needs of its inputs: leaves, constraints over them, and the same as texts for people."""

    leaves: tuple[Leaf, ...]
    constraints: tuple[Constraint, ...]
    checks: tuple[CheckText, ...]
    reports: tuple[GraphReport, ...]

    def failing(self, values: Sequence[Any]) -> CheckText | None:
        """The first check that does not hold for these inputs."""
        readings = _readings(self.leaves, values)
        return next((check for check in self.checks if not holds(check, readings)), None)


@dataclass(frozen=True)
class EntryReport:
    """An entry for people: what it needs of its inputs, in the user's names, and the reports of its graphs."""

    guards: tuple[str, ...]
    graphs: tuple[GraphReport, ...]


class JitFunction:
    """A compiled function. Calls may come from any thread; finding an entry takes no lock."""

    def __init__(self, fn: Any, dynamic_shapes: Any, options: Mapping[str, Any] | None, location: str) -> None:
        if not callable(fn):
            raise OptionError(f"symshape.jit needs a function or a module, not {type(fn).__name__}")
        functools.update_wrapper(self, fn.forward if isinstance(fn, torch.nn.Module) else fn, updated=())
        self.name = getattr(fn, "__qualname__", type(fn).__name__)
        self.fn, self.dynamic_shapes, self.location = fn, dynamic_shapes, location
        rest = dict(options or {})
        self.entry_limit: int = rest.pop("entry_limit", DEFAULT_ENTRY_LIMIT)
        if type(self.entry_limit) is not int or self.entry_limit < 1:
            raise OptionError(f"entry_limit cannot be {self.entry_limit!r}", next_step="it is an integer from 1 on")
        self.options = Options.parse(rest)
        self._modules = _modules_of(fn)
        self._holder = _Holder(fn, self._modules)
        self._slots = _slots(self._holder)
        self._flat: dict[int, GuardTree] = {}  # by the number of arguments, none of which is a container
        self._nested: dict[Any, GuardTree] = {}  # by the structure of (args, kwargs)
        self._clock = itertools.count(1)
        self._misses: Counter[str] = Counter()
        self._warned = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not kwargs:
            tree = self._flat.get(len(args))
            if tree is not None:
                values = (*self._state(), *args) if self._modules else args
                entry = tree.find(values)
                if entry is not None:
                    entry.used = next(self._clock)
                    return entry.run(values)
        return self._search(args, kwargs)

    @property
    def entries(self) -> list[EntryReport]:
        """What has been compiled and not left since, last compiled first."""
        found = [entry for tree in self._trees() for entry in tree.entries]
        return [EntryReport(tuple(_spoken(check) for check in entry.guards.checks), entry.guards.reports)
                for entry in found]  # fmt: skip

    def finder(self, *args: Any) -> Callable[[Sequence[Any]], Any]:
        """The lookup that a call with these arguments runs first (tensors and constants, no containers): a function of
        the argument tuple, with an entry as its result, or None. For measurements."""
        return self._flat[len(args)].find

    def _trees(self) -> list[GuardTree]:
        return [*self._flat.values(), *self._nested.values()]

    def _state(self) -> tuple[Any, ...]:
        """Parameters and buffers as they are now, and the training flags of all modules."""
        flags = bytes([module.training for module in self._modules])
        return (*(table[key] for table, key, _ in self._slots), flags)

    def _search(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call whose form is not known yet, that has containers or keywords, or that no entry is for."""
        leaves, spec = pytree.tree_flatten((args, kwargs))
        if any(isinstance(leaf, torch.Tensor) and _is_traced(leaf) for leaf in leaves):
            return self.fn(*args, **kwargs)  # somebody traces us
        flat = not kwargs and len(leaves) == len(args) and all(map(_is_leaf, args))
        with _TRACING:
            tree = self._flat.setdefault(len(args), GuardTree(_emit)) if flat else self._nested.get(spec)
            if tree is None:
                tree = self._nested[spec] = GuardTree(_emit)
        values = (*self._state(), *leaves) if self._modules else tuple(leaves)
        entry = tree.find(values)
        if entry is None:
            with _TRACING:
                entry = tree.find(values) or self._compile(tree, args, kwargs, spec, values)
        entry.used = next(self._clock)
        return entry.run(values)

    def _compile(self, tree: GuardTree, args: Any, kwargs: Any, spec: Any, values: Sequence[Any]) -> Entry:
        first = len(values) - spec.num_leaves
        inputs = read_inputs(self._signed(), args, kwargs, self.dynamic_shapes, first)
        kind = self._class_of(values, inputs)
        demanded, sources = declared(inputs, self.location)
        _demand(demanded, sources, inputs)
        self._note_miss(tree, kind, values, inputs)
        state = [(name, table[key]) for table, key, name in self._slots]
        traced = trace_call(Call(self.fn, self._holder, state, inputs, spec), self.options)
        constraints = (*traced.constraints, *demanded)
        guard = EntryGuard(tuple(traced.leaves), constraints, _texts(constraints, sources), tuple(traced.reports))
        examples = [stand_in(value) for value in values if isinstance(value, torch.Tensor)]
        entry = Entry(kind, traced.run, guard, examples, traced.changed)
        self._check_own(entry, values, inputs)
        tree.add(entry)
        if tree.find(values) is not entry:
            raise CompileError("the guards of a new entry reject the inputs that it was made for",
                               where=self.name, next_step="use symshape.compile, and report this")  # fmt: skip
        self._make_room(entry)
        return entry

    def _signed(self) -> Any:
        return self.fn.forward if isinstance(self.fn, torch.nn.Module) else self.fn

    def _class_of(self, values: Sequence[Any], inputs: Sequence[Input]) -> InputClass:
        try:
            return InputClass.of(values)
        except TypeError as error:
            bad = next((one.name for one in inputs if f"{type(one.value).__name__}" == str(error)), "")
            hint = "pass tensors, numbers, strings or None, or use symshape.compile"
            what = f"no guard can be made for an argument of type {error}"
            raise SymshapeError(what, where=bad, next_step=hint) from None

    def _check_own(self, entry: Entry, values: Sequence[Any], inputs: Sequence[Input]) -> None:
        failing = entry.guards.failing(values)
        if failing is not None:
            raise error_of(failing, _readings(entry.guards.leaves, values))
        changed = [values[i] for i in entry.changed]
        others = [v for i, v in enumerate(values) if isinstance(v, torch.Tensor) and i not in entry.changed]
        if not apart(changed, others):
            names = ", ".join(one.name for one in inputs if one.leaf and one.leaf.position in entry.changed)
            raise SymshapeError(f"{self.name} changes {names or 'a buffer'}, and another input is in the same memory",
                                next_step="pass a copy, or use symshape.compile")  # fmt: skip

    def _note_miss(self, tree: GuardTree, kind: InputClass, values: Sequence[Any], inputs: Sequence[Input]) -> None:
        """Why the last entry was not for these inputs."""
        if not tree.entries:
            return
        alike = next((entry for entry in tree.entries if entry.kind == kind), None)
        if alike is None:
            names = [*(name for *_, name in self._slots), *(["training"] if self._modules else [])]
            self._misses[kind.difference(tree.entries[0].kind, [*names, *(one.name for one in inputs)])] += 1
        elif (failing := alike.guards.failing(values)) is not None:
            self._misses[_spoken(failing)] += 1

    def _make_room(self, newest: Entry) -> None:
        trees = [(entry, tree) for tree in self._trees() for entry in tree.entries if entry is not newest]
        if len(trees) < self.entry_limit:
            return
        oldest, tree = min(trees, key=lambda pair: pair[0].used)
        tree.remove(oldest)
        if not self._warned:
            self._warned = True
            listed = "".join(f"\n  {text} (failed {count} times)" for text, count in self._misses.most_common(5))
            warnings.warn(
                f"symshape.jit: {self.name} has {self.entry_limit} entries (entry_limit); from now on the least "
                f"recently used ones leave. Guards that keep failing:{listed}", stacklevel=5,
            )  # fmt: skip


class _Holder(torch.nn.Module):
    """Has the modules of a function as its own, so that their parameters can be exchanged for fake ones."""

    def __init__(self, fn: Any, modules: Sequence[torch.nn.Module]) -> None:
        super().__init__()
        self.call = [fn]  # in a list: a module would be registered twice
        if isinstance(fn, torch.nn.Module):
            self.self_ = fn
        else:
            for i, module in enumerate(m for m in _roots(fn)):
                self.add_module(f"module{i}" if i else "self_", module)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        tables = dict(self.named_buffers())
        result = self.call[0](*args, **kwargs)
        for name, tensor in self.named_buffers():
            if tables.get(name) is not tensor:
                raise CompileError(f"the function gives the buffer {name.partition('.')[2]} another tensor",
                                   next_step="change it in place (copy_), or use symshape.compile")  # fmt: skip
        return result


def _roots(fn: Any) -> list[torch.nn.Module]:
    """Modules that a function is a method of or closes over."""
    owner = getattr(fn, "__self__", None)
    cells = [cell.cell_contents for cell in getattr(fn, "__closure__", None) or () if _is_set(cell)]
    found = [value for value in (fn, owner, *cells) if isinstance(value, torch.nn.Module)]
    return list({id(module): module for module in found}.values())


def _is_set(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # a name that is assigned later
        return False


def _modules_of(fn: Any) -> list[torch.nn.Module]:
    found = [module for root in _roots(fn) for module in root.modules()]
    return list({id(module): module for module in found}.values())


def _slots(holder: torch.nn.Module) -> list[tuple[Any, str, str]]:
    """Where each parameter and buffer is kept: (table, key, name), each tensor once."""
    found: dict[int, tuple[Any, str, str]] = {}
    for prefix, module in holder.named_modules():
        for table in (module._parameters, module._buffers):
            for key, tensor in table.items():
                if tensor is not None:
                    found.setdefault(id(tensor), (table, key, f"{prefix}.{key}" if prefix else key))
    return list(found.values())


def _is_leaf(value: Any) -> bool:
    return pytree.tree_is_leaf(value)


def _is_traced(tensor: torch.Tensor) -> bool:
    from torch._subclasses.functional_tensor import FunctionalTensor

    return is_fake(tensor) or isinstance(tensor, FunctionalTensor)


def _emit(entries: Sequence[Entry]) -> MatchText:
    """The code that chooses among entries of one class."""
    cases = [Case.of(f"e{i}", [c.condition for c in entry.guards.constraints]) for i, entry in enumerate(entries)]
    return emit_match(entries[0].guards.leaves, cases)


def _texts(constraints: Sequence[Constraint], sources: Mapping[str, str]) -> tuple[CheckText, ...]:
    """For people: a constraint that is there twice is shown once, with its message if one has it."""
    first: dict[Any, Constraint] = {}
    for constraint in constraints:
        known = first.get(constraint.condition)
        if known is None or not known.location:
            first[constraint.condition] = constraint
    return check_texts(list(first.values()), dict(sources))


def _demand(demanded: Sequence[Constraint], sources: Mapping[str, str], inputs: Sequence[Input]) -> None:
    """ShapeConstraintError for inputs that are not as declared."""
    readings = _readings([one.leaf for one in inputs if one.leaf], {one.leaf.position: one.value for one in inputs
                                                                    if one.leaf})  # fmt: skip
    for check in check_texts(demanded, dict(sources)):
        if not holds(check, readings):
            raise error_of(check, {name: readings[name] for name, _ in check.sources})


def _readings(leaves: Sequence[Leaf], values: Any) -> dict[str, int]:
    """The values of all symbols of leaves; ``values`` by position."""
    found: dict[str, int] = {}
    for leaf in leaves:
        value = values[leaf.position]
        if leaf.rank is None:
            found[str(leaf.value)] = value
            continue
        found.update(zip(map(str, leaf.sizes), value.shape))
        found.update(zip(map(str, leaf.strides), value.stride()))
        found[str(leaf.storage_offset)] = value.storage_offset()
    return found


def _spoken(check: CheckText) -> str:
    return user_text(check.condition, {symbol: Origin.parse(symbol, source) for symbol, source in check.sources})
