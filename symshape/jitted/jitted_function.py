"""The callable that ``symshape.jit`` returns: many entries, chosen by a guard tree of our own."""

from __future__ import annotations

import functools
import itertools
import sys
import types
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.compiler import is_dynamo_compiling

from symshape.activity import note
from symshape.artifact.constraint_checks import CheckText, Origin, error_of, user_text
from symshape.codegen.host.entry_guards import Leaf, minimal
from symshape.codegen.host.guard_stub import Constraint, check_texts
from symshape.codegen.host.guard_tree import Case, MatchText, emit_match
from symshape.errors import CompileError, OptionError, SymshapeError, with_text
from symshape.frontend.bridge.dynamo import code_of, compile_lock
from symshape.frontend.bridge.fake_tensors import has_own_functions, holds_tensors
from symshape.frontend.bridge.modules import global_hooks
from symshape.frontend.bridge.source_lines import user_line
from symshape.frontend.bridge.trace_without_dynamo import is_seen_by_others
from symshape.frontend.bridge.tracing_errors import TensorHasNoText
from symshape.frontend.importer.assumptions import Assumptions, argument_names
from symshape.graphs import FurtherGraph, Reason, log_further_graph, origin_at, origin_text
from symshape.jitted.dynamic_shapes import Input, by_policy, check_policy, declared, read_inputs
from symshape.jitted.module_state import ModuleState
from symshape.jitted.nested_tensors import take_apart
from symshape.jitted.tracing import Call, trace_call
from symshape.live_line import compiling
from symshape.options import Options, require_mapping
from symshape.policy import require_known
from symshape.runtime.checks import holds
from symshape.runtime.eager_errors import NoError, copy_of_input, error_instead
from symshape.runtime.entries import Entry, GuardTree, InputClass, share_no_memory, stand_in
from symshape.tools.report import GraphReport

DEFAULT_ENTRY_LIMIT = 64
# Of so many sets of modules and hooks the entries are kept: for functions whose modules are exchanged, and back.
_STATES = 8


@dataclass(frozen=True)
class EntryGuard:
    """The guards of an entry: leaves, constraints over them, and the same as texts for people. ``number``: of the
    entry; ``further``: why it was compiled in addition to earlier ones."""

    leaves: tuple[Leaf, ...]
    constraints: tuple[Constraint, ...]
    checks: tuple[CheckText, ...]
    reports: tuple[GraphReport, ...]
    number: int
    further: FurtherGraph | None

    def failing(self, values: Sequence[Any]) -> CheckText | None:
        """The first check that does not hold for these inputs."""
        readings = _readings(self.leaves, values)
        return next((check for check in self.checks if not holds(check, readings)), None)


@dataclass(frozen=True)
class EntryReport:
    """An entry for people: its guards, in the user's names, the reports of its graphs, and why the earlier entries did
    not serve the call that it was compiled for (None for the first)."""

    guards: tuple[str, ...]
    graphs: tuple[GraphReport, ...]
    further: FurtherGraph | None = None


class _Entries:
    """All entries for the same modules, by the structure of a call."""

    def __init__(self, fn: Any) -> None:
        self.modules = ModuleState(fn)
        self.has_modules = bool(self.modules.modules)
        self.flat: dict[int, GuardTree] = {}  # by the number of arguments; none is a container
        self.nested: dict[Any, GuardTree] = {}  # by the structure of (args, kwargs), and the forms of nested tensors

    def trees(self) -> list[GuardTree]:
        return [*self.flat.values(), *self.nested.values()]


