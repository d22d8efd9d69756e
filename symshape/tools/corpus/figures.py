"""Aggregates the answers of all solvers into the figures of ``corpus/results.json``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from symshape.errors import OptionError
from symshape.tools.corpus.condition_text import divisors, functions_in, has_products
from symshape.tools.corpus.questions import Corpus, Question, corpus_files, read_corpus
from symshape.tools.corpus.solve import SOLVERS, Answers, read_answers
from symshape.tools.corpus.solvers.solver import DECIDED, Answer
from symshape.tools.measure import quantile

# Solvers that are compared. "symshape, bounds only" is not among them: it is a part of the first one.
COMPARED: Final = ("symshape", "ShapeEnv", "isl", "z3")
KINDS: Final = ("linear", "// or % by a number", "max or min", "product of sizes", "division by a size")
_QUANTILES: Final = 100
_CLAIMS: Final = ("always", "never", "sometimes", "no sizes")


@dataclass(frozen=True)
class Case:
    """One question with the answers of all solvers by name, their times in seconds, and the ``truth``: the answer that
    the solvers which decided it agree on."""

    corpus: Corpus
    question: Question
    answers: Mapping[str, Answer]
    seconds: Mapping[str, float]
    building: Mapping[str, float]
    truth: Answer

    @property
    def kind(self) -> str:
        """The hardest construct in the question, one of ``KINDS``."""
        return kind_of(self.corpus.text(self.question))

    def is_solved_by(self, solver: str) -> bool:
        """Whether the solver proved that the condition always holds, or never."""
        return self.answers[solver] in DECIDED

    def shown(self) -> dict[str, Any]:
        """The case as plain data, for an example on the page."""
        return {
            "model": self.corpus.name,
            "condition": self.corpus.text(self.question),
            "facts": self.corpus.facts_of(self.question),
            "answers": dict(self.answers),
        }


def kind_of(text: str) -> str:
    """The hardest construct in a condition, one of ``KINDS``."""
    functions = functions_in(text)
    found = {
        "division by a size": bool(divisors(text)),
        "product of sizes": has_products(text),
        "max or min": bool(functions & {"max", "min"}),
        "// or % by a number": bool(functions),
    }
    return next((kind for kind, is_so in found.items() if is_so), "linear")


def truth_of(answers: Iterable[Answer]) -> tuple[Answer, bool]:
    """The answer on which all solvers that decided a question agree, and whether they contradict one another.

    If a solver finds that the facts admit no sizes, both "always" and "never" are correct.
    """
    claims = {answer for answer in answers if answer in _CLAIMS}
    if "no sizes" in claims:
        return "no sizes", "sometimes" in claims
    if len(claims) > 1:
        return "unknown", True
    return next(iter(claims), "unknown"), False


def cases(corpus: Corpus, answers: Mapping[str, Answers]) -> Iterator[Case]:
    """The questions of one model, each with the answers of all solvers."""
    for position, question in enumerate(corpus.questions):
        given = {name: one.answers[position] for name, one in answers.items()}
        seconds = {name: one.seconds[position] for name, one in answers.items()}
        building = {name: one.building[position] for name, one in answers.items()}
        yield Case(corpus, question, given, seconds, building, truth_of(given.values())[0])


@dataclass(frozen=True)
class Solved:
    """All solved models and questions. ``cold`` has, per solver, the seconds to assume each set of facts and answer its
    first question. ``waiting`` are recorded models that not all solvers have answered yet."""

    corpora: Sequence[Corpus]
    cases: Sequence[Case]
    cold: Mapping[str, Sequence[float]]
    waiting: Sequence[Corpus]


def read_solved(folder: Path) -> Solved:
    """Reads all questions and answers in a folder."""
    corpora, waiting, found = list[Corpus](), list[Corpus](), list[Case]()
    cold: dict[str, list[float]] = {name: [] for name in SOLVERS}
    for file in corpus_files(folder):
        corpus, answers = read_corpus(file), read_answers(file)
        if set(answers) != set(SOLVERS):
            waiting.append(corpus)
            continue
        corpora.append(corpus)
        found += cases(corpus, answers)
        for facts, positions in corpus.by_facts():
            for name, one in answers.items():
                cold[name].append(one.facts[facts] + one.seconds[positions[0]])
    return Solved(corpora, found, cold, waiting)


def figures(folder: Path) -> dict[str, Any]:
    """The figures of all questions in a folder, as plain data. OptionError if the folder has no answers."""
    solved = read_solved(folder)
    corpora, all_cases, cold = solved.corpora, solved.cases, solved.cold
    if not all_cases:
        raise OptionError(f"{folder} holds no answers", next_step="symshape corpus record, then solve")
    decided = [case for case in all_cases if case.truth in DECIDED]
    by_all = [case for case in decided if all(map(case.is_solved_by, COMPARED))]
    rows = [_solver_row(name, all_cases, decided, by_all, cold[name]) for name in SOLVERS]
    return {
        "models": [_model_row(corpus) for corpus in corpora],
        "waiting": {corpus.name: len(corpus.questions) for corpus in solved.waiting},
        "questions": _counts(corpora, all_cases),
        "decided": len(decided),
        "solved by all": len(by_all),
        "solvers": rows,
        "kinds": [_kind_row(kind, [case for case in decided if case.kind == kind]) for kind in KINDS],
        "losses": _losses(decided, lambda case: case.is_solved_by("symshape")),
        "undecided": _losses(
            [case for case in all_cases if case.truth == "sometimes"],
            lambda case: case.answers["symshape"] == "sometimes",
        ),
        "contradictions": [case.shown() for case in all_cases if truth_of(case.answers.values())[1]],
        "wrong when compiled": [case.shown() for case in all_cases if _was_wrong(case)],
    }


def _counts(corpora: Sequence[Corpus], all_cases: Sequence[Case]) -> dict[str, Any]:
    askers: Counter[str] = Counter()
    for case in all_cases:
        askers.update(case.question.asked)
    return {
        "asked": sum(askers.values()),
        "distinct": len(all_cases),
        "sets of facts": sum(len({q.facts for q in corpus.questions}) for corpus in corpora),
        "models": len({corpus.about["model"] for corpus in corpora}),
        "compiles": len(corpora),
        "by asker": dict(askers),
        "truth": dict(Counter(case.truth for case in all_cases)),
        "kinds": dict(Counter(case.kind for case in all_cases)),
    }


def _model_row(corpus: Corpus) -> dict[str, Any]:
    about = corpus.about
    shape = " ".join(f"{axis}={size}" for axis, size in about["first shape"].items())
    counts = about["counts"]
    return {
        "name": corpus.name,
        "class": about["class"],
        "first shape": shape,
        "asked": counts["raw"],
        "distinct": counts["distinct"],
        "sets of facts": len({question.facts for question in corpus.questions}),
        "graphs": about["graphs"],
        "fallbacks": len(about["fallbacks"]),
    }


def _solver_row(
    name: str, all_cases: Sequence[Case], decided: Sequence[Case], by_all: Sequence[Case], cold: Sequence[float]
) -> dict[str, Any]:
    solved = [case for case in decided if case.is_solved_by(name)]
    others = [other for other in COMPARED if other != name]
    contingent = [case for case in all_cases if case.truth == "sometimes"]
    times = sorted(case.seconds[name] for case in all_cases)
    return {
        "name": name,
        "solved": len(solved),
        "share": len(solved) / max(len(decided), 1),
        "only by it": sum(not any(map(case.is_solved_by, others)) for case in solved) if name in COMPARED else None,
        "sometimes": sum(case.answers[name] == "sometimes" for case in contingent),
        "timeouts": sum(case.answers[name] == "timeout" for case in all_cases),
        "errors": sum(case.answers[name] == "error" for case in all_cases),
        "median": quantile(times, 0.5),
        "95th": quantile(times, 0.95),
        "median where all solve": quantile(sorted(case.seconds[name] for case in by_all), 0.5),
        "95th where all solve": quantile(sorted(case.seconds[name] for case in by_all), 0.95),
        "building median": quantile(sorted(case.building[name] for case in all_cases), 0.5),
        "cold median": quantile(sorted(cold), 0.5),
        "cold 95th": quantile(sorted(cold), 0.95),
        "seconds": sum(times),
        "answers": dict(Counter(case.answers[name] for case in all_cases)),
        "quantiles of solved": [
            quantile(sorted(case.seconds[name] for case in solved), i / _QUANTILES) for i in range(_QUANTILES + 1)
        ],
    }


def _kind_row(kind: str, chosen: Sequence[Case]) -> dict[str, Any]:
    return {
        "kind": kind,
        "decided": len(chosen),
        "solved": {name: sum(case.is_solved_by(name) for case in chosen) for name in SOLVERS},
    }


def _losses(chosen: Sequence[Case], is_won: Any) -> list[dict[str, Any]]:
    """Questions that symshape does not answer but another solver does, by kind, each with its shortest example."""
    lost = [case for case in chosen if not is_won(case)]
    found = []
    for kind in KINDS:
        of_kind = [case for case in lost if case.kind == kind]
        if not of_kind:
            continue
        example = min(
            of_kind,
            key=lambda case: len("".join([case.corpus.text(case.question), *case.corpus.facts_of(case.question)])),
        )
        answered = {
            name: sum(case.answers[name] == case.truth for case in of_kind) for name in SOLVERS if name != "symshape"
        }
        found.append(
            {
                "kind": kind,
                "questions": len(of_kind),
                "conditions": len({case.corpus.text(case.question) for case in of_kind}),
                "timeouts": sum(case.answers["symshape"] == "timeout" for case in of_kind),
                "answered by": answered,
                "example": example.shown(),
            }
        )
    return found


def _was_wrong(case: Case) -> bool:
    """Whether the answer given during compilation contradicts the solvers."""
    recorded = {"proven": "always", "refuted": "never", "contingent": "sometimes"}.get(case.question.answer or "")
    if recorded is None or case.truth in ("unknown", "no sizes"):
        return False
    return recorded != case.truth
