"""The width of the memory accesses in compiled Triton code, and the width that they should have.

PTX does not say reliably which line of the source an access is from, but its address is computed from one parameter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from symshape.analysis.loops import Dim, Instr, LoopKernel
from symshape.artifact.triton_kernels import TritonKernel, TritonStage
from symshape.codegen.triton.index import IndexText
from symshape.codegen.variants import Variant

WIDEST: Final = 16  # bytes of one access
_LANES: Final = 32
_ACCESS: Final = re.compile(
    r"\b(?P<op>ld|st)\.global(?:\.[a-z_:]\w*)*?(?:\.v(?P<count>\d+))?\.[bfsu](?P<bits>\d+)\b"
    r".*?\[\s*(?P<address>%\w+)"
)
_PARAMETER: Final = re.compile(r"\bld\.param\.\w+\s+(%\w+),\s*\[\w+_param_(\d+)\]")
_REGISTER: Final = re.compile(r"%[a-z]+\d+")
_ITEM: Final = {"i1": 1, "ui8": 1, "bf16": 2}


@dataclass(frozen=True)
class Access:
    """The loads ("ld") or stores ("st") of a tensor argument in a launch: bytes of the narrowest instruction (where
    whole blocks have no mask, the widest: the last block has one), and what they should be: min(16, elements per thread
    x item size) where contiguous, else the item size."""

    op: str
    argument: str
    dtype: str
    width: int
    expected: int

    @property
    def wide(self) -> bool:
        return self.width >= self.expected


def accesses(loops: LoopKernel, kernel: TritonKernel, variant: Variant, stage: TritonStage, ptx: str) -> list[Access]:
    """All accesses of a launch to tensor arguments; ``ptx``: of its function."""
    expected: dict[tuple[str, int], int] = {}
    index = IndexText(loops, flat=variant.form != "tile")
    for line in _lines(kernel, stage.function):
        instr = _instruction(loops, index, line)
        if instr is not None:
            width, key = _expected(loops, variant, stage, instr), (instr.op, instr.arg)
            expected[key] = min(width, expected.get(key, width))
    found = []
    pick = max if ("WHOLE", 1) in stage.constants and variant.aligned else min
    for (op, number), widths in sorted(_widths(ptx).items()):
        width = pick(widths)
        key = ("load" if op == "ld" else "store", number)
        if key in expected:
            arg = loops.args[number]
            found.append(Access(op, arg.name, arg.dtype, width, expected[key]))
    return found


def widest(found: Iterable[Access]) -> int:
    """Bytes of the narrowest access to a tensor of the widest element type, where a thread has 16 of them; else 0."""
    full = [access for access in found if access.expected == WIDEST]
    largest = max((item_size(access.dtype) for access in full), default=0)
    return min((access.width for access in full if item_size(access.dtype) == largest), default=0)


def _widths(ptx: str) -> dict[tuple[str, int], set[int]]:
    """For each kind of access and parameter the bytes of instructions."""
    lines = ptx.splitlines()
    origin: dict[str, set[int]] = {}
    for line in lines:
        if parameter := _PARAMETER.search(line):
            origin[parameter[1]] = {int(parameter[2])}
    while _spread(lines, origin):
        pass
    result: dict[tuple[str, int], set[int]] = {}
    for line in lines:
        if access := _ACCESS.search(line):
            width = int(access["count"] or 1) * int(access["bits"]) // 8
            for number in origin.get(access["address"], ()):
                result.setdefault((access["op"], number), set()).add(width)
    return result


def _spread(lines: list[str], origin: dict[str, set[int]]) -> bool:
    """One round of what each register is computed from; whether that was news. A value that is loaded is no address."""
    changed = False
    for line in lines:
        if not line.startswith("\t") or re.match(r"\s*(@\S+\s+)?(ld|st)\.", line):
            continue
        registers = _REGISTER.findall(re.sub(r"^\s*@\S+", "", line))
        sources = set().union(*(origin.get(name, set()) for name in registers[1:]))
        if sources - origin.get(registers[0], set()) if registers else False:
            origin.setdefault(registers[0], set()).update(sources)
            changed = True
    return changed


def _lines(kernel: TritonKernel, function: str) -> Iterator[str]:
    inside = False
    for line in kernel.source.splitlines():
        begins = line.startswith((f"def {function}(", f"def {function}_points("))
        inside = begins or inside and not line.startswith("@")
        if inside and ("tl.load(" in line or "tl.store(" in line):
            yield line


def _instruction(loops: LoopKernel, index: IndexText, line: str) -> Instr | None:
    for instr in loops.code:
        if instr.op in ("load", "store") and instr.address is not None and f"tl.{instr.op}(" in line:
            address = index.expr(index.flat(instr.address))
            if f"({loops.args[instr.arg].name}{f' + ({address}' if address != '0' else ''}" in line:
                return instr
    return None


def _expected(loops: LoopKernel, variant: Variant, stage: TritonStage, instr: Instr) -> int:
    """Bytes, by what a thread holds of the access and how far it is contiguous."""
    assert instr.address is not None
    blocks = dict(stage.constants)
    elements, run = 1, 1
    for dims, block in _axes(loops, variant, blocks):
        used = [d for d in dims if d.name in instr.address.symbols]
        if used:
            elements *= block
        if dims and instr.address.coefficient(dims[-1].name) == 1 and not _guarded(instr, dims[-1]):
            run = max(run, block)
    item = item_size(loops.args[instr.arg].dtype)
    held = max(1, elements // (_LANES * stage.num_warps))
    return min(WIDEST, item * min(held, run))


def _guarded(instr: Instr, dim: Dim) -> bool:
    """Whether neighbours along the dim may be in the access and out of it."""
    return any(dim.name in expr.symbols for expr in instr.mask)


def _axes(loops: LoopKernel, variant: Variant, blocks: dict[str, int]) -> list[tuple[list[Dim], int]]:
    """The dims along each axis of a program's block, and its length."""
    if variant.form == "tile":
        by_name = {d.name: d for d in loops.dims}
        return [([by_name[variant.dims[0]]], blocks["YBLOCK"]), ([by_name[variant.dims[1]]], blocks["XBLOCK"])]
    parallel = [d for d in loops.dims if not d.reduced]
    return [(parallel, blocks["XBLOCK"]), ([d for d in loops.dims if d.reduced], blocks.get("RBLOCK", 1))]


def item_size(dtype: str) -> int:
    """Bytes of an element."""
    return _ITEM.get(dtype) or int(dtype[1:]) // 8
