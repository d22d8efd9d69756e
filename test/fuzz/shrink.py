"""Makes a failing program small: whatever can be left out, and it still fails in the same way, is left out."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator

import torch
from source import Source

Fails = Callable[[Source], bool]


def runs(source: Source) -> bool:
    """Whether eager mode runs it at every size."""
    try:
        names = source.load()
        for n, size in enumerate(source.sizes):
            torch.manual_seed(n)
            made = names["inputs"](*size)
            if source.gradient:
                made = [x.requires_grad_() if x.is_floating_point() else x for x in made]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                names["program"](*made)
    except Exception:  # noqa: BLE001 (any error means no)
        return False
    return True


def shrink(source: Source, fails: Fails, rounds: int = 4) -> Source:
    """``fails`` says whether a program still shows what is looked for; it is asked of programs that eager mode runs."""
    for _ in range(rounds):
        before = source
        for change in (_sizes, _gradient, _results, _blocks, _inline, _inputs):
            source = _greedy(source, change, fails)
        if source == before:
            break
    return source


def _greedy(source: Source, change: Callable[[Source], Iterator[Source]], fails: Fails) -> Source:
    while True:
        for smaller in change(source):
            smaller = without_dead(smaller)
            if smaller.results and runs(smaller) and fails(smaller):
                source = smaller
                break
        else:
            return source


def without_dead(source: Source) -> Source:
    """Without statements whose name nothing reads; what writes to a tensor is kept."""
    body = list(source.body)
    for i in reversed(range(len(body))):
        name = re.match(r"(v\d+) = ", body[i])
        rest = " ".join([*body[i + 1 :], *source.results])
        if name and not re.search(rf"\b{name[1]}\b", rest):
            del body[i]
    return source.with_(body=tuple(body))


def _results(source: Source) -> Iterator[Source]:
    count = len(source.results)
    if count > 3:
        yield source.with_(results=source.results[: count // 2])
        yield source.with_(results=source.results[count // 2 :])
    if count > 1:
        for i in range(count):
            yield source.with_(results=source.results[:i] + source.results[i + 1 :])
    elif source.body:  # an earlier value instead
        for i, statement in enumerate(source.body):
            name = re.match(r"(v\d+) = ", statement)
            if name and (name[1],) != source.results:
                yield source.with_(body=source.body[: i + 1], results=(name[1],))


def _blocks(source: Source) -> Iterator[Source]:
    """Without some statements; a name that is missing is then replaced by what its statement read."""
    count, size = len(source.body), max(len(source.body) // 2, 1)
    while size:
        for first in range(0, count, size):
            yield source.with_(body=source.body[:first] + source.body[first + size :])
        size //= 2
    for i, statement in enumerate(source.body):
        name = re.match(r"(v\d+) = ", statement)
        for read in dict.fromkeys(re.findall(r"\b[vx]\d+\b", statement)[1:] if name else ()):

            def renamed(text: str) -> str:
                return re.sub(rf"\b{name[1]}\b", read, text)  # noqa: B023 (called at once)

            rest = tuple(renamed(text) for text in source.body[i + 1 :])
            yield source.with_(body=source.body[:i] + rest, results=tuple(dict.fromkeys(map(renamed, source.results))))


def _sizes(source: Source) -> Iterator[Source]:
    if len(source.sizes) > 1:
        for pair in source.sizes:
            yield source.with_(sizes=(pair,))
        for i in range(len(source.sizes)):
            yield source.with_(sizes=source.sizes[:i] + source.sizes[i + 1 :])
    for i, pair in enumerate(source.sizes):
        for smaller in ((2, 3), (3, 2), (min(pair[0], 4), pair[1]), (pair[0], min(pair[1], 5))):
            if sum(smaller) < sum(pair) and smaller not in source.sizes:
                yield source.with_(sizes=(*source.sizes[:i], smaller, *source.sizes[i + 1 :]))


def _gradient(source: Source) -> Iterator[Source]:
    if source.gradient:
        yield source.with_(gradient=False)


def _inline(source: Source) -> Iterator[Source]:
    """Simpler expressions: a call's operand alone."""
    for i, statement in enumerate(source.body):
        match = re.fullmatch(r"(v\d+) = (.*)", statement)
        if not match:
            continue
        for simpler in (f"{match[1]} = {read}" for read in dict.fromkeys(re.findall(r"\b[vx]\d+\b", match[2]))):
            for copied in (simpler, f"{simpler}.clone()"):
                if len(copied) < len(statement) and copied != statement:
                    yield source.with_(body=(*source.body[:i], copied, *source.body[i + 1 :]))


def _inputs(source: Source) -> Iterator[Source]:
    text = " ".join([*source.body, *source.results, *source.inputs])
    last = len(source.inputs) - 1
    for i in range(last + 1):
        if last and not re.search(rf"\bx{i}\b", text):
            yield _without_input(source, i)
    for i, value in enumerate(source.inputs):
        for simpler in ("normal(s, t)", "normal(s)", "normal(3)", "normal()"):
            if len(simpler) < len(value) and simpler != value:
                yield source.with_(inputs=(*source.inputs[:i], simpler, *source.inputs[i + 1 :]))


def _without_input(source: Source, gone: int) -> Source:
    """The inputs after it move up."""

    def renamed(text: str) -> str:
        return re.sub(r"\bx(\d+)\b", lambda match: f"x{int(match[1]) - (int(match[1]) > gone)}", text)

    kept = source.inputs[:gone] + source.inputs[gone + 1 :]
    inputs, body, results = (tuple(map(renamed, texts)) for texts in (kept, source.body, source.results))
    return source.with_(inputs=inputs, body=body, results=results)
