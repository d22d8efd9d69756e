"""Has each solver answer each recorded question, with a limit on processor time.

A solver answers a model's questions in a process of its own, one set of facts after another. If a question, or assuming
the facts, exceeds the limit, a timer signal kills the process and a new one continues with the next step. Times are
processor time, so that load on the machine affects them little.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import lzma
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from symshape.tools.corpus.condition_text import parsed
from symshape.tools.corpus.questions import SUFFIX, Corpus
from symshape.tools.corpus.solvers.solver import LETTERS, Answer, Solver

LIMIT_SECONDS: Final = 1.0
ANSWERS: Final = ".answers.json.xz"
# Name in tables: module and class. The second is the prover's first engine alone, which most passes ask, on all facts.
SOLVERS: Final[dict[str, tuple[str, str]]] = {
    "symshape": ("symshape_store", "SymshapeStore"),
    "symshape, bounds only": ("symshape_store", "SymshapeBounds"),
    "ShapeEnv": ("shape_env_solver", "TorchShapeEnv"),
    "isl": ("isl_alone", "IslAlone"),
    "z3": ("z3_solver", "Z3"),
}
_LETTER_OF: Final[dict[str, Answer]] = {letter: answer for answer, letter in LETTERS.items()}


def make_solver(name: str) -> Solver:
    """A new solver, by its name in ``SOLVERS``."""
    module, kind = SOLVERS[name]
    made: Solver = getattr(importlib.import_module(f"symshape.tools.corpus.solvers.{module}"), kind)()
    return made


@dataclass
class Answers:
    """One solver's answers to the questions of one model. All times are seconds of processor time.

    ``answers``, ``seconds`` and ``building`` are by position of the question: its answer, the time to ask it after the
    facts were assumed, and the time to build the solver's own form of it from a parsed text. ``facts`` has the time to
    assume each set of facts, by its index.
    """

    answers: dict[int, Answer] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)
    building: dict[int, float] = field(default_factory=dict)
    facts: dict[int, float] = field(default_factory=dict)


# A step of a solver: "facts" (with the index of a set) to assume them, or "question" (with its position).
_Step = tuple[str, int]


def load_solvers() -> None:
    """Imports all solvers, so that the forked processes that run them start warm."""
    for name in SOLVERS:
        _warm_up(make_solver(name))


def solve(corpus: Corpus, name: str, limit: float = LIMIT_SECONDS) -> Answers:
    """A solver's answers to all questions of a corpus."""
    found = Answers()
    steps: list[_Step] = []
    for facts, positions in corpus.by_facts():
        steps += [("facts", facts), *(("question", position) for position in positions)]
    done = 0
    while done < len(steps):
        for kind, number, answer, seconds, building in _run(corpus, name, steps, done, limit):
            done += 1
            if kind == "facts":
                found.facts[number] = seconds
            else:
                found.answers[number], found.seconds[number], found.building[number] = answer, seconds, building
        if done < len(steps):  # the process was killed at the time limit
            done = _past_the_limit(corpus, steps, done, limit, found)
    return found


def _past_the_limit(corpus: Corpus, steps: Sequence[_Step], done: int, limit: float, found: Answers) -> int:
    """Records a timeout for the step that exceeded the limit and returns the next step. If that step assumed facts, all
    their questions time out."""
    kind, number = steps[done]
    if kind == "question":
        found.answers[number], found.seconds[number], found.building[number] = "timeout", limit, 0.0
        return done + 1
    found.facts[number] = limit
    done += 1
    while done < len(steps) and steps[done][0] == "question":
        number = steps[done][1]
        found.answers[number], found.seconds[number], found.building[number] = "timeout", limit, 0.0
        done += 1
    return done


def _run(
    corpus: Corpus, name: str, steps: Sequence[_Step], first: int, limit: float
) -> Iterator[tuple[str, int, Answer, float, float]]:
    """Results of the steps from ``first`` on, as a forked process computes them, until it ends. RuntimeError if it ends
    for another reason than the timer."""
    context = get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(corpus, name, steps, first, limit, sender), daemon=True)
    process.start()
    sender.close()
    try:
        while True:
            yield receiver.recv()
    except EOFError:
        process.join()
    if process.exitcode not in (0, -signal.SIGPROF):
        raise RuntimeError(f"{name} ended with {process.exitcode} at {steps[first:][:1]} of {corpus.name}")


