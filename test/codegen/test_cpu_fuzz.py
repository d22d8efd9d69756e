"""Random loop programs: the CPU's kernels against a plain interpreter over numpy arrays."""

from __future__ import annotations

import random
from itertools import permutations

import numpy
import pytest
import torch
from loop_builder import KINDS, Builder, build, cpu_target

from symshape.analysis.loops import Instr
from symshape.prover.numbers.expr import Expr

__all__ = ["cpu_target"]  # every test here runs once per target

SIZES = (1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 64, 70)
FLOATS = ("f32", "f64", "f32", "f32")
UNARY = ("math.tanh", "math.exp", "math.absf", "arith.negf", "math.atan")
BINARY = ("arith.addf", "arith.subf", "arith.mulf", "arith.maximumf", "arith.minimumf")
NUMPY = {
    "math.tanh": numpy.tanh,
    "math.exp": lambda x: numpy.exp(numpy.minimum(x, 20)),
    "math.absf": numpy.abs,
    "arith.negf": numpy.negative,
    "math.atan": numpy.arctan,
    "arith.addf": numpy.add,
    "arith.subf": numpy.subtract,
    "arith.mulf": numpy.multiply,
    "arith.maximumf": numpy.maximum,
    "arith.minimumf": numpy.minimum,
}