class JitFunction:
    """A compiled function. Calls may come from any thread; finding an entry takes no lock.

    If the call itself is traced or transformed (``torch.compile``, ``torch.export``, ``torch.func``, another jitted
    function, modes), the original function is called, and is traced or transformed.
    """

    def __init__(self, fn: Any, dynamic_shapes: Any, options: Mapping[str, Any] | None, location: str) -> None:
        self._is_static = isinstance(fn, staticmethod)
        fn = fn.__func__ if isinstance(fn, staticmethod) else fn
        if not callable(fn) or isinstance(fn, type):
            what = f"the class {fn.__name__}" if isinstance(fn, type) else type(fn).__name__
            raise OptionError(
                f"symshape.jit needs a function or a module, not {what}",
                next_step="jit an instance, or a method" if isinstance(fn, type) else "",
            )
        functools.update_wrapper(self, fn.forward if isinstance(fn, torch.nn.Module) else fn, updated=())
        self.name = getattr(fn, "__qualname__", type(fn).__name__)
        self.fn, self.dynamic_shapes, self.given_options, self.location = fn, dynamic_shapes, options, location
        require_mapping(options)
        rest = dict(options or {})
        self.entry_limit: int = rest.pop("entry_limit", DEFAULT_ENTRY_LIMIT)
        if type(self.entry_limit) is not int or self.entry_limit < 1:
            raise OptionError(f"entry_limit cannot be {self.entry_limit!r}", next_step="it is an integer from 1 on")
        self.options = Options.parse(rest)
        check_policy(self.options.policy)
        names = argument_names(self._signed())
        if names is not None:
            require_known(self.options.policy, names)
        self._assumed = Assumptions(self.options.assume, self._signed(), "assume= of symshape.jit")
        self._states: list[_Entries] = []  # the first is in use
        self._clock = itertools.count(1)
        self._made = 0  # entries, those among them that have left
        self._misses: Counter[str] = Counter()
        self._warned = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if is_dynamo_compiling():
            return self.fn(*args, **kwargs)
        if not kwargs and self._states:
            now = self._states[0]
            tree = now.flat.get(len(args))
            if tree is not None:
                values = args
                if now.has_modules:
                    state = now.modules.read()
                    if state is None:
                        return self._search(args, kwargs)
                    values = (*state, *args)
                entry = tree.find(values)
                if entry is not None:
                    entry.used = next(self._clock)
                    try:
                        return entry.run(values)
                    except (RuntimeError, IndexError) as error:
                        self._raise_eagers(error, args, kwargs)
                        raise
        return self._search(args, kwargs)

    def _raise_eagers(
        self, error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any], *, traced: bool = False
    ) -> None:
        """Raises eager mode's error instead of ``error``, if it has another type. Instead of one of a trace, which may
        name symbols, in any case: CompileError if eager mode has none."""
        leaves, spec = pytree.tree_flatten((args, kwargs))
        entries, values = self._state()
        state = {name: copy_of_input(value, traced) for _, name, value in entries.modules.tensors(values)}

        def run(*copies: Any) -> None:
            again, named = pytree.tree_unflatten(copies, spec)
            try:
                torch.func.functional_call(entries.modules.holder, state, again, named)
            except Exception as found:
                if line := user_line(found):
                    found.add_note(f"  at: {with_text(line)}")
                raise

        try:
            found = error_instead(error, leaves, run, traced=traced)
        except NoError:
            line = user_line(error)
            if not line:  # of the gradients, which eager mode computes later
                return
            hint = _FOR_TEXTS if isinstance(error, TensorHasNoText) else "symshape.compile breaks the graph there"
            raise CompileError(
                f"eager mode runs this call, a trace cannot: {(str(error).splitlines() or [type(error).__name__])[0]}",
                where=with_text(line),
                next_step=hint,
            ) from error
        if found is not None:
            raise found from error

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """As a method: a jitted function for each instance, whose modules are inputs."""
        if instance is None or self._is_static:
            return self
        key = f"_symshape_jit_{self.name}"
        kept = getattr(instance, "__dict__", None)
        if kept is None:
            raise OptionError(
                f"symshape.jit needs instances with attributes for the method {self.name}",
                next_step="leave __slots__ out, or jit a function that the method calls",
            )
        bound = kept.get(key)
        if bound is None or bound.fn.__self__ is not instance:
            method = types.MethodType(self.fn, instance)
            bound = kept[key] = JitFunction(method, self.dynamic_shapes, self.given_options, self.location)
        return bound

    def __reduce__(self) -> Any:
        """Compiled code is neither copied nor pickled: the copy compiles anew."""
        found, name = sys.modules.get(str(self.__module__)), getattr(self, "__qualname__", "")
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is self:
            return name  # like a function
        if isinstance(self.fn, types.MethodType) and type(self.fn.__self__).__dict__.get(self.fn.__name__) is not None:
            return getattr, (self.fn.__self__, self.fn.__name__)
        return JitFunction, (self.fn, self.dynamic_shapes, self.given_options, self.location)

    @property
    def entries(self) -> list[EntryReport]:
        """The compiled entries that have not been dropped, last compiled first."""
        found = [entry for tree in self._trees() for entry in tree.entries]
        return [
            EntryReport(tuple(map(_spoken, entry.guards.checks)), entry.guards.reports, entry.guards.further)
            for entry in found
        ]

    def _trees(self) -> list[GuardTree]:
        return [tree for state in self._states for tree in state.trees()]

    def _state(self) -> tuple[_Entries, tuple[Any, ...]]:
        """The entries for the current state of the modules, and that state."""
        found = self._known_state()
        if found is not None:
            return found
        with compile_lock:
            found = self._known_state()  # another thread may have made it
            if found is None:
                made = _Entries(self.fn)
                self._states = [made, *self._states[: _STATES - 1]]
                found = made, made.modules.read() or ()
        return found

    def _known_state(self) -> tuple[_Entries, tuple[Any, ...]] | None:
        for entries in list(self._states):
            values = entries.modules.read()
            if values is not None:
                if self._states[0] is not entries:
                    with compile_lock:
                        self._states = [entries, *(other for other in self._states if other is not entries)]
                return entries, values
        return None

    def _search(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Handles a call whose form is not known yet, that has containers or keywords, or that no entry serves."""
        given, spec = pytree.tree_flatten((args, kwargs))
        apart, leaves, forms = take_apart(given)
        entries, state = self._state()
        if is_seen_by_others(state):  # while another thread traces, it has the modules' tensors replaced
            with compile_lock:
                entries, state = self._state()
        # Hooks of all modules would run for those too that a trace is made of.
        hooked = entries.modules.modules and any(global_hooks())
        if hooked or is_seen_by_others((*state, *leaves)) or entries.modules.is_lazy(state):
            return self.fn(*args, **kwargs)
        flat = not kwargs and not forms and len(leaves) == len(args) and all(map(_is_leaf, args))
        key = (spec, forms)
        with compile_lock:
            tree = entries.flat.setdefault(len(args), GuardTree(_emit)) if flat else entries.nested.get(key)
            if tree is None:
                tree = entries.nested[key] = GuardTree(_emit)
        values = (*state, *leaves) if entries.has_modules else tuple(leaves)
        entry = tree.find(values)
        if entry is None:
            call = pytree.tree_unflatten(apart, spec)
            try:
                with compile_lock:
                    entry = tree.find(values) or self._compile(entries.modules, tree, call, values)
            except SymshapeError:
                raise
            except Exception as error:
                self._raise_eagers(error, args, kwargs, traced=True)
                raise
        entry.used = next(self._clock)
        try:
            return entry.run(values)
        except (RuntimeError, IndexError) as error:
            self._raise_eagers(error, args, kwargs)
            raise

    def _compile(self, modules: ModuleState, tree: GuardTree, call: Any, values: Sequence[Any]) -> Entry:
        """Compiles an entry. ``call``: (args, kwargs), with nested tensors as their parts."""
        (args, kwargs), spec = call, pytree.tree_structure(call)
        first = len(values) - spec.num_leaves
        inputs = by_policy(read_inputs(self._signed(), args, kwargs, self.dynamic_shapes, first), self.options.policy)
        state = modules.tensors(values[:first])
        _require_plain([*((one.name, one.value) for one in inputs), *((name, value) for _, name, value in state)])
        kind = self._class_of(values, inputs)
        demanded, sources = declared(inputs, self.location)
        assumed = _assumed(self._assumed, inputs)
        demanded += assumed
        _demand(demanded, sources, inputs)
        further = self._further(modules, tree, kind, values, inputs)
        with compiling(f"{self.name} ({Path(self.location).name})"):
            note("trace")
            traced = trace_call(Call(self.fn, modules.holder, state, inputs, spec, assumed), self.options)
        constraints = tuple(minimal([*traced.constraints, *demanded], traced.leaves))
        self._made += 1
        numbered = self._made, further
        guard = EntryGuard(
            tuple(traced.leaves), constraints, _texts(constraints, sources), tuple(traced.reports), *numbered
        )
        examples = [stand_in(value) for value in values if isinstance(value, torch.Tensor)]
        entry = Entry(kind, traced.run, guard, examples, traced.changed)
        self._check_own(entry, values, inputs)
        tree.add(entry)
        if tree.find(values) is not entry:
            raise CompileError(
                "the guards of a new entry reject the inputs that it was made for",
                where=self.name,
                next_step="use symshape.compile, and report this",
            )
        self._make_room(entry)
        return entry

    def _signed(self) -> Any:
        return self.fn.forward if isinstance(self.fn, torch.nn.Module) else self.fn

    def _class_of(self, values: Sequence[Any], inputs: Sequence[Input]) -> InputClass:
        try:
            return InputClass.of(values)
        except TypeError as error:
            bad = next((one.name for one in inputs if f"{type(one.value).__name__}" == str(error)), "")
            hint = "pass tensors, numbers, strings or None, register a dataclass (pytree), or use symshape.compile"
            what = f"no guard can be made for an argument of type {error}"
            raise SymshapeError(what, where=bad, next_step=hint) from None

    def _check_own(self, entry: Entry, values: Sequence[Any], inputs: Sequence[Input]) -> None:
        failing = entry.guards.failing(values)
        if failing is not None:
            raise error_of(failing, _readings(entry.guards.leaves, values))
        written = [one for one in inputs if one.leaf and one.leaf.position in entry.changed]
        for one in written:
            if one.owner and one.value.requires_grad:
                raise SymshapeError(
                    f"{self.name} changes a nested tensor that requires a gradient",
                    where=one.owner,
                    next_step="return a new tensor, or use symshape.compile",
                )
        changed = [values[i] for i in entry.changed]
        others = [v for i, v in enumerate(values) if isinstance(v, torch.Tensor) and i not in entry.changed]
        if not share_no_memory(changed, others):
            names = ", ".join(one.name for one in written)
            raise SymshapeError(
                f"{self.name} changes {names or 'a buffer'}, and another input is in the same memory",
                next_step="pass a copy, or use symshape.compile",
            )

    def _further(
        self, modules: ModuleState, tree: GuardTree, kind: InputClass, values: Sequence[Any], inputs: Sequence[Input]
    ) -> FurtherGraph | None:
        """Logs why no entry serves these inputs, and counts it for the last entry. None without entries."""
        own = [*modules.names, *(["training"] if modules.modules else [])]
        names = [*own, *(one.name for one in inputs)]
        alike = [entry for entry in tree.entries if entry.kind == kind] or tree.entries
        reasons = {id(entry): _reason(entry, kind, values, names) for entry in tree.entries}
        for entry in alike[:1]:
            self._misses[reasons[id(entry)].condition] += 1
        others = [entry for other in self._trees() if other is not tree for entry in other.entries]
        rows = [*reasons.values(), *(Reason(entry.guards.number, _OTHER_FORM) for entry in others)]
        if not rows:
            return None
        code = code_of(self.fn)
        line = f"{code.co_filename}:{code.co_firstlineno}" if code is not None else self.location
        in_order = tuple(sorted(rows, key=lambda row: row.graph))
        found = FurtherGraph(self.name, line, self._made + 1, in_order, "entry")
        log_further_graph(found)
        return found

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
                f"symshape.jit: {self.name} has {self.entry_limit} entries, as many as entry_limit allows: from "
                "now on the least recently used ones are evicted, and compiled again when they are needed. Raise "
                f"entry_limit, or change what these guards test, which keep failing:{listed}",
                stacklevel=5,
            )


_OTHER_FORM = "calls with another number, nesting or names of arguments, or with other modules"


def _reason(entry: Entry, kind: InputClass, values: Sequence[Any], names: Sequence[str]) -> Reason:
    """The reason why an entry for calls of this form does not serve these inputs."""
    number = entry.guards.number
    if entry.kind != kind:
        return Reason(number, kind.difference(entry.kind, names))
    failing = entry.guards.failing(values)
    if failing is None:
        return Reason(number, "another layout of the inputs")
    readings = _readings(entry.guards.leaves, values)
    origins = {symbol: Origin.parse(symbol, source) for symbol, source in failing.sources}
    here = tuple((origin.name, str(readings[symbol])) for symbol, origin in origins.items() if symbol in readings)
    return Reason(number, _spoken(failing), here, *origin_text(origin_at(failing.location)))


_FOR_TEXTS = (
    "return the tensor and print it after the call; or use symshape.compile, which breaks the graph there, or the "
    "function itself (`x.shape` and `x.dtype` have a text, printed once for each trace)"
)


def _is_leaf(value: Any) -> bool:
    return pytree.tree_is_leaf(value)


def _emit(entries: Sequence[Entry]) -> MatchText:
    """Generates the code that chooses among entries of one class."""
    cases = [Case.of(f"e{i}", [c.condition for c in entry.guards.constraints]) for i, entry in enumerate(entries)]
    return emit_match(entries[0].guards.leaves, cases)


def _texts(constraints: Sequence[Constraint], sources: Mapping[str, str]) -> tuple[CheckText, ...]:
    """Constraints for display: equal ones are shown once, with the message of one that has any."""
    first: dict[Any, Constraint] = {}
    for constraint in constraints:
        known = first.get(constraint.condition)
        if known is None or not known.location:
            first[constraint.condition] = constraint
    return check_texts(list(first.values()), dict(sources))


def _demand(demanded: Sequence[Constraint], sources: Mapping[str, str], inputs: Sequence[Input]) -> None:
    """ShapeConstraintError for inputs that contradict their declaration."""
    readings = _readings(
        [one.leaf for one in inputs if one.leaf], {one.leaf.position: one.value for one in inputs if one.leaf}
    )
    for check in check_texts(demanded, dict(sources)):
        if not holds(check, readings):
            raise error_of(check, {name: readings[name] for name, _ in check.sources})


def _assumed(assumptions: Assumptions, inputs: Sequence[Input]) -> list[Constraint]:
    """The assumptions as constraints over the inputs of a call."""
    known = {}
    for one in inputs:
        if one.leaf is not None and one.leaf.rank is None:
            known[one.name] = one.leaf.value
        elif one.leaf is not None:
            known |= {one.called(d): size for d, (_, size, _) in enumerate(one.sizes())}
    return [
        Constraint(condition, f"the assumption `{item.text}`", item.origin)
        for item, condition in assumptions.over(known)
    ]


def _require_plain(named: Iterable[tuple[str, Any]]) -> None:
    """SymshapeError for a tensor of a class that holds others, or has functions of its own: Dynamo alone traces it."""
    for name, value in named:
        if holds_tensors(value):
            raise SymshapeError(
                f"symshape.jit takes no tensor of the class {type(value).__name__}, which holds other tensors",
                where=name,
                next_step="use symshape.compile, or pass the tensors that it holds",
            )
        if has_own_functions(value):
            raise SymshapeError(
                f"symshape.jit takes no tensor of the class {type(value).__name__}, which has functions of its own",
                where=name,
                next_step="use symshape.compile, or pass x.as_subclass(torch.Tensor)",
            )


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
