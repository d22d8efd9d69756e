"""Pass rates on PyTorch's operator databases (OpInfo), from the result files of ``make conformance``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from symshape.tools import commit

_PATTERN = "conformance*.json"


@dataclass(frozen=True)
class OperatorResult:
    """One result file. ``options`` of the run are "" for all operators in float32; ``commit`` last changed the file."""

    file: str
    options: str
    passed: int
    operators: int
    passed_by_aot_eager: int | None
    samples: int
    date: str
    commit: str


def operator_results(root: Path) -> list[OperatorResult]:
    """The results in a checkout: runs over all operators first, then newest first."""
    found = [_read(root, path) for path in sorted((root / "bench" / "results").glob(_PATTERN))]
    newest = sorted(found, key=lambda one: one.date, reverse=True)
    return sorted(newest, key=lambda one: bool(one.options))


def _read(root: Path, path: Path) -> OperatorResult:
    record = json.loads(path.read_text(encoding="utf-8"))
    summary = record["summary"]
    measured = any(row["backend"] == "aot_eager" for row in record["rows"])
    return OperatorResult(
        path.name,
        summary["options"],
        summary["passed"],
        summary["operators"],
        summary["passed_by_aot_eager"] if measured else None,
        summary["samples"],
        record["environment"]["date"],
        commit.of_file(root, path),
    )
