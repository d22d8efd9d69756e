"""Recorded questions and their files: one file per model, JSON lines compressed with xz.

The first line describes the recording. Each other line is a condition, a set of facts (indices of conditions), or a
question (the index of its facts and of its condition). See ``corpus/README.md``.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from symshape.errors import OptionError

FORMAT: Final = 1
SUFFIX: Final = ".jsonl.xz"


@dataclass(frozen=True)
class Question:
    """One question: does a condition follow from a set of facts? Both are indices into the tables of a corpus.

    ``asked``   number of times each caller asked: "facts" (the prover's first engine: bounds and divisibility),
                "simplify" (that engine, while it simplifies or bounds an expression), "store" (the whole prover),
                "minimise" (whether the other conditions of a list imply this one),
                "trace" (PyTorch's shape environment)
    ``answer``  the answer during compilation: "proven", "refuted", "contingent" or "unknown"; None if there was no
                answer to this question alone (a guard was made, or a list was shortened)
    """

    facts: int
    condition: int
    asked: Mapping[str, int]
    answer: str | None = None


@dataclass(frozen=True)
class Corpus:
    """All questions asked while one model was compiled. ``about``: model, mode, versions, shapes, counts."""

    about: Mapping[str, Any]
    conditions: Sequence[str] = ()
    facts: Sequence[tuple[int, ...]] = ()
    questions: Sequence[Question] = field(default=())

    @property
    def name(self) -> str:
        """The model and its mode, for example bert-forward."""
        return f"{self.about['model']}-{self.about['mode']}"

    def facts_of(self, question: Question) -> list[str]:
        """The facts of a question, as text."""
        return [self.conditions[number] for number in self.facts[question.facts]]

    def text(self, question: Question) -> str:
        """The condition of a question, as text."""
        return self.conditions[question.condition]

    def by_facts(self) -> Iterator[tuple[int, list[int]]]:
        """Pairs of a set of facts (its index) and the positions of its questions."""
        found: dict[int, list[int]] = {}
        for position, question in enumerate(self.questions):
            found.setdefault(question.facts, []).append(position)
        yield from found.items()


def write_corpus(corpus: Corpus, folder: Path) -> Path:
    """Writes a corpus and returns its file. The file is replaced atomically."""
    lines: list[Any] = [{"format": FORMAT, **corpus.about}]
    lines += [{"condition": text} for text in corpus.conditions]
    lines += [{"facts": list(numbers)} for numbers in corpus.facts]
    lines += [
        {"question": q.condition, "facts": q.facts, "asked": q.asked, "answer": q.answer} for q in corpus.questions
    ]
    data = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines).encode()
    file = folder / f"{corpus.name}{SUFFIX}"
    draft = file.with_name(f"{file.name}.part")
    draft.write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))
    draft.replace(file)
    return file


def read_corpus(file: Path) -> Corpus:
    """Reads a corpus. OptionError if the file is not a corpus, or has another format."""
    try:
        lines = [json.loads(line) for line in lzma.decompress(file.read_bytes()).decode().splitlines()]
        about = lines[0]
    except (OSError, ValueError, lzma.LZMAError, IndexError) as error:
        raise OptionError(f"{file} holds no questions: {error}", next_step="symshape corpus record makes it") from error
    if about.pop("format", None) != FORMAT:
        raise OptionError(
            f"{file} is of another format than {FORMAT}", next_step="symshape corpus record makes it anew"
        )
    return Corpus(
        about,
        tuple(line["condition"] for line in lines[1:] if "condition" in line),
        tuple(tuple(line["facts"]) for line in lines[1:] if "facts" in line and "question" not in line),
        tuple(Question(q["facts"], q["question"], q["asked"], q["answer"]) for q in lines[1:] if "question" in q),
    )


def corpus_files(folder: Path) -> list[Path]:
    """The corpus files in a folder, sorted by name."""
    return sorted(folder.glob(f"*{SUFFIX}"))