def _work(corpus: Corpus, name: str, steps: Sequence[_Step], first: int, limit: float, sender: Connection) -> None:
    """The process of `_run`: sends (kind, number, answer, seconds, seconds of building) for each step."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # the default action terminates the process
    solver = make_solver(name)
    _warm_up(solver)
    told, failed, prepared = -1, None, dict[int, tuple[Any, float]]()
    for position in range(first, len(steps)):
        kind, number = steps[position]
        facts = number if kind == "facts" else corpus.questions[number].facts
        if facts != told:  # a process that takes over after a timeout has to assume them again
            ready, prepared = _prepare(corpus, solver, facts, steps, position)
            failed, seconds = _timed(solver.tell, ready, limit)
            told = facts
            if kind == "facts":
                sender.send((kind, number, "unknown", seconds, 0.0))
                continue
        question, building = prepared[number]
        answer, seconds = _timed(solver.ask, question, limit) if failed is None else (failed, 0.0)
        sender.send((kind, number, answer, seconds, building))


def _prepare(
    corpus: Corpus, solver: Solver, facts: int, steps: Sequence[_Step], position: int
) -> tuple[Any, dict[int, tuple[Any, float]]]:
    """A set of facts and their remaining questions in the solver's own form, the latter with the seconds this took."""
    ready = solver.prepare_facts([corpus.conditions[number] for number in corpus.facts[facts]])
    prepared = {}
    for kind, number in steps[position:]:
        if kind == "question":
            if corpus.questions[number].facts != facts:
                break
            text = corpus.text(corpus.questions[number])
            parsed(text)  # fills the parser's cache, so that parsing is not timed
            start = time.thread_time()
            prepared[number] = solver.prepare(text), time.thread_time() - start
        elif number != facts:
            break
    return ready, prepared


def _timed(run: Any, argument: Any, limit: float) -> tuple[Any, float]:
    """The result of ``run`` and its seconds of processor time; "error" if it raises. The timer kills the process after
    ``limit`` seconds."""
    signal.setitimer(signal.ITIMER_PROF, limit)
    start = time.thread_time()  # while a timer runs, the process clock advances in coarse ticks
    try:
        found = run(argument)
    except Exception:  # counted, and shown on the page
        found = "error"
    seconds = time.thread_time() - start
    signal.setitimer(signal.ITIMER_PROF, 0)
    return found, seconds


def _warm_up(solver: Solver) -> None:
    """Asks a few questions, so that lazy imports and tables of a solver are not timed."""
    for facts, condition in (
        (["s0 >= 2", "s1 >= 0", "s0 % 8 == 0"], "s0 % 4 == 0"),
        (["s0 >= 2", "s1 >= 3"], "s0*s1 >= 6"),
        (["s0 >= 2", "s0 <= 9"], "max(s0, 7)//s0 == 3"),
    ):
        ready, question = solver.prepare_facts(facts), solver.prepare(condition)
        solver.tell(ready)
        solver.ask(question)


# Files: one per model, with a digest of the questions answered.


def write_answers(questions: Path, found: Mapping[str, Answers]) -> None:
    """Writes answers as one letter per question, and times in microseconds. The file is replaced atomically."""
    solvers = {
        name: {
            "answers": "".join(LETTERS[one.answers[i]] for i in range(len(one.answers))),
            "microseconds": [round(1e6 * one.seconds[i]) for i in range(len(one.seconds))],
            "building": [round(1e6 * one.building[i]) for i in range(len(one.building))],
            "facts": {str(number): round(1e6 * seconds) for number, seconds in one.facts.items()},
        }
        for name, one in found.items()
    }
    data = {"questions": _digest(questions), "solvers": solvers}
    file = answers_file(questions)
    draft = file.with_name(f"{file.name}.part")
    draft.write_bytes(lzma.compress(json.dumps(data, separators=(",", ":")).encode()))
    draft.replace(file)


def read_answers(questions: Path) -> dict[str, Answers]:
    """The answers by solver; empty if they belong to an earlier version of the questions."""
    file = answers_file(questions)
    data = json.loads(lzma.decompress(file.read_bytes())) if file.exists() else {}
    if data.get("questions") != _digest(questions):
        return {}
    return {
        name: Answers(
            {i: _LETTER_OF[letter] for i, letter in enumerate(one["answers"])},
            {i: microseconds / 1e6 for i, microseconds in enumerate(one["microseconds"])},
            {i: microseconds / 1e6 for i, microseconds in enumerate(one["building"])},
            {int(number): microseconds / 1e6 for number, microseconds in one["facts"].items()},
        )
        for name, one in data["solvers"].items()
    }


def answers_file(questions: Path) -> Path:
    """The path of the answers to a file of questions."""
    return questions.with_name(questions.name.removesuffix(SUFFIX) + ANSWERS)


def _digest(questions: Path) -> str:
    return hashlib.sha256(questions.read_bytes()).hexdigest()
