"""Writes docs/corpus.md. All its numbers come from ``corpus/results.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

# Why symshape loses questions, by kind of question.
_CAUSES: Final = {
    "linear": "the facts have products, of which the work that one question may cost does not suffice",
    "// or % by a number": "rests and quotients of several numbers at once: isl needs more operations than are allowed",
    "max or min": "many branches, one for each argument of each max and min",
    "product of sizes": "isl does not know products; the branches on the values of a factor have no end where it has no"
    " upper bound, and bounds of single terms do not suffice",
    "division by a size": "the quotient is a product in disguise: `q*b <= a`",
}
_BOUNDS: Final = "symshape, bounds only"
_HEAD: Final = """# What compilers ask about sizes

`corpus/` holds every question about sizes that compiling real models asked: of symshape's prover, and of PyTorch's
shape environment while the models were traced. Nothing is left out or chosen. Each question was then put to symshape,
to PyTorch's `ShapeEnv`, to isl alone and to z3. This page is made from `corpus/results.json` by `symshape corpus page`;
the format and the exact meaning of questions and answers are in [corpus/README.md](../corpus/README.md).
"""
_TIMES: Final = """Times are processor time of one question after a warm-up. Facts are told once for each set of them,
as a compile does; *cold* is telling the facts and asking the first question. *Building* (the median) comes before both:
the question in the solver's own form, made from a parsed text. *Solved*: the solver knows that the condition holds for
all sizes that the facts allow, or for none. *Sometimes*: it knows that it holds for some and not for others; `ShapeEnv`
and bounds alone never say that. *symshape, bounds only* is the prover's first engine, which answers most of what passes
ask. It looks at all facts; *symshape* lets it look at those nearest to the question where there are many.
"""
_SHOWN = 10  # facts of an example


def page(result: Mapping[str, Any]) -> str:
    """The page as Markdown, from the contents of a results file."""
    found: Mapping[str, Any] = result["summary"]
    counts = found["questions"]
    environment = result["environment"]
    parts = [
        _HEAD,
        _overview(found, counts, environment),
        _waiting(found["waiting"]),
        "## Who solves how many, and how fast\n",
        _solver_table(found),
        _TIMES,
        "![Questions solved within a time](corpus-time.png)\n",
        "![Share solved by kind of question](corpus-kinds.png)\n",
        _conclusions(found),
        "## What symshape does not solve\n",
        _losses(found["losses"], "A question that another solver knows to hold always or never."),
        _losses(found["undecided"], "A question that another solver knows to hold for some sizes only."),
        "## Where solvers contradict one another\n",
        _contradictions(found),
        "## The models\n",
        _models(result["rows"]),
        _AGAIN,
    ]
    return "\n".join(parts)


def _overview(found: Mapping[str, Any], counts: Mapping[str, Any], environment: Mapping[str, Any]) -> str:
    truth = counts["truth"]
    askers = ", ".join(f"{name} {number:,}" for name, number in sorted(counts["by asker"].items()))
    packages = ", ".join(f"{name} {version}" for name, version in environment["packages"].items() if version)
    return f"""| | |
