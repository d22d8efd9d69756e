"""Operators that PyTorch marks as failing with unbacked sizes, through symshape and compared with eager.

    python bench/unbacked_ops.py [--ops roll,linalg.cond] [--samples 3] [--list] [--out bench/results/unbacked_ops.json]

The list and the way to run it are PyTorch's (``torch.testing._internal.common_ops_unbacked``, test_ops_unbacked.py):
each sample of an operator's ``OpInfo`` has every dim of 2 or more marked unbacked, and is compiled with
``fullgraph=True``. An operator passes if all of its samples that have such a dim are compiled into one graph, without a
guard on them, and return what eager returns (of random numbers only types and sizes). ``--samples N``: N samples of
each operator, spread over all; 0 is all of them, as PyTorch does it. Needs the package ``expecttest``.
"""

from __future__ import annotations

import argparse
import copy
import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.utils._pytree as pytree

import symshape
from symshape.tools.measure import write_result
from symshape.tools.terminal import Progress, table

_ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Row:
    """``passed``: samples that did. ``reason``: what the first of the others failed with; "" if there is none."""

    name: str
    samples: int
    passed: int
    reason: str
    seconds: float


def entries() -> list[tuple[str, str]]:
    """Name and variant of each operator in PyTorch's list."""
    from torch.testing._internal.common_ops_unbacked import ops_dde_xfail

    return sorted((entry[0], entry[1]) for entry in ops_dde_xfail)


def operators() -> dict[str, Any]:
    """By name (``name`` or ``name.variant``) the OpInfo of each operator in the list; None where PyTorch has none."""
    from torch.testing._internal import common_methods_invocations as invocations

    op_db = invocations.op_db
    invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)  # `called` sets it
    known = {(op.name, op.variant_test_name): op for op in op_db}
    return {".".join(filter(None, entry)): known.get(entry) for entry in entries()}


def samples_of(op: Any, most: int = 0) -> list[tuple[list[Any], dict[str, Any]]]:
    """(args, kwargs) of the samples that have a dim to mark; ``most`` of them, 0 for all."""
    torch.manual_seed(0)
    found = [
        ([sample.input, *sample.args], sample.kwargs)
        for sample in op.sample_inputs("cpu", torch.float32, requires_grad=False)
    ]
    found = [one for one in found if any(max(t.shape, default=0) >= 2 for t in tensors(one))]
    if not most or len(found) <= most:
        return found
    return [found[i * (len(found) - 1) // max(most - 1, 1)] for i in range(most)]


def tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def failure(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    """What one sample fails with; "" if it passes."""
    torch._dynamo.reset()
    expected, again = (called(op.op, args, kwargs, seed) for seed in (0, 1))
    if isinstance(expected, Exception):
        return ""  # PyTorch's own sample

    def function(*args: Any, **kwargs: Any) -> Any:
        return op.op(*args, **kwargs)

    compiled = symshape.compile(function, fullgraph=True)
    actual = called(compiled, args, kwargs, 0, mark=True)
    if isinstance(actual, Exception):
        return f"{type(actual).__name__}: {summary(actual)}"
    return difference(actual, expected, random=difference(again, expected) != "")


def called(function: Callable[..., Any], args: Any, kwargs: Any, seed: int, mark: bool = False) -> Any:
    """What a call returns or raises, and what it leaves in its arguments."""
    args, kwargs = copy.deepcopy((list(args), dict(kwargs)))
    for tensor in tensors((args, kwargs)) if mark else ():
        for dim, size in enumerate(tensor.shape):
            if size >= 2:
                torch._dynamo.decorators.mark_unbacked(tensor, dim)
    torch.manual_seed(seed)
    try:
        return function(*args, **kwargs), args, kwargs
    except Exception as error:  # noqa: BLE001 - a failing operator is a result
        return error


def summary(error: Exception) -> str:
    """What an error says, with files named from the repository's root."""
    text = str(error).replace("\\n", "\n").replace(f"{_ROOT}{os.sep}", "")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if "cannot be compiled" in line or "got RuntimeError" in line]
    told += [line for line in lines if "data-dependent" in line or line.startswith("Explanation")]
    return (told or lines or [""])[0].removeprefix("Explanation: ")[-240:]


def difference(actual: Any, expected: Any, random: bool = False) -> str:
    """Between two trees of results; "" if there is none. Of ``random`` ones only types and sizes are compared."""
    sides = [pytree.tree_leaves(side) for side in (actual, expected)]
    if len(sides[0]) != len(sides[1]):
        return "another structure"
    for ours, theirs in zip(*sides):
        if not isinstance(theirs, torch.Tensor):
            if ours != theirs and ours == ours:
                return f"{ours} instead of {theirs}"
            continue
        if not isinstance(ours, torch.Tensor) or ours.dtype != theirs.dtype or ours.shape != theirs.shape:
            return f"{getattr(ours, 'shape', ours)} instead of {tuple(theirs.shape)}"
        if not random and theirs.layout == torch.strided:
            close = torch.allclose(ours, theirs, rtol=1e-4, atol=1e-4, equal_nan=True)
            if not close:
                return f"other values, by up to {(ours.double() - theirs.double()).abs().max().item():.3g}"
    return ""


def run(name: str, op: Any, most: int) -> Row:
    """All samples of an operator; it is left at the first that fails."""
    started = time.process_time()
    if op is None:
        return Row(name, 0, 0, "PyTorch has no samples for it", 0.0)
    found = samples_of(op, most)
    passed, reason = 0, "" if found else "no sample has a dim to mark"
    for args, kwargs in found:
        try:
            reason = failure(op, args, kwargs)
        except Exception as error:  # noqa: BLE001 - what cannot even be compared has failed
            reason = f"{type(error).__name__}: {summary(error)}"
        if reason:
            break
        passed += 1
    return Row(name, len(found), passed, reason, round(time.process_time() - started, 2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default="", help="comma-separated; all of the list by default")
    parser.add_argument("--samples", type=int, default=3, help="of each operator; 0: all")
    parser.add_argument("--list", action="store_true", help="print the operators and leave")
    parser.add_argument("--out")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    os.environ.setdefault("SYMSHAPE_CACHE", "0")

    known = operators()
    names = options.ops.split(",") if options.ops else list(known)
    if options.list:
        print("\n".join(names))
        return
    rows = []
    with Progress("operators", len(names)) as progress:
        for name in names:
            progress.say(name)
            rows.append(run(name, known[name], options.samples))
            if options.out:
                write_result(options.out, "unbacked_ops", [asdict(row) for row in rows])
            progress.step()
    failed = [row for row in rows if row.reason]
    print(table(["operator", "passed", "of", "reason"], [[r.name, r.passed, r.samples, r.reason] for r in failed]))
    print(f"{len(rows) - len(failed)} of {len(rows)} pass")
    if options.out:
        write_result(options.out, "unbacked_ops", [asdict(row) for row in rows], passed=len(rows) - len(failed))


if __name__ == "__main__":
    main()
