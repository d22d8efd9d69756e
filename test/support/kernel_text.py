"""Writes kernels in the normal form of docs/kernels.md as MLIR text, for tests of everything that reads them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from symshape.prover.numbers.expr import Expr, Function, Symbol

Size = Expr | int
_FUNCTIONS = {"floordiv": "arith.floordivsi", "mod": "arith.remsi", "max": "arith.maxsi", "min": "arith.minsi"}
_IDENTITIES = {
    "add": ("arith.addf", "arith.addi"),
    "mul": ("arith.mulf", "arith.muli"),
    "max": ("arith.maximumf", "arith.maxsi"),
    "min": ("arith.minimumf", "arith.minsi"),
    "or": ("", "arith.ori"),
    "and": ("", "arith.andi"),
}


def sym(i: int) -> Expr:
    return Expr.symbol(f"s{i}")


def contiguous(sizes: Sequence[Size]) -> list[Size]:
    strides: list[Size] = []
    step: Size = 1
    for size in reversed(sizes):
        strides.insert(0, step)
        step = step * size
    return strides


class KernelText:
    """One kernel function, written top to bottom. Values are MLIR names; ``types`` has their element type and rank."""

    def __init__(self, name: str, symbols: int, space: Sequence[tuple[Size, str]]) -> None:
        self.name, self.symbols = name, symbols
        self.space = [(size, {"p": "parallel", "r": "reduction"}[kind]) for size, kind in space]
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self.types: dict[str, tuple[str, int]] = {}
        self.lines: list[str] = []
        self.results: list[str] = []
        self._index: dict[str, str] = {f"s{i}": f"%s{i}" for i in range(symbols)}
        self._count = 0
        sizes = [self.index(size) for size, _ in self.space]
        kinds = ", ".join(f'"{kind}"' for _, kind in self.space)
        types = ", ".join(["index"] * len(sizes))
        self.lines.append(f'"symshape.space"({", ".join(sizes)}) {{iterators = [{kinds}]}} : ({types}) -> ()')

    @property
    def rank(self) -> int:
        return len(self.space)

    @property
    def parallel(self) -> list[int]:
        return [i for i, (_, kind) in enumerate(self.space) if kind == "parallel"]

    def fresh(self) -> str:
        self._count += 1
        return f"%v{self._count}"

    def index(self, size: Size) -> str:
        """An index value for a size expression."""
        text = str(size)
        if text not in self._index:
            self._index[text] = self._write(size if isinstance(size, Expr) else Expr.const(size))
        return self._index[text]

    def _write(self, size: Expr) -> str:
        constant = size.as_int()
        if constant is not None:
            return self._line(f"arith.constant {constant} : index")
        total = ""
        for coefficient, atoms in size.terms:
            term = "" if coefficient == 1 and atoms else self.index(coefficient)
            for atom in atoms:
                value = self._atom(atom)
                term = self._line(f"arith.muli {term}, {value} : index") if term else value
            total = self._line(f"arith.addi {total}, {term} : index") if total else term
        return total

    def _atom(self, atom: Symbol | Function) -> str:
        if isinstance(atom, Symbol):
            return self._index[atom.name]
        left, right = (self.index(arg) for arg in atom.args)
        return self._line(f"{_FUNCTIONS[atom.kind]} {left}, {right} : index")

    def _line(self, text: str) -> str:
        name = self.fresh()
        self.lines.append(f"{name} = {text}")
        return name

    def arg(
        self, dtype: str, sizes: Sequence[Size], strides: Sequence[Size] | None = None, output: bool = False
    ) -> str:
        name = f"%out{len(self.outputs)}" if output else f"%in{len(self.inputs)}"
        (self.outputs if output else self.inputs).append(name)
        self.types[name] = (dtype, len(sizes))
        layout = [self.index(e) for e in [*sizes, *(contiguous(sizes) if strides is None else strides), 0]]
        types = ", ".join([self.type(name), *["index"] * len(layout)])
        self.lines.append(f'"symshape.bind"({", ".join([name, *layout])}) : ({types}) -> ()')
        return name

    def type(self, value: str) -> str:
        return tensor(*self.types[value])

    def view(self, source: str, map_: str, symbols: Sequence[Size] = (), domain: str = "", row: bool = False) -> str:
        dims = self.parallel if row else range(self.rank)
        operands = [self.index(self.space[i][0]) for i in dims] + [self.index(s) for s in symbols]
        dtype = self.types[source][0]
        set_ = f", domain = affine_set<{domain}>" if domain else ""
        types = ", ".join([self.type(source), *["index"] * len(operands)])
        name = self.fresh()
        self.types[name] = (dtype, len(dims))
        attributes = f"{{map = affine_map<{map_}>{set_}}} : ({types}) -> {self.type(name)}"
        self.lines.append(f'{name} = "symshape.view"({", ".join([source, *operands])}) {attributes}')
        return name

    def generic(self, inputs: Sequence[str], dtype: str, body: str, row: bool = False) -> str:
        """A pointwise generic; the body's arguments are %a0, %a1, ... and it ends by defining %r."""
        rank = len(self.parallel) if row else self.rank
        return self._generic(inputs, [dtype], body, rank, "")[0]

    def spread(self, value: str) -> str:
        """A row-level value at every point."""
        return self._generic([value], [self.types[value][0]], "", self.rank, "")[0]

    def reduce(self, value: str, combiner: str, dtype: str = "") -> Any:
        dtype = dtype or self.types[value][0]
        if combiner in ("argmax", "argmin"):
            body = "%r = arith.constant 0 : i64"
            return self._generic([value], [dtype, "i64"], body, self.rank, combiner)
        op = _IDENTITIES[combiner][not dtype.startswith(("f", "bf"))]
        return self._generic([value], [dtype], f"%r = {op} %a0, %o0 : {dtype}", self.rank, combiner)[0]

    def _generic(self, inputs: Sequence[str], dtypes: Sequence[str], body: str, rank: int, combiner: str) -> list[str]:
        dims = ", ".join(f"d{i}" for i in range(rank))
        projection = ", ".join(f"d{i}" for i in (self.parallel if rank == self.rank else range(rank)))
        out_rank = len(self.parallel) if combiner else rank
        results = [self.fresh() for _ in dtypes]
        outs = []
        for result, dtype in zip(results, dtypes, strict=True):
            self.types[result] = (dtype, out_rank)
            dims_out = range(self.rank) if out_rank == self.rank else self.parallel
            sizes = [self.index(self.space[i][0]) for i in dims_out]
            outs.append(self._line(f"tensor.empty({', '.join(sizes)}) : {tensor(dtype, out_rank)}"))
        maps = [f"affine_map<({dims}) -> ({dims if self.types[v][1] == rank else projection})>" for v in inputs]
        maps += [f"affine_map<({dims}) -> ({projection if combiner else dims})>"] * len(outs)
        kinds = [kind for _, kind in self.space] if rank == self.rank else ["parallel"] * rank
        kinds = kinds if combiner else ["parallel"] * rank
        iterators = ", ".join('"' + kind + '"' for kind in kinds)
        attribute = f', symshape.combiner = "{combiner}"' if combiner else ""
        arguments = [f"%a{i}: {self.types[v][0]}" for i, v in enumerate(inputs)]
        arguments += [f"%o{i}: {dtype}" for i, dtype in enumerate(dtypes)]
        yielded = ["%a0", "%r"] if len(dtypes) == 2 else ["%r" if body else "%a0"]
        ins = f"ins({', '.join(inputs)} : {', '.join(map(self.type, inputs))}) " if inputs else ""
        types = ", ".join(tensor(dtype, out_rank) for dtype in dtypes)
        count = f":{len(results)}" if len(results) > 1 else ""
        self.lines.append(
            f"{results[0]}{count} = linalg.generic {{indexing_maps = [{', '.join(maps)}], iterator_types = "
            f"[{iterators}]{attribute}}} {ins}outs({', '.join(outs)} : {types}) {{\n"
            f"  ^bb0({', '.join(arguments)}):\n    {body}\n"
            f"    linalg.yield {', '.join(yielded)} : {', '.join(dtypes)}\n"
            f"  }} -> {types if len(dtypes) == 1 else f'({types})'}"
        )
        if len(results) > 1:
            names = [f"{results[0]}#{i}" for i in range(len(results))]
            self.types.update((name, self.types[result]) for name, result in zip(names, results, strict=True))
            return names
        return results

    def store(self, value: str, dest: str, map_: str, symbols: Sequence[Size] = ()) -> None:
        operands = [value, dest, *(self.index(s) for s in symbols)]
        types = ", ".join([self.type(value), self.type(dest), *["index"] * len(symbols)])
        signature = f"({types}) -> {self.type(dest)}"
        result = self._line(f'"symshape.store"({", ".join(operands)}) {{map = affine_map<{map_}>}} : {signature}')
        self.results.append(result)

    def text(self) -> str:
        tensors = [*self.inputs, *self.outputs]
        parameters = [f"{name}: {self.type(name)}" for name in tensors] + [f"%s{i}: index" for i in range(self.symbols)]
        types = ", ".join(map(self.type, self.outputs))
        counts = (("num_inputs", self.inputs), ("num_outputs", self.outputs))
        attributes = ", ".join(["symshape.kernel", *(f"symshape.{n} = {len(v)} : i64" for n, v in counts)])
        # Index arithmetic is pure and its operands come first, so written order is a valid order.
        body = "\n  ".join(self.lines)
        head = f"func.func private @{self.name}({', '.join(parameters)}) -> ({types})\n    attributes {{{attributes}}}"
        return f"{head} {{\n  {body}\n  return {', '.join(self.results)} : {types}\n}}\n"

    def read(self) -> Any:
        """The loop program, as read from the text."""
        return read_text(self.text())


def tensor(dtype: str, rank: int) -> str:
    return f"tensor<{'?x' * rank}{dtype}>"


@lru_cache(maxsize=1)
def context() -> Any:
    from torch_mlir import ir

    from symshape.dialects import load

    ctx = ir.Context()
    load(ctx)
    return ctx


def read_text(text: str) -> Any:
    from torch_mlir import ir

    from symshape.analysis.read_kernel import read_kernel

    with context():
        module = ir.Module.parse(text)
        assert module.operation.verify()
        return read_kernel(module.body.operations[0])
