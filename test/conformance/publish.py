"""The table of a run: JSON, Markdown and an HTML page."""

from __future__ import annotations

import functools
import html
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from symshape.tools.measure import environment, write_result
from symshape.tools.terminal import table

STATUSES = ("pass", "wrong value", "wrong layout", "error")
NATIVE_GROUPS = ("unary", "binary", "reduction", "view", "indexing")
KINDS = {"op": "operators", "hop": "higher-order operators", "custom": "custom operators", "module": "modules"}
Record = dict[str, Any]

STYLE = """body{font:15px/1.45 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#1d2129}
h1{font-size:1.6rem;margin:0}h2{font-size:1.1rem;margin:2rem 0 .5rem}p{margin:.4rem 0}
table{border-collapse:collapse;width:100%}td,th{padding:.25rem .6rem;text-align:left;border-bottom:1px solid #dde1e6;
vertical-align:top}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}th{color:#555;font-weight:600}
code{font-size:.85em;overflow-wrap:anywhere}.bad{color:#b3261e;font-weight:600}.good{color:#1b7f3b}
summary{cursor:pointer;color:#555}"""


# What computes no element of a tensor, beside views: arithmetic on Python numbers, reading a number, assertions.
NUMBERS = (
    "python._operator.",
    "python.math.",
    "python.torch.sym_",
    "aten._local_scalar_dense.",
    "aten._assert_scalar.",
    "aten._assert_async.",
)


def is_native(record: Record) -> bool:
    """Whether no graph that computes its results has a library call that computes elements of tensors; the report says
    why each of them is one."""
    called = {name for kind in ("forward", "inference") for name in record["calls"].get(kind, ())}
    return all(name.startswith(NUMBERS) or is_view(name) for name in called)


def is_view(name: str) -> bool:
    """Whether a library call only describes the memory of its operand anew, by PyTorch's own declaration."""
    if not name.startswith("aten."):
        return False
    operator: Any = functools.reduce(getattr, name.split("."), torch.ops)
    return bool(operator.is_view)


def gradients(records: Sequence[Record]) -> tuple[int, int, int]:
    """(compared, equal, wrong) samples with gradients."""
    compared = [one for record in records for one in record["outcomes"] if one["gradient"]]
    wrong = [one for one in compared if one["kind"] == "wrong value"]
    return len(compared), len([one for one in compared if not one["kind"]]), len(wrong)


def rows(records: Sequence[Record]) -> list[list[Any]]:
    """Header and rows: for each class of operators, and each kind of the others, how many of which status."""
    ours = [one for one in records if one["backend"] == "symshape" and one["status"] != "none"]
    theirs = {one["key"]: one for one in records if one["backend"] == "aot_eager"}
    found: list[list[Any]] = [["class", "run", *STATUSES, "native", "gradients equal", "aot_eager passes"]]
    groups: dict[str, Callable[[Record], bool]] = {}
    for name in ("unary", "binary", "reduction", "view", "indexing", "library", "other"):
        groups[name] = lambda one, name=name: one["group"] == name  # type: ignore[misc]
    for kind, title in KINDS.items():
        groups[title] = lambda one, kind=kind: one["key"].startswith(kind + "/")  # type: ignore[misc]
    for title, belongs in groups.items():
        chosen = [one for one in ours if belongs(one)]
        if not chosen:
            continue
        compared, equal, _ = gradients(chosen)
        found.append(
            [
                title,
                len(chosen),
                *(sum(one["status"] == status for one in chosen) for status in STATUSES),
                share(sum(map(is_native, chosen)), len(chosen)),
                share(equal, compared),
                sum(theirs[one["key"]]["status"] == "pass" for one in chosen if one["key"] in theirs),
            ]
        )
    return found


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}%" if whole else ""


def summary(records: Sequence[Record]) -> dict[str, Any]:
    ours = [one for one in records if one["backend"] == "symshape" and one["status"] != "none"]
    ops = [one for one in ours if one["key"].startswith("op/")]
    native = [one for one in ops if one["group"] in NATIVE_GROUPS]
    compared, equal, wrong = gradients(ours)
    theirs = [one for one in records if one["backend"] == "aot_eager" and one["status"] != "none"]
    return {
        "operators": len(ops),
        "passed": sum(one["status"] == "pass" for one in ops),
        "passed_by_aot_eager": sum(one["status"] == "pass" for one in theirs if one["key"].startswith("op/")),
        "variants_with_wrong_values": sum(one["status"] == "wrong value" for one in ours),
        "samples": sum(len(one["outcomes"]) for one in ours),
        "native_of_pointwise_reduction_view_indexing": [sum(map(is_native, native)), len(native)],
        "gradient_samples": compared,
        "gradients_equal": equal,
        "gradients_wrong": wrong,
        "processor_seconds": round(sum(one["seconds"] for one in records)),
    }


def failures(records: Sequence[Record], command: Callable[[str], str]) -> list[tuple[str, str, str, str, str]]:
    """(variant, what kind, which sample and why, what aot_eager does, how to run it again)."""
    theirs = {one["key"]: one["status"] for one in records if one["backend"] == "aot_eager"}
    found = []
    for one in records:
        bad = [outcome for outcome in one["outcomes"] if outcome["kind"]]
        if one["backend"] == "symshape" and bad:
            worst = next(outcome for outcome in bad if outcome["kind"] == one["status"])
            again = command(one["key"])
            found.append(
                (one["key"], one["status"], f"{worst['label']}: {worst['what']}", theirs.get(one["key"], ""), again)
            )
    return sorted(found, key=lambda row: (STATUSES.index(row[1]), row[0]))


