"""Cost of the passes of the stage `shaped`, and the constraints that they leave: many symbols, and the six models.

    python bench/constraints.py [--symbols 16,64,256] [--models bert,vit] [--points 100000] [--out FILE.json]

1. Generated programs of concatenations, reshapes and slices of as many tensors as there are symbols, each with a
   dynamic size of its own. `groups`: sixteen tensors at a time. `one`: a single concatenation, sliced where its parts
   meet, so that offsets are sums of up to all symbols and text alone grows with their square. The figure is the sum of
   our own stage times (tracing is not in it), the median of `--repeat` compiles.
2. The constraints of a model's graphs (guards, ranges, assertions) as imported, and what the passes leave of them. They
   must say the same: proven by z3 where it can, and at points half of which break at most one constraint.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch_mlir import ir

from symshape import dialects
from symshape.compiler import compile_graph
from symshape.dialects.conditions import read_condition
from symshape.dialects.function_facts import row_of
from symshape.dialects.sizes import Sizes
from symshape.frame_compiler import compile_with
from symshape.frontend.bridge.aot_autograd import aot_compile
from symshape.frontend.bridge.fake_tensors import shape_env_of
from symshape.frontend.decompositions.table import decomposition_table
from symshape.frontend.graph_rewrites.common_subexpressions import common_subexpressions
from symshape.frontend.graph_rewrites.joint_graph import ready_to_split
from symshape.frontend.importer.import_fx import import_graph
from symshape.frontend.patches.patch import Scope
from symshape.frontend.patches.registry import in_force, splitting
from symshape.options import Options
from symshape.passes.framework.manager import run_pipeline
from symshape.passes.stages import STAGES
from symshape.prover.numbers.condition import Condition, all_of, at_least, equals
from symshape.prover.numbers.expr import Expr, Function, Symbol
from symshape.tools.measure import write_result
from symshape.tools.terminal import Progress, table
from symshape.tools.zoo import MODELS

GROUP = 16
WIDTH = 8
KINDS = ("symshape.assume", "symshape.expect_true", "symshape.guard")


# --- many symbols ----------------------------------------------------------------------------------------------------


def groups(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """Concatenates, reshapes and slices sixteen tensors at a time."""
    results = []
    for start in range(0, len(tensors), GROUP):
        group = tensors[start : start + GROUP]
        whole = torch.cat(group)
        torch._check(group[0].shape[0] <= 2 * group[1].shape[0] + 100)
        results.append(whole.reshape(-1, 2, WIDTH // 2).sum(1))
        results.append(whole[: group[0].shape[0] + group[1].shape[0]] * 2)
    return results


def one(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """Concatenates all tensors, reshapes, and slices where every sixteenth of them begins."""
    whole = torch.cat(tensors)
    results, start = [whole.reshape(-1, 2, WIDTH // 2).sum(1)], 0
    for position, tensor in enumerate(tensors):
        if position % GROUP == 0:
            results.append(whole[start : start + tensor.shape[0]] * tensor)
        start = start + tensor.shape[0]
    return results


PROGRAMS: dict[str, Callable[..., list[torch.Tensor]]] = {"groups": groups, "one": one}


def trace(program: Callable[..., Any], count: int) -> torch.fx.GraphModule:
    """The graph for ``count`` tensors whose first sizes are symbols."""
    from torch._dynamo.source import ConstantSource
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

    mode = FakeTensorMode(shape_env=ShapeEnv(duck_shape=False))
    dynamic = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC, DimDynamic.STATIC])
    fakes = [
        mode.from_tensor(torch.empty(3 + i, WIDTH), symbolic_context=dynamic, source=ConstantSource(f"x{i}"))
        for i in range(count)
    ]
    return make_fx(program)(*fakes)


def stage_times(program: Callable[..., Any], count: int) -> tuple[float, dict[str, float]]:
    """Seconds of processor time of our own stages, which a busy machine does not change much, and those of each."""
    graph = trace(program, count)
    start = time.process_time()
    report = compile_graph(graph, Options.parse(None)).report
    return time.process_time() - start, dict(report.timings)


def measure_symbols(names: Sequence[str], counts: Sequence[int], repeat: int) -> list[dict[str, Any]]:
    rows = []
    with Progress("many symbols", len(names) * len(counts) * repeat) as progress:
        for name in names:
            program = PROGRAMS[name]
            stage_times(program, counts[0])  # what is imported on first use
            for count in counts:
                samples = []
                for _ in range(repeat):
                    progress.say(f"{name} {count}")
                    samples.append(stage_times(program, count))
                    progress.step()
                rows.append(
                    {
                        "program": name,
                        "symbols": count,
                        "seconds": statistics.median(sum(stages.values()) for _, stages in samples),
                        "processor": statistics.median(seconds for seconds, _ in samples),
                        "stages": {
                            key: statistics.median(stages[key] for _, stages in samples) for key in samples[0][1]
                        },
                    }
                )
    return rows


# --- the models ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ConstraintList:
    """The conditions that a module states, the ranges of its symbols among them, and the sizes first seen."""

    conditions: list[Condition]
    hints: dict[str, int]

    @property
    def symbols(self) -> list[str]:
        return sorted({*self.hints, *(name for c in self.conditions for name in c.symbols)})


def read_list(text: str) -> ConstraintList:
    with dialects.load(ir.Context()):
        module = ir.Module.parse(text)
        block = module.body.operations[0].regions[0].blocks[0]
        operations = [view.operation for view in block.operations]
        sizes = Sizes(block)
        sizes.learn(operations)
        conditions: list[Condition] = []
        hints = {}
        for op in operations:
            if op.name in KINDS:
                condition = read_condition(sizes, op.operands[0])
                if condition is None:
                    raise SystemExit(f"not a condition over sizes: {op}")
                conditions.append(condition)
            elif op.name == "symshape.symbol":
                name = ir.StringAttr(op.attributes["name"]).value
                hints[name] = ir.IntegerAttr(op.attributes["hint"]).value
                conditions += _range(name, op)
        return ConstraintList(conditions, hints)


def _range(name: str, op: Any) -> list[Condition]:
    row, symbol = row_of(op), Expr.symbol(name)
    found = [] if row.min is None else [at_least(symbol, row.min)]
    found += [] if row.max is None else [at_least(row.max, symbol)]
    return found + ([equals(symbol % row.divisor, 0)] if row.divisor > 1 else [])


def holds(condition: Condition, point: dict[str, int]) -> bool:
    """A condition that divides by zero does not hold."""
    try:
        return condition.evaluate(point)
    except ZeroDivisionError:
        return False


def sample(before: ConstraintList, after: ConstraintList, points: int, seed: int = 0) -> tuple[int, int, int]:
    """(points, those that break at most one constraint, those at which the two differ).

    Half of the points are drawn anew, the others are steps from a point at which all hold: the sizes first seen, at the
    start. Points that break more than one are left out once there are enough of them.
    """
    rng = random.Random(seed)
    numbers = sorted({n + d for c in before.conditions for n in _constants(c) for d in (-1, 0, 1)} | {0, 1, 2, 3})
    good = {name: before.hints.get(name, 8) for name in before.symbols}
    near = seen = different = tries = 0
    while before.symbols and (seen < points or near < points // 2):
        tries += 1
        if tries > 20 * points:
            raise SystemExit(f"only {near} of {seen} points break at most one constraint")
        changed = before.symbols if tries % 2 else rng.sample(before.symbols, min(rng.randint(1, 2), len(good)))
        point = good | {name: _value(rng, numbers, before.hints.get(name, 8)) for name in changed}
        broken = sum(not holds(condition, point) for condition in before.conditions)
        if broken > 1 and seen - near >= points - points // 2:
            continue
        good = good if broken else point
        seen += 1
        near += broken <= 1
        different += (broken == 0) != all(holds(condition, point) for condition in after.conditions)
    return seen, near, different


def _value(rng: random.Random, numbers: list[int], hint: int) -> int:
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(numbers)
    if kind < 0.6:
        return hint + rng.randint(-2, 2)
    return rng.randint(-4, 48) if kind < 0.8 else rng.randint(0, 40) * 16 + rng.randint(-1, 1)


def _constants(condition: Condition) -> set[int]:
    found = {abs(coefficient) for coefficient, atoms in condition.expr.terms}
    return found.union(*(_constants(part) for part in condition.operands)) if condition.operands else found


def z3_of(condition: Condition, table_: dict[str, Any]) -> Any:
    import z3

    if condition.kind in ("true", "false"):
        return z3.BoolVal(condition.kind == "true")
    if condition.operands:
        return {"and": z3.And, "or": z3.Or}[condition.kind](*[z3_of(part, table_) for part in condition.operands])
    value = _z3_expr(condition.expr, table_)
    return {"eq": value == 0, "ne": value != 0, "ge": value >= 0}[condition.kind]


def _z3_expr(expr: Expr, table_: dict[str, Any]) -> Any:
    import z3

    total = z3.IntVal(0)
    for coefficient, atoms in expr.terms:
        term = z3.IntVal(coefficient)
        for atom in atoms:
            term = term * _z3_atom(atom, table_)
        total = total + term
    return total


def _z3_atom(atom: Any, table_: dict[str, Any]) -> Any:
    import z3

    if isinstance(atom, Symbol):
        return table_.setdefault(atom.name, z3.Int(atom.name))
    assert isinstance(atom, Function)
    args = [_z3_expr(arg, table_) for arg in atom.args]
    if atom.kind in ("max", "min"):
        result = args[0]
        for arg in args[1:]:
            result = z3.If((result >= arg) if atom.kind == "max" else (result <= arg), result, arg)
        return result
    left, right = args  # z3 rounds to make the remainder nonnegative: the same for positive divisors
    quotient = z3.If(right > 0, left / right, -left / -right)
    return quotient if atom.kind == "floordiv" else left - right * quotient


def equivalent(before: ConstraintList, after: ConstraintList, seconds: int) -> str:
    """ "equal", "different", or for how many constraints z3 found no answer in time. Both ways, one by one."""
    import z3

    unknown = 0
    for given, wanted in ((before, after), (after, before)):
        for condition in wanted.conditions:
            if condition in given.conditions:
                continue
            symbols: dict[str, Any] = {}
            solver = z3.Solver()
            solver.set("timeout", seconds * 1000)
            solver.add(z3_of(all_of(*given.conditions), symbols), z3.Not(z3_of(condition, symbols)))
            # Divisors are not zero: a condition that divides by zero does not hold.
            answer = solver.check()
            if answer == z3.sat:
                return f"different: {condition} at {solver.model()}"
            unknown += answer == z3.unknown
    return f"unknown for {unknown}" if unknown else "equal"


def graphs_of(name: str) -> list[tuple[str, str]]:
    """The IR of every graph of a model as imported, and after the stage `shaped`."""
    from torch._functorch.aot_autograd import make_boxed_func

    found: list[tuple[str, str]] = []

    def compiler(graph: torch.fx.GraphModule, _inputs: Any) -> Any:
        context = dialects.load(ir.Context())
        module = import_graph(common_subexpressions(graph), context, shape_env_of(graph)).module
        before = module.operation.get_asm(enable_debug_info=True)
        run_pipeline(module, ",".join(STAGES["shaped"]))
        found.append((before, module.operation.get_asm(enable_debug_info=True)))
        return make_boxed_func(graph.forward)

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        how: dict[str, Any] = dict.fromkeys(("forward", "backward", "inference"), compiler)
        how |= {"joint": ready_to_split(lambda joint: joint), "splitting": splitting}
        with in_force(Scope("graph")):
            return aot_compile(graph, inputs, decompositions=decomposition_table(), **how)

    model = MODELS[name]
    torch._dynamo.reset()
    with torch.no_grad():
        compile_with(model.build(), backend)(**model.inputs(model.first_shapes[0]))
    return found


def measure_models(names: Sequence[str], points: int, seconds: int) -> list[dict[str, Any]]:
    rows = []
    with Progress("constraints of the models", len(names)) as progress:
        for name in names:
            progress.say(name)
            for number, texts in enumerate(graphs_of(name)):
                before, after = map(read_list, texts)
                seen, near, different = sample(before, after, points)
                rows.append(
                    {
                        "model": name,
                        "graph": number,
                        "imported": len(before.conditions),
                        "left": len(after.conditions),
                        "z3": equivalent(before, after, seconds),
                        "points": seen,
                        "near": near,
                        "different": different,
                    }
                )
            progress.step()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--symbols", default="16,64,256")
    parser.add_argument("--programs", default="groups", help="groups, one: the latter grows faster than the symbols")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--points", type=int, default=100_000)
    parser.add_argument("--z3-seconds", type=int, default=20)
    parser.add_argument("--out")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    counts = [int(part) for part in options.symbols.split(",") if part]
    many = measure_symbols(options.programs.split(","), counts, options.repeat) if counts else []
    if many:
        stages = list(many[0]["stages"])
        columns = ("program", "symbols", "seconds", "processor")
        print(table([*columns, *stages], [[*(r[c] for c in columns), *r["stages"].values()] for r in many]))
    names = [name for name in options.models.split(",") if name]
    models = measure_models(names, options.points, options.z3_seconds) if names else []
    if models:
        print(table(list(models[0]), [list(row.values()) for row in models]))
    if options.out:
        write_result(options.out, "constraints", [*many, *models])


if __name__ == "__main__":
    main()
