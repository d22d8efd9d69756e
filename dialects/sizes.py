"""Converts between SSA index values and expressions over the symbols of a function.

One walk reads the ``symshape.bind`` of every tensor; each expression is emitted once per block and reused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from torch_mlir import ir

from symshape.dialects.accessors import symbol_name
from symshape.dialects.foreign_tensors import Foreign, foreign_of
from symshape.dialects.locations import source_line
from symshape.dialects.symbols import SYMBOLS
from symshape.errors import CompileError
from symshape.prover.numbers.expr import Expr, ceildiv, maximum, minimum
from symshape.prover.numbers.facts import INT64_MAX

_BINARY: dict[str, Callable[[Expr, Expr], Expr]] = {
    "arith.addi": lambda a, b: a + b,
    "arith.subi": lambda a, b: a - b,
    "arith.muli": lambda a, b: a * b,
    "arith.floordivsi": lambda a, b: a // b,
    "arith.ceildivsi": ceildiv,
    "arith.remsi": lambda a, b: a % b,  # only written for non-negative operands
    "arith.maxsi": maximum,
    "arith.minsi": minimum,
}
_ABOUT_SIZES = frozenset({*_BINARY, *SYMBOLS, "arith.constant", "symshape.bind", "tensor.dim"})
_OP_OF_FUNCTION = {"floordiv": "arith.floordivsi", "max": "arith.maxsi", "min": "arith.minsi"}


@dataclass(frozen=True)
class Layout:
    """Symbolic layout of a tensor: sizes, strides and storage offset in elements."""

    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    offset: Expr


def described(value: ir.Value) -> str:
    """What a value is, for messages: "an argument", "a result of 'arith.addi'"."""
    return "an argument" if isinstance(value.owner, ir.Block) else f"a result of '{value.owner.name}'"


def _line(value: ir.Value) -> str:
    return source_line(value.location)


class Layouts(dict[ir.Value, Layout]):
    """Layouts by tensor. CompileError, with the tensor's location, for one without a ``symshape.bind``, or with one of
    sizes that are not arithmetic on symbols."""

    def __missing__(self, tensor: ir.Value) -> NoReturn:
        raise CompileError(
            f"nothing says the layout of {described(tensor)}, {tensor.type}",
            where=_line(tensor),
            next_step="give it a symshape.bind before it is used, of sizes that symbols are computed from",
        )


class Sizes:
    """Reads and writes the symbolic sizes of one block (``block``: a function's entry block)."""

    def __init__(self, block: ir.Block) -> None:
        self.block = block
        self._exprs: dict[ir.Value, Expr] = {}
        self._values: dict[Expr, ir.Value] = {}
        self._usable = True
        self.layouts = Layouts()
        self.foreign: dict[ir.Value, Foreign] = {}  # tensors that kernels cannot read
        self.index_type = ir.IndexType.get()

    def nested(self, block: ir.Block) -> Sizes:
        """Sizes for a nested block: it knows the values of this block; values that it emits are not known here."""
        inner = Sizes(block)
        inner._exprs, inner._values, inner.layouts = dict(self._exprs), dict(self._values), Layouts(self.layouts)
        inner.foreign = dict(self.foreign)
        return inner

    def define(self, value: ir.Value, expr: Expr) -> None:
        """Records that an existing SSA value is this expression; an expression's first value is the canonical one."""
        self._exprs[value] = expr
        if self._usable:
            self._values.setdefault(expr, value)

    def learn(self, operations: Iterable[Any]) -> None:
        """Reads the sizes in operations, without making their values available: these may come later in the block."""
        self._usable = False
        for op in operations:
            self.read(op)
        self._usable = True

    def read(self, op: Any) -> bool:
        """Takes in one operation if it is about sizes; False if it is not."""
        name = op.name
        if name not in _ABOUT_SIZES:  # most are not
            return False
        if name == "symshape.bind":
            self._bind(op)
        elif name == "arith.constant":
            return self._constant(op)
        elif name in _BINARY:
            left, right = op.operands
            a, b = self._exprs.get(left), self._exprs.get(right)
            if a is None or b is None:
                return bool(op.results[0].type == self.index_type)
            expr = _BINARY[name](a, b)
            if expr.as_int() is None:
                self.define(op.results[0], expr)
            else:  # the value of a number is a constant
                self._exprs[op.results[0]] = expr
        elif name == "tensor.dim":
            size = self._bound_size(*op.operands)
            if size is not None:
                self.define(op.results[0], size)
        else:
            self.define(op.results[0], Expr.symbol(symbol_name(op)))
        return True

    def _constant(self, op: Any) -> bool:
        result = op.results[0]
        if result.type != self.index_type:
            return False
        self.define(result, Expr.const(ir.IntegerAttr(op.attributes["value"]).value))
        return True

    def _bind(self, op: Any) -> None:
        tensor, *layout = op.operands
        if (foreign := foreign_of(op)) is not None:
            self.foreign[tensor] = foreign
        rank = len(layout) // 2
        try:
            exprs = tuple(map(self._exprs.__getitem__, layout))
        except KeyError:
            return
        self.layouts[tensor] = Layout(exprs[:rank], exprs[rank : 2 * rank], exprs[-1])

    def _bound_size(self, tensor: ir.Value, position: ir.Value) -> Expr | None:
        dim = self._exprs[position].as_int() if position in self._exprs else None
        layout = self.layouts.get(tensor)
        if layout is None or dim is None or not 0 <= dim < len(layout.sizes):
            return None
        return layout.sizes[dim]

    def known(self) -> list[tuple[ir.Value, Expr]]:
        """Every value that is known, in the order in which they were met."""
        return list(self._exprs.items())

    def shapes_in_memory(self) -> set[tuple[Expr, ...]]:
        """For each tensor the sizes of the dims along which elements are distinct in memory. A dim that is broadcast
        (stride 0, or one that is known only at the call) may be larger than memory."""
        found = set()
        for layout in self.layouts.values():
            shown = frozenset().union(*(size.symbols for size in layout.sizes))
            pairs = zip(layout.sizes, layout.strides)
            found.add(tuple(size for size, stride in pairs if stride != 0 and stride.symbols <= shown))
        return found

    def expr(self, value: ir.Value) -> Expr:
        """The expression of an index value. CompileError if it is not arithmetic on symbols."""
        found = self._exprs.get(value)
        if found is None:
            raise CompileError(
                f"{described(value)} is no size: no arithmetic on symbols",
                where=_line(value),
                next_step="compute it by arith on `index` values that come from symshape.symbol and constants",
            )
        return found

    def __contains__(self, key: ir.Value | Expr) -> bool:
        return key in self._values if isinstance(key, Expr) else key in self._exprs

    def value(self, expr: Expr | int) -> ir.Value:
        """The canonical SSA value of an expression, written at the current insertion point if it is new. OverflowError
        where a number in it has more than 64 bits, KeyError where a symbol in it has no value."""
        expr = Expr.const(expr) if isinstance(expr, int) else expr
        known = self._values.get(expr)
        if known is not None:
            return known
        result = self._write(expr)
        self.define(result, expr)
        return result

    def _write(self, expr: Expr) -> ir.Value:
        constant = expr.as_int()
        if constant is not None:
            if abs(constant) > INT64_MAX:
                raise OverflowError(f"{constant} has more than 64 bits")
            attribute = ir.IntegerAttr.get(self.index_type, constant)
            return ir.Operation.create("arith.constant", [self.index_type], attributes={"value": attribute}).result
        total: ir.Value | None = None
        terms = sorted(expr.terms, key=lambda term: term[0] < 0)
        for coefficient, atoms in terms:
            factors = [self._atom(atom) for atom in atoms]
            magnitude = abs(coefficient)
            if magnitude != 1 or not factors:
                factors.append(self.value(magnitude))
            term = factors[0]
            for factor in factors[1:]:
                term = self._binary("arith.muli", term, factor)
            if total is None:
                total = term if coefficient > 0 else self._binary("arith.subi", self.value(0), term)
            else:
                total = self._binary("arith.addi" if coefficient > 0 else "arith.subi", total, term)
        assert total is not None
        return total

    def _atom(self, atom: Any) -> ir.Value:
        if not hasattr(atom, "kind"):
            return self._values[Expr.symbol(atom.name)]
        known = self._values.get(Expr({(atom,): 1})) if atom.kind != "mod" else None
        if known is not None and isinstance(known.owner, ir.Block):  # an argument; others may come later
            return known
        args = [self.value(arg) for arg in atom.args]
        if atom.kind == "mod":
            # Python's mod: a - b * floordiv(a, b) is right for every sign.
            quotient = self._binary("arith.floordivsi", args[0], args[1])
            return self._binary("arith.subi", args[0], self._binary("arith.muli", quotient, args[1]))
        result = args[0]
        for arg in args[1:]:
            result = self._binary(_OP_OF_FUNCTION[atom.kind], result, arg)
        return result

    def _binary(self, name: str, left: ir.Value, right: ir.Value) -> ir.Value:
        result = ir.Operation.create(name, [self.index_type], [left, right]).result
        if left in self._exprs and right in self._exprs:
            self.define(result, _BINARY[name](self._exprs[left], self._exprs[right]))
        return result
