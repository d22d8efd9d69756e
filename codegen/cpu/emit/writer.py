"""Writes MLIR text: nested regions; pure operations are hoisted to the outermost region that has their operands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from symshape.codegen.cpu.emit.loop_unrolling import defined, is_short, renamed

_NAME = re.compile(r"%\w+")
Result = TypeVar("Result")


@dataclass
class _Scope:
    lines: list[str] = field(default_factory=list)
    memo: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Rounds:
    """The body of a printed loop: names of the carried values at the start of an iteration, and at its end."""

    induction: str
    names: list[str]
    types: list[str]
    lines: list[str]
    yielded: list[str]

    def again(self, writer: Writer, induction: str, values: Sequence[str]) -> _Rounds:
        """A second copy of the body, for other values."""
        others = dict(zip([self.induction, *self.names], [induction, *values], strict=True))
        others |= {name: writer.fresh() for name in defined(self.lines)}
        yielded = [others.get(name, name) for name in self.yielded]
        return _Rounds(induction, list(values), self.types, renamed(self.lines, others), yielded)


class Writer:
    """Prints one function. A pure operation is written once, in the outermost region that sees all its operands.

    That is common subexpression elimination and loop-invariant code motion while printing: emitters say what a value
    is, never where it is computed. Regions opened with ``barrier`` keep their operations (rarely taken branches).
    """

    def __init__(self) -> None:
        self._scopes: list[_Scope] = [_Scope()]
        self._depths: dict[str, int] = {}
        self._inner: dict[str, int] = {}  # pure operation -> the depth of its innermost operand
        self._count = 0
        self.floor = 0  # no pure operation leaves the innermost barrier

    @property
    def depth(self) -> int:
        """The current region's nesting depth; 0 is the function's own."""
        return len(self._scopes) - 1

    def fresh(self) -> str:
        """A new value name, visible from the current region on."""
        return self._named(len(self._scopes) - 1)

    def _named(self, depth: int) -> str:
        self._count += 1
        name = f"%v{self._count}"
        self._depths[name] = depth
        return name

    def argument(self, name: str) -> str:
        """Declares a function argument."""
        self._depths[name] = 0
        return name

    def depth_of(self, *names: str) -> int:
        """The depth of the innermost of the values."""
        return max((self._depths[name.split("#")[0]] for name in names), default=0)

    def pure(self, text: str, at_least: int = 0) -> str:
        """The value of an operation without effects; ``at_least``: not further out than this depth (loads)."""
        inner = self._inner.get(text)
        if inner is None:
            inner = self._inner[text] = max(map(self._depths.__getitem__, _NAME.findall(text)), default=0)
        depth = inner if inner > at_least else at_least
        found = self._scopes[depth].memo.get(text)
        if found is not None:
            return found
        if depth < self.floor:
            depth = self.floor
        scope = self._scopes[depth]
        found = scope.memo.get(text)
        if found is None:
            found = scope.memo[text] = self._named(depth)
            scope.lines.append(f"{found} = {text}")
        return found

    def emit(self, text: str) -> str:
        """An operation with one result, written here."""
        name = self.fresh()
        self._scopes[-1].lines.append(f"{name} = {text}")
        return name

    def effect(self, text: str) -> None:
        """An operation without results, written here."""
        self._scopes[-1].lines.append(text)

    @contextmanager
    def within(self, depth: int) -> Iterator[None]:
        """Writes into an enclosing region: before the inner regions that are still open."""
        saved = self._scopes
        self._scopes = saved[: depth + 1]
        try:
            yield
        finally:
            self._scopes = saved

    def _region(self, names: Sequence[str], body: Callable[[], Sequence[str]], barrier: bool) -> list[str]:
        self._scopes.append(_Scope())
        for name in names:
            self._depths[name] = self.depth
        floor = self.floor
        if barrier:
            self.floor = self.depth
        results = body()
        self.floor = floor
        lines = _indented(self._scopes.pop().lines)
        self._yielded = list(results)
        return lines

    def _finish(self, head: str, types: Sequence[str], parts: list[list[str]]) -> list[str]:
        name = self.fresh() if types else ""
        prefix = f"{name}:{len(types)} = " if types else ""
        lines = [f"{prefix}{head} {{"]
        for index, part in enumerate(parts):
            if index:
                lines.append("} else {")
            lines.extend(part)
        lines.append("}")
        self._scopes[-1].lines.append("\n".join(lines))  # one entry: `interleave` moves it as a whole
        return [f"{name}#{i}" for i in range(len(types))]

    def loop(
        self,
        bounds: tuple[str, str, str],
        carried: Sequence[tuple[str, str]],
        body: Callable[[str, list[str]], Sequence[str]],
    ) -> list[str]:
        """``for i in range(*bounds)`` with (initial value, type) pairs carried; the body returns their next values."""
        induction = self.fresh()
        names = [self.fresh() for _ in carried]
        lines = self._region([induction, *names], lambda: body(induction, names), barrier=False)
        starts, types = [initial for initial, _ in carried], [type_ for _, type_ in carried]
        rounds = _Rounds(induction, names, types, lines, self._yielded)
        if carried and is_short(lines):
            return self._in_pairs(bounds, starts, rounds)
        return self._do_while(bounds, starts, rounds)[1:]

    def _in_pairs(self, bounds: tuple[str, str, str], starts: list[str], one: _Rounds) -> list[str]:
        """A loop unrolled by two: two iterations in one while two are left, then the last one if one is left."""
        lower, upper, step = bounds
        last, two = self.pure(f"arith.subi {upper}, {step} : i64"), self.pure(f"arith.addi {step}, {step} : i64")
        second = one.again(self, self.fresh(), one.yielded)
        between = f"  {second.induction} = arith.addi {one.induction}, {step} : i64"
        lines = [*one.lines, between, *second.lines]
        pair = _Rounds(one.induction, one.names, one.types, lines, second.yielded)
        rest, *found = self._do_while((lower, last, two), starts, pair)

        final = one.again(self, rest, found)
        parts = [final.lines + _yield(final.yielded, one.types), _yield(found, one.types)]
        left = self.emit(f"arith.cmpi slt, {rest}, {upper} : i64")
        return self._finish(f"scf.if {left} -> ({', '.join(one.types)})", one.types, parts)

    def _do_while(self, bounds: tuple[str, str, str], starts: list[str], rounds: _Rounds) -> list[str]:
        """A loop that tests its condition at the end of an iteration, in a branch that tests it before the first;
        returns the induction variable and the carried values at the end. LLVM at level 0 does not rotate loops, and a
        loop that tests at its start jumps twice per iteration. The unlikely branch comes first: LLVM keeps constants in
        registers for the code that follows it."""
        lower, upper, step = bounds
        after, more, types = self.fresh(), self.fresh(), ["i64", *rounds.types]
        listed = ", ".join(types)
        first = zip([rounds.induction, *rounds.names], [lower, *starts], strict=True)
        given = ", ".join(f"{name} = {value}" for name, value in first)
        again = [self.fresh() for _ in types]
        arguments = ", ".join(f"{name}: {type_}" for name, type_ in zip(again, types, strict=True))
        loop, none = self.fresh(), self.emit(f"arith.cmpi sge, {lower}, {upper} : i64")
        inside = [
            f"  {loop}:{len(types)} = scf.while ({given}) : ({listed}) -> ({listed}) {{",
            *(f"  {line}" for line in rounds.lines),
            f"    {after} = arith.addi {rounds.induction}, {step} : i64",
            f"    {more} = arith.cmpi slt, {after}, {upper} : i64",
            f"    scf.condition({more}) {', '.join([after, *rounds.yielded])} : {listed}",
            "  } do {",
            f"  ^bb0({arguments}):",
            f"    scf.yield {', '.join(again)} : {listed}",
            "  }",
            *_yield([f"{loop}#{i}" for i in range(len(types))], types),
        ]
        return self._finish(f"scf.if {none} -> ({listed})", types, [_yield([lower, *starts], types), inside])

    def branch(
        self,
        condition: str,
        types: Sequence[str],
        then: Callable[[], Sequence[str]],
        otherwise: Callable[[], Sequence[str]] | None = None,
        *,
        rare: bool = True,
    ) -> list[str]:
        """``if``; both branches return values of the types. Their operations stay inside, unless the branches are not
        ``rare``."""
        parts = []
        for part in (then, otherwise):
            if part is not None:
                lines = self._region([], part, barrier=rare)
                parts.append(lines + _yield(self._yielded, types))
        result = f" -> ({', '.join(types)})" if types else ""
        return self._finish(f"scf.if {condition}{result}", types, parts)

    def body(self) -> list[str]:
        """The function's lines, once all regions are closed."""
        return _indented(self._scopes[0].lines)

    def interleave(self, parts: Sequence[Callable[[], Result]]) -> list[Result]:
        """Runs the parts and interleaves the operations that they write here, one of each in turn.

        Independent chains then overlap: the CPU's reorder window is too small to reach the next chain by itself.
        """
        scope = self._scopes[-1]
        before, written, results = scope.lines, [], []
        for part in parts:
            scope.lines = []
            results.append(part())
            written.append(scope.lines)
        scope.lines = before + _merged(written)
        return results


def _yield(values: Sequence[str], types: Sequence[str]) -> list[str]:
    return [f"  scf.yield {', '.join(values)} : {', '.join(types)}"] if types else []


def _indented(entries: Sequence[str]) -> list[str]:
    return [f"  {line}" for entry in entries for line in entry.split("\n")]


def _merged(parts: Sequence[list[str]]) -> list[str]:
    """The entries of all parts in turn, each after those of earlier parts that it uses."""
    owner = {_NAME.match(entry)[0]: k for k, part in enumerate(parts) for entry in part if entry.startswith("%")}  # type: ignore[index]
    queues = [[(entry, _foreign(entry, k, owner)) for entry in reversed(part)] for k, part in enumerate(parts)]
    merged: list[str] = []
    done: set[str] = set()
    while any(queues):
        for queue in queues:
            if not queue or not queue[-1][1] <= done:
                continue
            entry, _ = queue.pop()
            merged.append(entry)
            if entry.startswith("%"):
                done.add(_NAME.match(entry)[0])  # type: ignore[index]
    return merged


def _foreign(entry: str, own: int, owner: Mapping[str, int]) -> set[str]:
    """The names in an entry that other parts define."""
    return {name for name in _NAME.findall(entry) if owner.get(name, own) != own}
