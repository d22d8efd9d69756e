"""Random programs, and those that showed an error once, against eager mode. More of them: ``make fuzz N=1000``."""

from __future__ import annotations

import random
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from agreement import BACKENDS, Different, Finding, arguments, check, compare, outcome, reference
from grammar import Generator, generate
from regressions import REGRESSIONS
from source import Source
from vocabulary import FAMILIES

SIZES = ((5, 7), (8, 3))


def check_together(sources: Sequence[Source], backend: str) -> None:
    """One compile for all programs, which have the same sizes: a dozen small ones take as long as one large one."""
    functions = [source.load()["program"] for source in sources]

    def all_of_them(*arguments: list[Any]) -> list[Any]:
        return [function(*own) for function, own in zip(functions, arguments)]

    compiled = BACKENDS[backend](all_of_them)
    for n in range(len(SIZES)):
        theirs, ours = ([arguments(source, source.load(), n) for source in sources] for _ in range(2))
        results = compiled(*ours)
        for source, result, own, other, function in zip(sources, results, ours, theirs, functions):
            expected = outcome(function, other, False)
            wide = reference(source, n, expected)
            try:
                compare(n, {"result": result, "inputs": own}, expected, wide, own, other)
            except Different as error:
                layout = error.finding.kind == "layout"
                if not layout or check(source, backend, count_graphs=False) is not None:
                    raise AssertionError(f"{error}\n{source.text}") from error


def small(pick: random.Random, count: int) -> list[Source]:
    made = (generate(pick, (3, 7), most=2_000, given=SIZES) for _ in range(count))
    return [source.with_(gradient=False) for source in made]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("backend", "count", "seed"),
    [("triton", 4, 0), *(pytest.param("settings", 12, seed, marks=pytest.mark.long) for seed in range(9))],
)
def test_small_programs(backend: str, count: int, seed: int) -> None:
    if backend == "triton":
        pytest.importorskip("triton")
    torch._dynamo.reset()
    check_together(small(random.Random(seed), count), backend)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(2))
def test_gradients(seed: int) -> None:
    pick = random.Random(seed)
    source = next(s for s in iter(lambda: generate(pick, (8, 16), most=2_000, given=SIZES[:1]), None) if s.gradient)
    finding = check(source, "settings", count_graphs=False)
    assert finding is None or finding.whose == "pytorch", f"{finding}\n{source.text}"


@pytest.mark.long
@pytest.mark.parametrize("seed", range(40))
def test_whole_programs(seed: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source = generate(random.Random(seed))
    finding = check(source, "settings" if seed % 2 else "symshape")
    assert finding is None or finding.whose == "pytorch", f"{finding}\n{source.text}"


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", REGRESSIONS)
def test_regression(name: str) -> None:
    backend, text = REGRESSIONS[name]
    source = Source.parse(text)
    names = source.load()
    for n in range(len(source.sizes)):
        names["program"](*arguments(source, names, n))  # raises nothing
    assert check(source, backend, count_graphs=False) is None


@pytest.mark.long
def test_every_statement_is_used() -> None:
    """One that eager mode refuses, whatever its holes are filled with, would be in no program."""
    left = {template for family, _ in FAMILIES for templates in family.values() for template in templates}
    for seed in range(4000):
        generator = Generator(random.Random(seed), ((5, 7),), False, 20_000)
        for _ in range(100):
            generator.step()
        left -= generator.kept
        if not left:
            return
    raise AssertionError(f"never kept: {left}")


def test_texts_are_programs() -> None:
    """What is printed and saved is what ran."""
    source = generate(random.Random(3), (5, 10))
    assert Source.parse(Source.parse(source.text).text) == Source.parse(source.text)


def test_reference_has_the_same_inputs() -> None:
    text = """
SIZES = [(8, 17)]

def inputs(s, t):
    x0 = normal(s, t, dtype=torch.bfloat16)
    x1 = flags(s, t)
    x2 = integers(s, t)
    return [x0, x1, x2]

def program(x0, x1, x2):
    v0 = x0 + 0
    return (v0, x1, x2)
"""
    source = Source.parse(text)
    expected = outcome(source.load()["program"], arguments(source, source.load(), 0), False)
    wide = reference(source, 0, expected)
    assert wide["result"][0].dtype == torch.float64
    assert all(torch.equal(x.double(), y.double()) for x, y in zip(expected["result"], wide["result"]))


VIEW_AT_TWO_SIZES = """
SIZES = [(1, 3), (2, 3)]

def inputs(s, t):
    x0 = normal(s, t)
    return [x0]

def program(x0):
    v0 = x0.t()
    return (v0,)
"""


def copying(copied: Callable[[torch.Tensor], bool]) -> Callable[..., Any]:
    """A compiler whose functions return copies of what is a view, where ``copied`` says so."""

    def compiler(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: tuple(y.clone() if copied(x) else y for y in function(x))

    return compiler


def is_constant(x: torch.Tensor) -> bool:
    return bool(getattr(x, "_dynamo_static_indices", ()))


@pytest.mark.parametrize(
    ("copied", "at"),
    [
        (lambda x: x.shape[0] == 1 and not is_constant(x), None),
        (lambda x: x.shape[0] == 1, 0),
        (lambda x: not is_constant(x), 0),
        (lambda x: x.shape[0] == 2, 1),
    ],
    ids=["of one, unless it is a constant", "of one", "of both, unless it is a constant", "of two"],
)
def test_layouts_are_free_at_sizes_of_one_alone(
    copied: Callable[[torch.Tensor], bool], at: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy where eager mode has a view: allowed where a size is 1, if it is none with that size as a constant."""
    monkeypatch.setitem(BACKENDS, "copying", copying(copied))
    finding = check(Source.parse(VIEW_AT_TWO_SIZES), "copying", count_graphs=False)
    assert finding is None if at is None else isinstance(finding, Finding) and finding.kind == "layout"
    assert finding is None or (finding.at, finding.whose) == (at, "symshape")


@pytest.mark.long
def test_the_script_finds_its_modules() -> None:
    """Here pytest's settings find them."""
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import fuzz, agreement, shrink"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
