"""Mixes a kernel that reduces rows and kernels that reduce columns of the same points into one loop program.

For example, the gradient of a layer norm reads what the gradients of its weights read. If a program holds whole rows,
it can reduce both ways at once: each row as it is read, and columns in accumulators kept from row to row, which a
second launch combines. Data that the kernels share is read once. Inductor calls this mix-order reduction
(``MixOrderReduction`` in torch/_inductor/scheduler.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from torch_mlir import ir

from symshape.analysis.access_patterns import read_accesses
from symshape.analysis.loops import EFFECTS, Arg, Instr, LoopKernel, Mixed
from symshape.analysis.online import find_online
from symshape.dialects.accessors import callee_of
from symshape.prover.numbers.expr import Expr, product

_EXCLUDED: Final = frozenset({"scatter", "carry", "check_index"})
_SUMMED: Final = ("f32", "f64")


@dataclass(frozen=True)
class Part:
    """A kernel of a mixture. ``tensors``: for each of its tensor arguments, the position among the mixture's;
    ``symbols``: for each of its index arguments, the mixture's name."""

    loops: LoopKernel
    tensors: tuple[int, ...]
    symbols: tuple[str, ...]


def parts_of(
    launches: Sequence[Any],
    tensors: Mapping[ir.Value, int],
    symbols: Mapping[ir.Value, str],
    loops_of: Callable[[str], LoopKernel],
) -> list[Part]:
    """The kernels launched by ``launches``, in order. ``tensors`` and ``symbols`` give the position or name in the
    mixture of each operand. A launch's result is the destination that it wrote."""
    return [
        Part(loops_of(callee_of(op)), own, tuple(symbols[v] for v in op.operands if v in symbols))
        for op, own in positions_taken(launches, tensors)
    ]


def positions_taken(launches: Sequence[Any], tensors: Mapping[ir.Value, int]) -> Iterator[tuple[Any, tuple[int, ...]]]:
    """Each launch with the positions, in the mixture, of its tensor operands."""
    positions = dict(tensors)
    for op in launches:
        own = tuple(positions[v] for v in op.operands if v in positions)
        positions.update(zip(op.results, own[len(own) - len(op.results) :], strict=True))
        yield op, own


def reduces_rows(loops: LoopKernel) -> bool:
    """Whether a kernel (in finished loop form) can be the row kernel of a mixture: it reduces exactly one dim, along
    which most of its accesses are contiguous."""
    reduced = [d for d in loops.dims if d.reduced]
    if len(reduced) != 1 or len(loops.dims) < 2 or not _is_plain(loops):
        return False
    votes = 0
    for instr in loops.code:
        if instr.op in ("load", "store") and not instr.row and instr.address is not None:
            votes += instr.address.coefficient(reduced[0].name) == 1
            votes -= any(instr.address.coefficient(d.name) == 1 for d in loops.dims if not d.reduced)
    return votes > 0


def sums_columns(loops: LoopKernel) -> bool:
    """Whether a kernel (in finished loop form) can be a column kernel of a mixture: it has one parallel dim, sums over
    the others, its sums do not depend on one another, and no full-level work depends on them."""
    parallel = [d for d in loops.dims if not d.reduced]
    if len(parallel) != 1 or len(loops.dims) < 2 or not _is_plain(loops) or find_online(loops.code):
        return False
    late: set[int] = set()
    sums = 0
    for instr in loops.code:
        depends = not late.isdisjoint(instr.operands)
        if instr.op == "reduce":
            if depends or instr.combiner != "add" or instr.dtype not in _SUMMED:
                return False
            sums += 1
        elif depends and not instr.row:
            return False
        if depends or instr.op == "reduce":
            late.update(instr.results)
    return sums > 0


def ends_with_stores(rows: LoopKernel) -> bool:
    """Whether a kernel's last sweep over its rows only stores values."""
    stores = [instr for instr in rows.code if instr.op == "store" and not instr.row]
    others = tuple(instr for instr in rows.code if instr not in stores)
    return read_accesses(rows).loops > read_accesses(replace(rows, code=others)).loops


def _is_plain(loops: LoopKernel) -> bool:
    return loops.mixed is None and not any(instr.op in _EXCLUDED for instr in loops.code)


