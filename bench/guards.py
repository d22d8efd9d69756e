"""Time to check guards: our stub, our check of many tensors against PyTorch's, and one entry against many.

    python bench/guards.py [--rounds 15] [--entries 100] [--out bench/results/guards.json]

1. A stub that checks 64 and more relations (products, remainders, sums) among 128 sizes given as integers.
2. The check of 64 two-dimensional tensors, all sizes dynamic or all fixed: class, dtype, device, rank, strides, sizes.
   PyTorch's is the guard manager that torch.compile made for the same function, asked in the same run.
3. The lookup of the entry used last in a function with many entries, over that in a function with one. One function has
   entries for values of an integer, one for ranges of a size.

Samples are taken in turns, in processor time of the calling thread, which does not count what else the machine does; a
figure is the median of the rounds.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
import timeit
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch._dynamo
from guard_stubs import Binding, StubText, emit_stub
from torch.export import Dim

import symshape
from symshape.codegen.host.guard_stub import Constraint
from symshape.prover.numbers.condition import at_least, equals
from symshape.prover.numbers.expr import Expr
from symshape.runtime.checks import fail, load_function
from symshape.tools.measure import write_result
from symshape.tools.terminal import heading, table

Runs = dict[str, Callable[[], Any]]


def relations(sizes: int = 128) -> tuple[StubText, list[int], int]:
    """A stub, sizes that satisfy it, and how many relations it checks: for each group of eight sizes a reshape's
    product, a constant and a symbolic divisor, a concatenation's sum, and a comparison."""
    constraints, values = [], []
    for group in range(sizes // 8):
        a, b, c, d, e, f, g, h = (Expr.symbol(f"s{8 * group + i}") for i in range(8))
        constraints += [equals(a * b, c), equals(d % 8, 0), equals(e + f, g), equals(h % a, 0), at_least(h, e)]
        first = 2 + group
        values += [first, 3 + group, first * (3 + group), 8 * first, 5 * first, 7 * first, 12 * first, 100 * first]
    names = [f"s{i}" for i in range(sizes)]
    stub = emit_stub(names, [Binding(name, name, f"{name}") for name in names], [Constraint(c) for c in constraints])
    return stub, values, len(constraints)


def microseconds(runs: Runs, rounds: int, calls: int = 1000) -> dict[str, float]:
    """Median processor time per call of each run."""
    timers = {name: timeit.Timer(run, timer=time.thread_time) for name, run in runs.items()}
    samples: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, timer in timers.items():
            samples[name].append(1e6 * timer.timeit(calls) / calls)
    return {name: statistics.median(values) for name, values in samples.items()}


def stub_runs() -> tuple[Runs, int]:
    stub, values, count = relations()
    check = load_function(stub.source, "stub", {"fail": functools.partial(fail, stub.checks)}, "<stub>")
    check(values)
    wrong = [*values[:-1], 0]
    try:
        check(wrong)
    except symshape.ShapeConstraintError:
        return {"stub": functools.partial(check, values)}, count
    raise AssertionError("the stub accepts sizes that break a relation")


def function_of(count: int) -> Any:
    """A function of that many tensors, which uses all of them."""
    names = ", ".join(f"x{i}" for i in range(count))
    namespace: dict[str, Any] = {}
    exec(f"def function({names}):\n return ({''.join(f'x{i} + 1, ' for i in range(count))})", namespace)
    return namespace["function"]


def tensor_runs(count: int, dynamic: bool) -> Runs:
    tensors = tuple(torch.randn(3 + i, 5 + 2 * i) for i in range(count))
    function = function_of(count)
    torch._dynamo.reset()
    torch.compile(function, backend="eager", dynamic=dynamic)(*tensors)
    (entry,) = torch._dynamo.eval_frame._debug_get_cache_entry_list(function.__code__)
    scope = {f"x{i}": tensor for i, tensor in enumerate(tensors)}
    shapes = None if dynamic else tuple((Dim.STATIC, Dim.STATIC) for _ in tensors)
    ours = symshape.jit(function, dynamic_shapes=shapes)
    ours(*tensors)
    check, manager = lookup(ours, *tensors), entry.guard_manager
    wrong = (*tensors[:-1], tensors[-1][:1])
    assert check(tensors) is not None and check(wrong) is None
    assert manager.check(scope) and not manager.check(scope | {f"x{count - 1}": wrong[-1]})
    return {"ours": functools.partial(check, tensors), "pytorch": functools.partial(manager.check, scope)}


def lookup(function: Any, *args: Any) -> Callable[[Sequence[Any]], Any]:
    """What a call of a jitted function with these arguments (tensors and constants, no containers) runs first: a
    function of the argument tuple, with an entry as its result, or None."""
    found: Callable[[Sequence[Any]], Any] = function._states[0].flat[len(args)].find
    return found


def by_value(x: torch.Tensor, n: int) -> torch.Tensor:
    return x * n


def by_range(x: torch.Tensor, n: int) -> torch.Tensor:
    for bound in range(n):
        if x.shape[0] < 10 * (bound + 1):
            return x + bound
    return x * n


def entry_runs(entries: int) -> dict[str, Runs]:
    """The lookup of the last of many entries, and of the only one of the same function."""
    values = [((torch.randn(6), n), {}) for n in range(2, entries + 2)]
    ranges = [((torch.randn(10 * k + 5), entries), {}) for k in range(entries)]
    static = {"dynamic_shapes": {"n": Dim.STATIC}, "options": {"entry_limit": entries}}
    cases = {"values of an integer": (by_value, values), "ranges of a size": (by_range, ranges)}
    found: dict[str, Runs] = {}
    for name, (function, calls) in cases.items():
        many, one = symshape.jit(function, **static), symshape.jit(function, **static)
        for args, _ in calls:
            many(*args)
        last = calls[-1][0]
        one(*last)
        assert len(many.entries) == entries and len(one.entries) == 1
        # Each call's entry is its own: the last one must not be found because it is tried first.
        assert len({id(lookup(many, *args)(args)) for args, _ in calls}) == entries
        first = calls[0][0]
        found[name] = {
            "first of many": functools.partial(lookup(many, *first), first),
            "last of many": functools.partial(lookup(many, *last), last),
            "only one": functools.partial(lookup(one, *last), last),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--tensors", type=int, default=64)
    parser.add_argument("--entries", type=int, default=100)
    parser.add_argument("--out")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")

    measure = functools.partial(microseconds, rounds=options.rounds)
    runs, count = stub_runs()
    stub = measure(runs)["stub"]
    tensors = {kind: measure(tensor_runs(options.tensors, kind == "dynamic")) for kind in ("dynamic", "fixed")}
    many = {name: measure(runs) for name, runs in entry_runs(options.entries).items()}
    print(heading(f"a stub of 128 sizes and {count} relations"))
    print(table(["microseconds"], [[stub]]))
    print(heading(f"check of {options.tensors} two-dimensional tensors, microseconds"))
    rows = [[kind, t["ours"], t["pytorch"], t["ours"] / t["pytorch"]] for kind, t in tensors.items()]
    print(table(["sizes", "ours", "pytorch", "ratio"], rows))
    print(heading(f"lookup among {options.entries} entries, microseconds"))
    shown = [[name, *t.values(), t["last of many"] / t["only one"]] for name, t in many.items()]
    print(table(["entries by", "first of many", "last of many", "only one", "ratio"], shown))
    if options.out:
        write_result(options.out, "guards", [{"stub": stub, "relations": count, "tensors": tensors, "entries": many}])


if __name__ == "__main__":
    main()
