"""Address expressions (`Expr`) as scalar or per-lane integer arithmetic."""

from __future__ import annotations

from functools import reduce
from typing import TypeGuard

from symshape.codegen.cpu.emit.state import State
from symshape.codegen.cpu.vector_math.small_integers import float_of_small, small_from_float
from symshape.prover.numbers.expr import Expr, Function, Symbol, expr_of_atom

_EXTREMUM = {"max": "arith.maxsi", "min": "arith.minsi"}


def scalar(state: State, expr: Expr) -> str:
    """The expression as an i64 scalar; the lane dim stands for its value in lane 0."""
    return _sum(state, expr, {})


def _sum(state: State, expr: Expr, known: dict[Function, str]) -> str:
    """Prints a sum. ``known``: values of functions printed before; one often occurs several times in an expression."""
    value = expr.as_int()
    if value is not None:
        return state.constant(value, "i64")
    terms = [_term(state, coefficient, atoms, known) for coefficient, atoms in expr.terms]
    terms.sort(key=state.writer.depth_of)  # outer parts first: their sum leaves the loop
    return reduce(lambda left, right: state.writer.pure(f"arith.addi {left}, {right} : i64"), terms)


def _term(state: State, coefficient: int, atoms: tuple[Symbol | Function, ...], known: dict[Function, str]) -> str:
    factors = sorted((_atom(state, atom, known) for atom in atoms), key=state.writer.depth_of)
    if coefficient != 1 or not factors:
        factors.insert(0, state.constant(coefficient, "i64"))
    return reduce(lambda left, right: state.writer.pure(f"arith.muli {left}, {right} : i64"), factors)


def _atom(state: State, atom: Symbol | Function, known: dict[Function, str]) -> str:
    if isinstance(atom, Symbol):
        return state.symbols[atom.name]
    if atom not in known:
        known[atom] = _function(state, atom, known)
    return known[atom]


def _function(state: State, atom: Function, known: dict[Function, str]) -> str:
    operation = _EXTREMUM.get(atom.kind)
    arguments = [_sum(state, argument, known) for argument in atom.args]
    if operation:
        return reduce(lambda left, right: state.writer.pure(f"{operation} {left}, {right} : i64"), arguments)
    left, right = arguments
    divisor = atom.args[1].as_int()
    if divisor is None:
        right = _nonzero(state, right)
    return (_rest if atom.kind == "mod" else _quotient)(state, left, right, divisor)


def _nonzero(state: State, divisor: str) -> str:
    """The divisor, made nonzero for code that is hoisted out of a loop without iterations (a size is 0)."""
    zero, one = state.constant(0, "i64"), state.constant(1, "i64")
    is_zero = state.writer.pure(f"arith.cmpi eq, {divisor}, {zero} : i64")
    return state.writer.pure(f"arith.select {is_zero}, {one}, {divisor} : i64")


def _quotient(state: State, left: str, right: str, divisor: int | None) -> str:
    """Python's floor division of i64 scalars; the divisor must not be 0.

    ``divisor``: its value, if it is constant.
    """
    pure = state.writer.pure
    if _is_power_of_two(divisor):
        return pure(f"arith.shrsi {left}, {_log2(state, divisor)} : i64")
    wrong = _is_rounded_up(state, left, right, divisor)
    return pure(f"arith.subi {truncated(state, left, right)}, {pure(f'arith.extui {wrong} : i1 to i64')} : i64")


def _rest(state: State, left: str, right: str, divisor: int | None) -> str:
    pure = state.writer.pure
    if _is_power_of_two(divisor):
        return pure(f"arith.andi {left}, {state.constant(divisor - 1, 'i64')} : i64")
    wrong, zero = _is_rounded_up(state, left, right, divisor), state.constant(0, "i64")
    correction = pure(f"arith.select {wrong}, {right}, {zero} : i64")
    return pure(f"arith.addi {truncated_rest(state, left, right)}, {correction} : i64")


def _is_power_of_two(divisor: int | None) -> TypeGuard[int]:
    return divisor is not None and divisor > 0 and divisor & (divisor - 1) == 0


def _log2(state: State, divisor: int) -> str:
    return state.constant(divisor.bit_length() - 1, "i64")


def truncated(state: State, left: str, right: str) -> str:
    return state.writer.pure(f"arith.divsi {left}, {right} : i64")