class Program:
    """A random kernel, the tensors it runs on, and what it must write."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        pick = self.random.choice
        rank = pick((1, 2, 2, 3, 3, 4))
        self.sizes = [pick(SIZES) for _ in range(rank)]
        self.reduced = sorted(self.random.sample(range(rank), pick((0, 0, 1, 1, 2)))) if rank > 1 else []
        dims = [Expr.symbol(f"s{i}") if pick((0, 1)) else Expr.const(size) for i, size in enumerate(self.sizes)]
        self.b = Builder(f"fuzz_{seed}", dims, self.reduced, symbols=rank)
        self.tensors: list[torch.Tensor] = []
        self.expected: dict[int, numpy.ndarray] = {}
        self.grid = numpy.meshgrid(*map(numpy.arange, self.sizes), indexing="ij", sparse=True)
        self.values: dict[int, numpy.ndarray] = {}
        self.kind = pick(FLOATS)
        self.full = [self.load(False) for _ in range(pick((1, 2, 3)))]
        self.rows: list[int] = []
        for _ in range(pick((2, 4, 7))):
            self.step()
        if not self.reduced or pick((0, 1)):
            self.store(pick(self.full), False)
            if pick((0, 1)):
                self.store(pick(self.full), False)
        for row in self.rows[-2:]:
            self.store(row, True)

    @property
    def symbols(self) -> dict[str, object]:
        named = {f"s{i}": size for i, size in enumerate(self.sizes)}
        return {**named, **{f"d{i}": axis for i, axis in enumerate(self.grid)}}

    def axes(self, row: bool) -> list[int]:
        return [i for i in range(len(self.sizes)) if not (row and i in self.reduced)]

    def tensor(self, axes: list[int], output: bool) -> tuple[int, Expr]:
        """A new argument over some axes in some order (strides may have gaps), and the address of a point in it."""
        order = self.random.choice(list(permutations(axes)))
        gap = 1 if output else self.random.choice((1, 1, 1, 2))
        sizes, strides, step, address = [], [], gap, Expr.const(0)
        for axis in reversed(order):
            sizes.insert(0, self.b.dims[axis].size)
            strides.insert(0, step)
            address = address + Expr.symbol(f"d{axis}") * step
            step = step * self.b.dims[axis].size if isinstance(step, Expr) else self.b.dims[axis].size * step
        arg = self.b.arg(self.kind, sizes, [Expr.const(0) + stride for stride in strides], output=output)
        count = gap
        for axis in order:
            count *= self.sizes[axis]
        data = torch.zeros(count, dtype=KINDS[self.kind]) if output else torch.randn(count).to(KINDS[self.kind])
        self.tensors.append(data)
        return arg, address

    def at(self, address: Expr) -> numpy.ndarray:
        return numpy.asarray(eval(address.python(), {}, self.symbols))

    def load(self, row: bool) -> int:
        axes = self.axes(row)
        axes = self.random.sample(axes, self.random.randint(1, len(axes))) if axes else []
        arg, address = self.tensor(axes, output=False)
        number = self.b.load(arg, address, row=row)
        self.values[number] = self.tensors[arg].numpy()[self.at(address)]
        return number

    def step(self) -> None:
        pick = self.random.choice
        kinds = ["unary", "binary", "binary", "load", "cat"] + ["reduce", "row", "reduce"] * bool(self.reduced)
        match pick(kinds):
            case "unary":
                self.compute(pick(UNARY), [pick(self.full)], self.full, row=False)
            case "binary":
                self.compute(pick(BINARY), [pick(self.full), pick(self.full + self.rows)], self.full, row=False)
            case "load":
                self.full.append(self.load(False))
            case "cat":
                self.select()
            case "reduce":
                self.reduce(pick(self.full))
            case "row":
                if self.rows:
                    self.compute(pick(BINARY), [pick(self.rows), pick(self.rows)], self.rows, row=True)

    def compute(self, op: str, operands: list[int], values: list[int], row: bool) -> None:
        if op == "math.exp":  # keep numbers small
            bound = self.b.constant(20.0, self.kind)
            operands = [self.b.add("arith.minimumf", operands[0], bound, dtype=self.kind)]
            self.values[operands[0]] = numpy.minimum(self.values[self.b.code[-1].operands[0]], 20)
        number = self.b.add(op, *operands, dtype=self.kind, row=row)
        self.values[number] = NUMPY[op](*(self.values[operand] for operand in operands))
        if op == "arith.mulf":
            number = self.bounded(number, row)
        values.append(number)

    def bounded(self, number: int, row: bool) -> int:
        result = self.b.add("math.tanh", number, dtype=self.kind, row=row)
        self.values[result] = numpy.tanh(self.values[number])
        return result

    def select(self) -> None:
        """A load that is defined below a limit along one axis, else another value."""
        axis = self.random.randrange(len(self.sizes))
        limit = self.random.randint(0, self.sizes[axis])
        arg, address = self.tensor(self.axes(False), output=False)
        number = self.b.load(arg, address, mask=(Expr.const(limit - 1) - Expr.symbol(f"d{axis}"),))
        index = self.b.add("index", dtype="index", address=Expr.symbol(f"d{axis}"))
        inside = self.b.add("arith.cmpi", index, self.b.constant(limit, "index"), dtype="i1", predicate="slt")
        other = self.random.choice(self.full)
        result = self.b.add("arith.select", inside, number, other, dtype=self.kind)
        read = self.tensors[arg].numpy()[self.at(address)]
        self.values[result] = numpy.where(self.grid[axis] < limit, read, self.values[other])
        self.full.append(result)

    def reduce(self, value: int) -> None:
        combiner = self.random.choice(("add", "max", "min", "add"))
        number = self.b.reduce(value, combiner)
        whole = numpy.broadcast_to(self.values[value], self.sizes)
        reduced = {"add": numpy.sum, "max": numpy.max, "min": numpy.min}[combiner]
        self.values[number] = reduced(whole.astype(numpy.float64), axis=tuple(self.reduced), keepdims=True)
        if combiner == "add":
            number = self.bounded(number, row=True)
        self.rows.append(number)

    def store(self, value: int, row: bool) -> None:
        arg, address = self.tensor(self.axes(row), output=True)
        self.b.store(value, arg, address, row=row)
        if row:
            zeros = {f"d{axis}": 0 for axis in self.reduced}
            places = self.at(address.substitute(zeros))
        else:
            places = self.at(address)
        expected = numpy.zeros(len(self.tensors[arg]))
        shape = [1 if row and i in self.reduced else size for i, size in enumerate(self.sizes)]
        expected[numpy.broadcast_to(places, shape)] = numpy.broadcast_to(self.values[value], shape)
        self.expected[arg] = expected


@pytest.mark.sample(3)
@pytest.mark.parametrize("batch", range(4))
def test_random_programs(batch: int) -> None:
    programs = [Program(100 * batch + seed) for seed in range(25)]
    for program, function in zip(programs, build(*(program.b for program in programs)), strict=True):
        function(*program.tensors, *program.sizes)
        for arg, expected in program.expected.items():
            # Rounding: a sum of up to 5000 terms, then functions that may enlarge its error.
            message = f"{program.b.name}: {show(program)}"
            numpy.testing.assert_allclose(program.tensors[arg].numpy(), expected, 2e-3, 2e-3, err_msg=message)


def show(program: Program) -> str:
    def line(instr: Instr) -> str:
        return f"{instr.results} = {instr.op} {instr.operands} {instr.arg} {instr.address} {instr.combiner}"

    return "\n".join([str(program.sizes), str(program.reduced), *map(line, program.b.code)])