|---|---|
| models, compiles | {counts["models"]}, {counts["compiles"]} |
| questions asked | {counts["asked"]:,} |
| distinct questions (facts and condition) | {counts["distinct"]:,} |
| sets of facts | {counts["sets of facts"]:,} |
| asked by | {askers} |
| always or never hold | {found["decided"]:,} |
| hold for some sizes only | {truth.get("sometimes", 0):,} |
| the facts allow no sizes | {truth.get("no sizes", 0):,} |
| nobody knows | {truth.get("unknown", 0):,} |
| measured | {environment["date"]}, {environment["processor"]}, {packages} |
"""


def _solver_table(found: Mapping[str, Any]) -> str:
    header = [
        "solver",
        "solved",
        "share",
        "only by it",
        "sometimes",
        "timeouts",
        "errors",
        "median",
        "95 %",
        "median where all solve",
        "building",
        "cold median",
        "cold 95 %",
    ]
    rows = [
        [
            row["name"],
            f"{row['solved']:,}",
            f"{100 * row['share']:.2f} %",
            "" if row["only by it"] is None else f"{row['only by it']:,}",
            f"{row['sometimes']:,}",
            f"{row['timeouts']:,}",
            f"{row['errors']:,}",
            *(
                _microseconds(row[key])
                for key in ("median", "95th", "median where all solve", "building median", "cold median", "cold 95th")
            ),
        ]
        for row in found["solvers"]
    ]
    return _table(header, rows)


def _conclusions(found: Mapping[str, Any]) -> str:
    """Which solver solves most and which is fastest, in sentences."""
    compared = [row for row in found["solvers"] if row["only by it"] is not None]
    most = max(compared, key=lambda row: row["solved"])
    lines = [f"Most are solved by {most['name']}: {most['solved']:,} of {found['decided']:,}."]
    timed = [row for row in compared if row["median where all solve"] is not None]
    if timed:
        fastest = min(timed, key=lambda row: row["median where all solve"])
        lines.append(
            f"{found['solved by all']:,} are solved by all four; of these {fastest['name']} has the smallest median,"
            f" {_microseconds(fastest['median where all solve'])}."
        )
    return "\n".join(lines) + "\n"


def _losses(rows: Sequence[Mapping[str, Any]], what: str) -> str:
    if not rows:
        return f"{what} There is none.\n"
    header = ["kind", "questions", "different conditions", "answered by", "cause"]
    body = [
        [
            row["kind"],
            f"{row['questions']:,}",
            f"{row['conditions']:,}",
            "; ".join(f"{name} {count:,}" for name, count in row["answered by"].items() if count),
            _cause(row),
        ]
        for row in rows
    ]
    examples = "\n".join(_example(row["kind"], row["example"]) for row in rows)
    return f"{what}\n\n{_table(header, body)}\nThe shortest of each:\n\n{examples}\n"


def _cause(row: Mapping[str, Any]) -> str:
    text = _CAUSES[row["kind"]]
    if by_bounds := row["answered by"][_BOUNDS]:
        text += f"; in {by_bounds:,} bounds suffice, of facts that are not among the nearest"
    return text + (f" ({row['timeouts']:,} timeouts)" if row["timeouts"] else "")


def _example(kind: str, example: Mapping[str, Any]) -> str:
    facts = f"`{'; '.join(example['facts'][:_SHOWN]) or 'nothing'}`"
    facts += f" and {len(example['facts']) - _SHOWN} more" if len(example["facts"]) > _SHOWN else ""
    answers = ", ".join(f"{name}: {answer}" for name, answer in example["answers"].items())
    return f"- {kind}, in {example['model']}: `{example['condition']}` where {facts} ({answers})"


def _contradictions(found: Mapping[str, Any]) -> str:
    lines = [_example("contradiction", one) for one in found["contradictions"]]
    lines += [_example("the compile was told otherwise", one) for one in found["wrong when compiled"]]
    return "\n".join(lines or ["Nowhere; and no answer that a compile was given is contradicted."]) + "\n"


def _models(rows: Sequence[Mapping[str, Any]]) -> str:
    keys = ("name", "class", "first shape", "graphs", "asked", "distinct", "sets of facts", "fallbacks")
    return _table(keys, [[f"{row[key]:,}" if isinstance(row[key], int) else row[key] for key in keys] for row in rows])


def _waiting(waiting: Mapping[str, int]) -> str:
    if not waiting:
        return "Each recorded model is in the figures.\n"
    named = ", ".join(f"{name} ({questions:,} questions)" for name, questions in waiting.items())
    return f"Recorded, not answered by all solvers yet, and in none of the figures: {named}.\n"


_AGAIN: Final = """## Again

```
symshape corpus record                  # resumes; --again from the start
symshape corpus solve                   # resumes
symshape corpus page                    # corpus/results.json, this page and the plots
symshape corpus smtlib t5-training FOLDER
```
"""


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def _microseconds(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{1e6 * seconds:,.0f} us" if seconds < 0.01 else f"{1e3 * seconds:,.0f} ms"
