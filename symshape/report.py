"""What ``symshape.explain`` tells of a compile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from symshape.errors import SymshapeError


@dataclass(frozen=True)
class KernelReport:
    """One kernel: ``kind`` is "pointwise" or "reduction"; ``source`` is MLIR text (cpu) or Python (triton)."""

    name: str
    kind: str
    target: str
    source: str
    loops: Any

    @property
    def triton_source(self) -> str:
        """The same kernel as Triton code, whatever the target."""
        from symshape.codegen.triton_kernel import emit_triton

        return emit_triton(self.loops).source

    @property
    def variants(self) -> tuple[str, ...]:
        from symshape.codegen.triton_kernel import emit_triton

        return ("default",) if self.target == "cpu" else tuple(v.name for v in emit_triton(self.loops).variants)


@dataclass
class GraphReport:
    """One compiled graph: ``kind`` is "inference", "forward" or "backward"; ``timings`` are (stage, seconds)."""

    kind: str
    target: str
    symbols: list[Any] = field(default_factory=list)
    timings: list[tuple[str, float]] = field(default_factory=list)
    stages: dict[str, str] = field(default_factory=dict)
    passes: dict[str, Any] = field(default_factory=dict)
    kernels: list[KernelReport] = field(default_factory=list)
    library_calls: list[str] = field(default_factory=list)
    checks: list[Any] = field(default_factory=list)
    launches: int = 0
    program_source: str = ""

    def stage(self, name: str) -> str:
        """The IR text after a stage: imported, linalg or kernels."""
        if name not in self.stages:
            raise SymshapeError(
                f"no IR is kept for stage {name!r}", next_step=f"stages: {', '.join(self.stages) or 'none'}"
            )
        return self.stages[name]

    @property
    def constraints(self) -> list[Any]:
        return self.checks

    @property
    def stub_source(self) -> str:
        """The part of the host program that binds symbols and checks what is not proven, before any kernel runs."""
        lines = self.program_source.splitlines()
        end = next(
            (
                i
                for i, line in enumerate(lines)
                if "empty_strided(" in line or "reinterpret(" in line or "kernel_" in line
            ),
            len(lines),
        )
        return "\n".join(lines[:end])

    def __str__(self) -> str:
        calls = Counter(self.library_calls)
        lines = [
            f"{self.kind} graph ({self.target}): {len(self.kernels)} kernels, {self.launches} launches, "
            f"{len(self.library_calls)} library calls"
        ]
        lines += [f"  {count:4d} x {name}" for name, count in calls.most_common()]
        lines += [f"  {seconds * 1e3:8.1f} ms  {stage}" for stage, seconds in self.timings]
        return "\n".join(lines)


@dataclass
class Report:
    """All graphs of one ``explain``, in the order in which they were compiled."""

    graphs: list[GraphReport] = field(default_factory=list)
    result: Any = None

    def __str__(self) -> str:
        return "\n".join(f"[{i}] {g}" for i, g in enumerate(self.graphs))

    def totals(self) -> Mapping[str, int]:
        return {"graphs": len(self.graphs), "kernels": sum(len(g.kernels) for g in self.graphs),
                "launches": sum(g.launches for g in self.graphs),
                "library_calls": sum(len(g.library_calls) for g in self.graphs)}  # fmt: skip
