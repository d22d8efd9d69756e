"""Prints the launcher of a kernel as Python: a function that selects the variant at each call and launches it.

```python
def launch(in0, out0, s0, s1):
    xnumel = s0
    if xnumel <= 0:
        return
    address0, address1 = in0.data_ptr(), out0.data_ptr()
    device = in0.device
    test0 = (address0 | address1 | s1) & 15 == 0
    if s1 <= 512 and test0:
        persistent512_aligned(device, (xnumel + 1) // 2, in0, out0, s0, s1)
        return
    if s1 <= 512:
        ...
```

A variant's launches are functions of the device, the number of programs and the arguments (runtime/triton/launch.py).
On a GPU, tensors are passed as addresses, which are read once for both tests and launch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from symshape.analysis.loops import Arg
from symshape.artifact.triton_kernels import TritonVariant
from symshape.codegen.variants import Variant, condition_text
from symshape.dialects.plans import PROCESSORS
from symshape.prover.numbers.condition import TRUE, Condition, all_of

_ADDRESS = "address"


def by_value(args: Sequence[Arg]) -> tuple[str, ...]:
    """Names of the arguments that the kernel takes by value."""
    return tuple(arg.name for arg in args if arg.by_value)


def first_lines(args: Sequence[Arg]) -> list[str]:
    """Lines that define addresses and device. A kernel has at least one tensor argument, its output."""
    placed = [(i, arg.name) for i, arg in enumerate(args) if not arg.by_value]
    addresses, values = ", ".join(f"{_ADDRESS}{i}" for i, _ in placed), ", ".join(f"{n}.data_ptr()" for _, n in placed)
    return [f"{addresses} = {values}", f"device = {placed[0][1]}.device"]


def given_tensors(args: Sequence[Arg]) -> list[str]:
    """The arguments of launches: by-value arguments by name, tensors as placeholders ``{name}``."""
    return [arg.name if arg.by_value else f"{{{arg.name}}}" for arg in args]


def launcher_text(
    args: Sequence[Arg],
    symbols: Sequence[str],
    checks_index: bool,
    sizes: Mapping[str, str],
    variants: Sequence[tuple[Variant, TritonVariant]],
    functions: Mapping[str, Sequence[str]],
    separate: Sequence[str] = (),
) -> str:
    """The source of the launcher. ``sizes``: Python for "xnumel" and "rnumel", the numbers of parallel and reduced
    points; ``functions``: their own arguments, by name; ``separate``: lines for the form "separate", which has results
    even if there are no rows."""
    tests, chosen = _conditions([variant.condition for variant, _ in variants])
    body = [f"xnumel = {sizes['xnumel']}"]
    body += [f"rnumel = {sizes['rnumel']}"] if separate else ["if xnumel <= 0:", "    return"]
    body += first_lines(args)
    values = [*(arg.name for arg in args), *symbols, *(["error_slot"] if checks_index else [])]
    given = [*given_tensors(args), *values[len(args) :]]
    defined: set[str] = set()
    for (plan, variant), (condition, names) in zip(variants, chosen, strict=True):
        used = plan.condition.symbols | (plan.splits.symbols if plan.splits is not None else frozenset())
        if PROCESSORS in used - defined:
            body.append(f"{PROCESSORS} = processor_count(device)")
            defined.add(PROCESSORS)
        body += [f"{name} = {tests[name]}" for name in names if name not in defined]
        defined.update(names)
        lines = _launches(variant, given, functions) if variant.stages else list(separate)
        if not condition:
            body += lines
            break
        body += [f"if {condition}:", *(f"    {line}" for line in [*lines, "return"])]
    head = f"def launch({', '.join(values)}):"
    return "\n".join([head, *(f"    {line}" for line in body), ""])


def _launches(variant: TritonVariant, values: Sequence[str], functions: Mapping[str, Sequence[str]]) -> list[str]:
    lines = []
    if variant.splits:
        lines.append(f"splits = {variant.splits}")
        lines += [f"workspace_{dtype} = empty({size}, {dtype!r}, device)" for dtype, size in variant.workspace]
    if variant.counters:
        lines.append(f"counters = zero_counters({variant.counters}, device)")
    for i, stage in enumerate(variant.stages):
        given = ", ".join([*values, *functions[stage.function]])
        lines.append(f"{launch_name(variant, i)}(device, {stage.programs}, {given})")
    return lines


def launch_name(variant: TritonVariant, stage: int) -> str:
    """The name by which the launcher calls one launch of a variant."""
    return variant.name if len(variant.stages) == 1 else f"{variant.name}_{stage}"


def _conditions(conditions: Sequence[Condition]) -> tuple[dict[str, str], list[tuple[str, list[str]]]]:
    """Tests that several conditions share, by name; and for each condition its text ("" if always true) and the names
    of tests in it."""
    parts = [_parts(condition) for condition in conditions]
    shared = [part for part, count in Counter(part for own in parts for part in own).items() if count > 1]
    repeated = [part for part in shared if len(part.symbols) > 1]  # simpler tests are as cheap as a variable
    names = {part: f"test{i}" for i, part in enumerate(repeated)}
    texts = [
        (" and ".join(names.get(part) or _bracketed(part) for part in own), [names[p] for p in own if p in names])
        for own in parts
    ]
    return {name: condition_text(part) for part, name in names.items()}, texts


def _parts(condition: Condition) -> tuple[Condition, ...]:
    """The operands of a conjunction, with all alignment tests combined into one."""
    operands: Iterable[Condition] = condition.operands if condition.kind == "and" else (condition,)
    rest = [part for part in operands if not _is_alignment(part)]
    aligned = all_of(*(part for part in operands if _is_alignment(part)))
    return tuple(part for part in (*rest, aligned) if part != TRUE)


def _is_alignment(part: Condition) -> bool:
    atoms = [atom for _, atoms in part.expr.terms for atom in atoms]
    return part.kind == "eq" and any(getattr(atom, "kind", "") == "mod" for atom in atoms)


def _bracketed(part: Condition) -> str:
    return f"({condition_text(part)})" if part.kind in ("or", "and") else condition_text(part)