def mix(name: str, symbols: Sequence[str], inputs: int, rows: Part, columns: Sequence[Part]) -> LoopKernel | None:
    """The mixture of ``rows`` (see `reduces_rows`) and ``columns`` (see `sums_columns`), over the space of ``rows``.
    None if a space does not fit, or if a column kernel reads nothing that is read already.

    ``symbols``: names of the mixture's index arguments; ``inputs``: its number of input tensors. Values that the row
    kernel stores and a column kernel loads stay in registers.
    """
    args = _arguments(inputs, [rows, *columns])
    if args is None:
        return None
    mixer = _Mixer(rows, args)
    whole: list[LoopKernel] = []
    for part in columns:
        own = mixer.add(part)
        if own is None:
            return None
        whole.append(replace(own, name=f"{name}_columns{len(whole)}", args=args, symbols=tuple(symbols)))
    known = tuple(dict.fromkeys(mixer.known))
    first = LoopKernel(f"{name}_split", mixer.dims, args, tuple(symbols), mixer.rows, known)
    launches = tuple(_launch(part, args) for part in (rows, *columns))
    mixed = Mixed(first, tuple(whole), tuple(mixer.epilogue), launches)
    return LoopKernel(name, mixer.dims, args, tuple(symbols), tuple(mixer.code), known, mixed)


def _arguments(inputs: int, parts: Sequence[Part]) -> tuple[Arg, ...] | None:
    """The mixture's arguments; None if parts have different layouts of a tensor."""
    found: dict[int, Arg] = {}
    for part in parts:
        values = _values(part)
        for arg, position in zip(part.loops.args, part.tensors, strict=True):
            name = f"in{position}" if position < inputs else f"out{position - inputs}"
            sizes, strides = (tuple(e.substitute(values) for e in own) for own in (arg.sizes, arg.strides))
            whole = Arg(name, arg.dtype, position >= inputs, sizes, strides, arg.by_value)
            if found.setdefault(position, whole) != whole:
                return None
    return tuple(found[position] for position in sorted(found))


def _values(part: Part) -> dict[str, Expr]:
    """For each of the part's index arguments, the mixture's symbol."""
    return {own: Expr.symbol(name) for own, name in zip(part.loops.symbols, part.symbols, strict=True)}


def _launch(part: Part, args: Sequence[Arg]) -> tuple[str, tuple[str, ...]]:
    return part.loops.name, (*(args[position].name for position in part.tensors), *part.symbols)


def _up_to_sums(loops: LoopKernel) -> list[Instr]:
    """The instructions that sums and full-level stores depend on, including them."""
    needed: set[int] = set()
    found = []
    for instr in reversed(loops.code):
        root = instr.op == "reduce" or instr.op == "store" and not instr.row
        if root or not needed.isdisjoint(instr.results):
            needed.update(instr.operands)
            found.append(instr)
    return found[::-1]