def truncated_rest(state: State, left: str, right: str) -> str:
    """The remainder of truncating division of i64 scalars: it has the sign of ``left``."""
    pure = state.writer.pure
    return pure(f"arith.subi {left}, {pure(f'arith.muli {truncated(state, left, right)}, {right} : i64')} : i64")


def _is_rounded_up(state: State, left: str, right: str, divisor: int | None) -> str:
    """Whether the truncated quotient exceeds the floor: the remainder is nonzero and its sign differs from the
    divisor's."""
    pure, zero, rest = state.writer.pure, state.constant(0, "i64"), truncated_rest(state, left, right)
    if divisor is not None and divisor > 0:
        return pure(f"arith.cmpi slt, {rest}, {zero} : i64")
    signs = pure(f"arith.cmpi slt, {pure(f'arith.xori {rest}, {right} : i64')}, {zero} : i64")
    return pure(f"arith.andi {signs}, {pure(f'arith.cmpi ne, {rest}, {zero} : i64')} : i1")


def per_lane(state: State, expr: Expr) -> str:
    """The expression as a vector of i64, for expressions that are not affine in the lane number."""
    assert state.lane is not None
    if not state.varies(expr):
        return state.broadcast(scalar(state, expr), "i64")
    strides = state.lane_strides(expr)
    if strides is not None:
        return _binary(state, "arith.addi", state.broadcast(scalar(state, expr), "i64"), lane_offsets(state, strides))
    uniform = Expr.const(0)
    varying: list[str] = []
    for factor, atoms in expr.terms:
        inside = [atom for atom in atoms if state.varies(expr_of_atom(atom))]
        outside = Expr.const(factor)
        for atom in atoms:
            if atom not in inside:
                outside = outside * expr_of_atom(atom)
        if inside:
            varying.append(_product(state, [_atom_per_lane(state, atom) for atom in inside], outside))
        else:
            uniform = uniform + outside
    if uniform.as_int() != 0:
        varying.insert(0, state.broadcast(scalar(state, uniform), "i64"))
    return reduce(lambda left, right: _binary(state, "arith.addi", left, right), varying)


def lane_offsets(state: State, strides: dict[str, Expr]) -> str:
    """What each lane adds to an address in lane 0, for the strides along the dims that run along the lanes."""
    parts = []
    for name, stride in strides.items():
        if stride.as_int() != 0:
            step, index = state.broadcast(scalar(state, stride), "i64"), state.lane_index(name)
            parts.append(index if stride.as_int() == 1 else _binary(state, "arith.muli", step, index))
    return reduce(lambda left, right: _binary(state, "arith.addi", left, right), parts or [state.splat(0, "i64")])


def _binary(state: State, operation: str, left: str, right: str) -> str:
    return state.writer.pure(f"{operation} {left}, {right} : {state.vector('i64')}")


def _product(state: State, factors: list[str], outside: Expr) -> str:
    if outside.as_int() != 1:
        factors.insert(0, state.broadcast(scalar(state, outside), "i64"))
    return reduce(lambda left, right: _binary(state, "arith.muli", left, right), factors)


def _atom_per_lane(state: State, atom: Symbol | Function) -> str:
    if isinstance(atom, Symbol):
        return _binary(
            state, "arith.addi", state.broadcast(state.symbols[atom.name], "i64"), state.lane_index(atom.name)
        )
    arguments = [per_lane(state, argument) for argument in atom.args]
    operation = _EXTREMUM.get(atom.kind)
    if operation:
        return reduce(lambda left, right: _binary(state, operation, left, right), arguments)
    divisor = atom.args[1].as_int()
    if _is_power_of_two(divisor):
        is_rest = atom.kind == "mod"
        number = state.constant(divisor - 1, "i64") if is_rest else _log2(state, divisor)
        return _binary(state, "arith.andi" if is_rest else "arith.shrsi", arguments[0], state.broadcast(number, "i64"))
    quotient = floor_divide_lanes(state, *arguments)
    if atom.kind == "floordiv":
        return quotient
    return _binary(state, "arith.subi", arguments[0], _binary(state, "arith.muli", quotient, arguments[1]))


def floor_divide_lanes(state: State, left: str, right: str) -> str:
    """Floor division via f64: exact for magnitudes below 2**51, as all addresses are; x86 has no vector integer
    division."""
    pure, double = state.writer.pure, state.vector("f64")
    quotient = pure(f"arith.divf {float_of_small(state, left)}, {float_of_small(state, right)} : {double}")
    return small_from_float(state, pure(f"math.floor {quotient} : {double}"))