def publish(
    records: Sequence[Record], out: Path, command: Callable[[str], str], seconds: float, of: int, options: str
) -> int:
    """Writes ``out``.json, .md and .html and prints the table; 1 if a value is wrong. ``of``: how many variants there
    are, run or not; ``options``: what was given on the command line."""
    run = len({one["key"] for one in records})
    total = summary(records) | {"variants_run": run, "variants": of, "minutes": round(seconds / 60, 1)}
    total |= {"options": options}
    bad, head = failures(records, command), rows(records)
    write_result(out.with_suffix(".json"), "conformance", [_short(one) for one in records], **total)
    out.with_suffix(".md").write_text(_markdown(head, bad, total), encoding="utf-8")
    out.with_suffix(".html").write_text(_page(head, bad, total), encoding="utf-8")
    for _, kind, why, _, again in bad:
        print(f"{kind}: {why}\n    {again}")
    print(table(head[0], head[1:]))
    print(_sentence(total))
    return int(total["variants_with_wrong_values"] > 0)


def _short(record: Record) -> Record:
    """As it is kept: of equal samples only how many there are."""
    made = {name: record[name] for name in ("key", "group", "backend", "status", "graphs", "seconds")}
    made["samples"] = len(record["outcomes"])
    if record["backend"] == "symshape":
        made["library"] = sorted({call for calls in record["calls"].values() for call in calls})
        made["native"] = is_native(record)
    made["failed"] = [one for one in record["outcomes"] if one["kind"]]
    return made


def _sentence(total: dict[str, Any]) -> str:
    native, of = total["native_of_pointwise_reduction_view_indexing"]
    return (
        f"{total['passed']} of {total['operators']} operator variants pass (aot_eager "
        f"{total['passed_by_aot_eager']}), "
        f"{total['variants_with_wrong_values']} variants with wrong values. {share(native, of)} of the pointwise, "
        f"reduction, view and indexing variants run in generated kernels alone. {total['gradients_equal']} of "
        f"{total['gradient_samples']} samples with gradients are equal, {total['gradients_wrong']} wrong."
        + (
            ""
            if total["variants_run"] == total["variants"]
            else f" This was a sample: {total['variants_run']} of {total['variants']} variants."
        )
    )


def _markdown(head: list[list[Any]], bad: list[tuple[str, ...]], total: dict[str, Any]) -> str:
    lines = ["# PyTorch's operator databases through symshape", "", _sentence(total), "", _about(total["options"]), ""]
    lines += _rows_of(head[0], head[1:])
    if bad:
        lines += ["", "## What does not pass", ""]
        shown = [[f"`{one[0]}`", one[1], _cut(one[2]).replace("|", "\\|"), one[3]] for one in bad]
        lines += _rows_of(["variant", "status", "why", "aot_eager"], shown)
    return "\n".join(lines) + "\n"


def _rows_of(header: Sequence[Any], body: Sequence[Sequence[Any]]) -> list[str]:
    return [f"| {' | '.join(map(str, row))} |" for row in (header, ["---"] * len(header), *body)]


def _cut(text: str, most: int = 160) -> str:
    return text if len(text) <= most else text[:most] + "..."


def _about(options: str) -> str:
    packages = environment()["packages"]
    return (
        f'`torch.compile(backend="symshape", dynamic=True, fullgraph=True)` against eager mode, torch '
        f"{packages['torch']}, on a CPU: values, dtypes, strides, shared memory, gradients, in place, `out=`. "
        f"Run again: `make conformance" + (f' CONFORMANCE="{options}"`.' if options else "`.")
    )


def _page(head: list[list[Any]], bad: list[tuple[str, ...]], total: dict[str, Any]) -> str:
    wrong, about = total["variants_with_wrong_values"], _about(total["options"])
    body = [
        "<h1>PyTorch's operator databases through symshape</h1>",
        f'<p class="{"bad" if wrong else "good"}">{html.escape(_sentence(total))}</p>',
        f"<p>{_code(about)}</p>",
        _html_table(head[0], head[1:]),
    ]
    if bad:
        body.append(f"<h2>What does not pass: {len(bad)} variants</h2>")
        body.append(
            _html_table(
                ["variant", "status", "why, and how to run it again", "aot_eager"],
                [
                    [one[0], one[1], f"{html.escape(_cut(one[2]))}<br><code>{html.escape(one[4])}</code>", one[3]]
                    for one in bad
                ],
                raw=2,
            )
        )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>symshape: conformance</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style>\n' + "\n".join(body) + "\n</html>\n"
    )


def _code(text: str) -> str:
    parts = html.escape(text).split("`")
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))


def _html_table(header: Sequence[Any], body: Sequence[Sequence[Any]], raw: int = -1) -> str:
    def cell(tag: str, value: Any, as_it_is: bool = False) -> str:
        number = isinstance(value, int) or str(value).endswith("%")
        text = str(value) if as_it_is else html.escape(str(value))
        return f"<{tag}{' class=n' if number else ''}>{text}</{tag}>"

    numeric = [bool(body) and (isinstance(value, int) or str(value).endswith("%")) for value in body[0]]
    top = "".join(f"<th{' class=n' if n else ''}>{html.escape(str(h))}</th>" for h, n in zip(header, numeric))
    lines = ["".join(cell("td", value, i == raw) for i, value in enumerate(row)) for row in body]
    return "<table><tr>" + top + "</tr>\n" + "\n".join(f"<tr>{line}</tr>" for line in lines) + "</table>"