class _Mixer:
    """Appends the instructions of one kernel after another, and reuses values that are already computed."""

    def __init__(self, rows: Part, args: Sequence[Arg]) -> None:
        self.args = args
        values = _values(rows)
        self.dims = tuple(replace(d, size=d.size.substitute(values)) for d in rows.loops.dims)
        self.parallel = [d for d in self.dims if not d.reduced]
        (self.reduced,) = (d for d in self.dims if d.reduced)
        self.code: list[Instr] = []
        self.known = [condition.substitute(values) for condition in rows.loops.known]
        self._made: dict[Any, tuple[int, ...]] = {}  # results by instruction
        self._stored: dict[tuple[int, Expr], int] = {}  # values by argument and address they were stored to
        self._next = 0
        numbers: dict[int, int] = {}
        for instr in rows.loops.code:
            self._emit(self._moved(instr, rows.tensors, values), numbers)
        self.rows = tuple(self.code)
        self.epilogue: list[Instr] = []

    def add(self, part: Part) -> LoopKernel | None:
        """Appends a column kernel up to its sums. Returns the kernel over the mixture's arguments and value numbers,
        whose sums a second launch combines; None if it does not fit."""
        values = _values(part)
        places = self._places(part.loops, values)
        if places is None:
            return None
        numbers: dict[int, int] = {}
        shared = False
        for instr in _up_to_sums(part.loops):
            moved = replace(self._moved(instr, part.tensors, {**values, **places}), row=False)
            if instr.op == "load" and self.args[moved.arg].output and self._value(moved) is None:
                return None  # it would read another row's value, which may not be stored yet
            made = self._emit(replace(moved, op="across") if instr.op == "reduce" else moved, numbers)
            shared |= instr.op == "load" and not made and self._varies(moved)
        if not shared:
            return None
        self.known += [condition.substitute(values) for condition in part.loops.known]
        return self._rest(part, values, places, numbers)

    def _rest(
        self, part: Part, values: Mapping[str, Expr], places: Mapping[str, Expr], numbers: dict[int, int]
    ) -> LoopKernel:
        """The column kernel with the mixture's value numbers. Instructions not yet in the mixture get new numbers and
        are added to the epilogue."""
        code = []
        for instr in part.loops.code:
            known = instr.results[0] in numbers if instr.results else not instr.row
            for number in instr.results:
                if number not in numbers:
                    numbers[number], self._next = self._next, self._next + 1
            results, operands = (tuple(numbers[n] for n in own) for own in (instr.results, instr.operands))
            numbered = replace(instr, results=results, operands=operands)
            code.append(self._moved(numbered, part.tensors, values))
            if not known:
                self.epilogue.append(self._moved(numbered, part.tensors, {**values, **places}))
        dims = tuple(replace(d, size=d.size.substitute(values)) for d in part.loops.dims)
        return replace(part.loops, dims=dims, code=tuple(code))

    def _places(self, loops: LoopKernel, values: Mapping[str, Expr]) -> dict[str, Expr] | None:
        """The column kernel's indices in terms of the mixture's; None if the spaces do not fit."""
        (column,) = (d for d in loops.dims if not d.reduced)
        sizes = {d.name: d.size.substitute(values) for d in loops.dims}
        if sizes[column.name] != self.reduced.size:
            return None
        places = {column.name: Expr.symbol(self.reduced.name)}
        rows = [d.name for d in loops.dims if d.reduced]
        if [sizes[name] for name in rows] == [d.size for d in self.parallel]:
            return places | {name: Expr.symbol(d.name) for name, d in zip(rows, self.parallel, strict=True)}
        if len(rows) > 1 or sizes[rows[0]] != product(d.size for d in self.parallel):
            return None
        row = Expr.const(0)
        for dim in self.parallel:
            row = row * dim.size + Expr.symbol(dim.name)
        return places | {rows[0]: row}

    def _moved(self, instr: Instr, tensors: Sequence[int], values: Mapping[str, Expr]) -> Instr:
        """An instruction with the mixture's arguments and dims."""
        arg = tensors[instr.arg] if instr.arg >= 0 else instr.arg
        address = None if instr.address is None else instr.address.substitute(values)
        return replace(instr, arg=arg, address=address, mask=tuple(e.substitute(values) for e in instr.mask))

    def _emit(self, instr: Instr, numbers: dict[int, int]) -> bool:
        """Appends an instruction unless its value is known; returns whether it was appended. ``numbers`` maps the
        part's value numbers to the mixture's, and is extended."""
        operands = tuple(numbers[number] for number in instr.operands)
        instr = replace(instr, operands=operands)
        stored = self._value(instr) if instr.op == "load" else None
        key = replace(instr, results=(), row=False, value=None), repr(instr.value)  # -0.0 is not 0.0, True is not 1
        found = (stored,) if stored is not None else self._made.get(key)
        if found is not None and instr.op not in EFFECTS and instr.op != "across":
            numbers.update(zip(instr.results, found, strict=True))
            return False
        results = tuple(range(self._next, self._next + len(instr.results)))
        self._next += len(results)
        numbers.update(zip(instr.results, results, strict=True))
        self.code.append(replace(instr, results=results))
        self._made[key] = results
        if instr.op == "store":
            assert instr.address is not None
            self._stored[instr.arg, instr.address] = operands[0]
        return True

    def _value(self, load: Instr) -> int | None:
        """The value stored at the address that a load reads, or None."""
        assert load.address is not None
        return None if load.mask else self._stored.get((load.arg, load.address))

    def _varies(self, load: Instr) -> bool:
        """Whether a load reads a different element at each point."""
        assert load.address is not None
        return {d.name for d in self.dims if d.size != 1} <= load.address.symbols
