"""Random programs: statements are drawn, tried in eager mode at every size, and kept where all sizes allow them."""

from __future__ import annotations

import random
import re
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from source import HALVES, Source
from vocabulary import (
    APPROXIMATE,
    FAMILIES,
    INPUTS,
    MOVES,
    MUTATIONS,
    NUMBERS,
    ROUNDS,
    SIZE_COMPARISONS,
    SIZE_EXPRESSIONS,
    Family,
)

HOLE = re.compile(r"\{([a-z])(\d?)\}")
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32)
POSITIVE = (1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 33, 64, 67, 97, 128, 131, 211, 256, 257)


@dataclass(frozen=True)
class Value:
    """A name's tensor at the first size, and whether every way to compute it gives the same numbers."""

    tensor: torch.Tensor
    exact: bool

    def fits(self, hole: str) -> bool:
        dtype = self.tensor.dtype
        floating, flag = dtype.is_floating_point, dtype == torch.bool
        return {
            "a": True,
            "m": not flag,
            "f": floating,
            "i": not floating and not flag,
            "l": dtype == torch.int64,
            "b": flag,
            "e": self.exact and not flag,
            "x": self.exact,
            "y": self.exact and floating,
        }[hole]


class Unfit(Exception):
    """A statement that is not defined, or not usable, at one of the sizes."""


# What eager mode raises where a statement is not defined (and, while programs are made, where it warns).
UNDEFINED = (Unfit, RuntimeError, LookupError, ValueError, TypeError, AttributeError, ArithmeticError, Warning)


class Generator:
    """``most``: elements that a value may have. ``pick`` draws, of ``families`` by their weights."""

    def __init__(
        self,
        pick: random.Random,
        sizes: tuple[tuple[int, int], ...],
        gradient: bool,
        most: int,
        families: tuple[tuple[Family, int], ...] = FAMILIES,
    ) -> None:
        self.pick, self.most, self.families, self.tries = pick, most, families, 0
        inputs = tuple(pick.choice(INPUTS) for _ in range(pick.randint(2, 5)))
        if pick.random() < 0.08:
            inputs += (pick.choice(("x0[...]", "x0", "x0.reshape(-1)[:2]", "x0.unsqueeze(-1)")),)  # of one storage
        self.source = Source(inputs, (), (), sizes, gradient)
        self.values: dict[str, Value] = {}
        self.used: set[str] = set()
        self.kept: set[str] = set()  # templates
        self.restart()
        for name, tensor in self.worlds[0].items():
            self.values[name] = Value(tensor, True)

    def restart(self) -> None:
        """Runs all statements again, at every size."""
        loaded = self.source.with_(body=(), results=("x0",)).load()
        self.worlds: list[dict[str, Any]] = []
        for n, size in enumerate(self.source.sizes):
            torch.manual_seed(n)
            made = loaded["inputs"](*size)
            if self.source.gradient:
                made = [x.requires_grad_() if x.is_floating_point() else x for x in made]
            self.worlds.append({f"x{i}": x for i, x in enumerate(made)})
        self.names = loaded
        for statement in self.source.body:
            self.run(statement)

    def run(self, statement: str) -> None:
        code = compile(statement, "<statement>", "exec")
        for world in self.worlds:
            exec(code, self.names, world)

    def fill(self, template: str) -> str:
        """Unfit if no value is of the kind that a hole wants."""
        chosen: dict[str, str] = {}

        def hole(match: re.Match[str]) -> str:
            kind, number = match.groups()
            if kind in "amfilbexy":
                if not number:
                    return self.value(kind)
                return chosen.setdefault(number, self.value(kind))
            return self.constant(kind, chosen.get(number, ""))

        return HOLE.sub(hole, template)

    def value(self, kind: str) -> str:
        names = [name for name, value in self.values.items() if value.fits(kind)]
        if not names:
            raise Unfit
        fresh = [name for name in names if name not in self.used]
        recent = names[-8:] if self.pick.random() < 0.5 else names
        name = self.pick.choice(fresh if fresh and self.pick.random() < 0.5 else recent)
        self.reads.add(name)
        return name

    def constant(self, kind: str, first: str) -> str:
        pick = self.pick
        if kind == "k":
            return str(pick.randint(-3, 5))
        if kind == "p":
            return str(pick.randint(1, 4))
        if kind == "c":
            return str(pick.choice((-2.5, -1.0, -0.5, 0.0, 0.25, 0.5, 1.5, 2.0, 3.0)))
        if kind == "d":
            rank = self.values[first].tensor.dim()
            if not rank:
                raise Unfit
            return str(pick.randint(-rank, rank - 1))
        if kind == "t":
            return str(pick.choice([t for t in DTYPES if t != self.values[first].tensor.dtype]))
        if kind == "v":
            return self.result
        if kind == "s":
            name = self.value("a")
            rank = self.values[name].tensor.dim()
            return f"{name}.shape[{pick.randrange(rank)}]" if rank and pick.random() < 0.95 else f"{name}.numel()"
        table = {"n": SIZE_EXPRESSIONS, "q": SIZE_COMPARISONS}[kind]
        text = HOLE.sub(lambda match: self.constant(match[1], ""), pick.choice(table))
        return text if kind == "q" or " " not in text else f"({text})"

    def step(self) -> bool:
        """Draws one statement; whether it was kept."""
        self.tries += 1
        family = self.pick.choices([f for f, _ in self.families], [weight for _, weight in self.families])[0]
        templates = [(text, rule) for rule, texts in family.items() for text in texts]
        template, rule = self.pick.choice(templates)
        self.reads: set[str] = set()
        self.result = f"v{len(self.source.body)}"
        try:
            statement = self.fill(template)
        except Unfit:
            return False
        if family is not MUTATIONS and family is not NUMBERS:
            statement = f"{self.result} = {statement}"
        exact = rule != APPROXIMATE and all(self.values[name].exact for name in self.reads)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                self.run(statement)
            self.check(family is MUTATIONS)
        except UNDEFINED:
            if family is MUTATIONS:
                self.restart()
            for world in self.worlds:
                world.pop(self.result, None)
            return False
        self.source = self.source.with_(body=(*self.source.body, statement))
        self.used |= self.reads
        self.kept.add(template)
        self.keep(rule, exact, family is MUTATIONS)
        return True

    def check(self, mutation: bool) -> None:
        """Unfit where a value has become too large, in number of elements or in its numbers."""
        for world in self.worlds:
            names = world if mutation else [self.result]
            for name in names:
                value = world.get(name)
                if not isinstance(value, torch.Tensor):
                    if name == self.result:
                        raise Unfit
                    continue
                if value.numel() > self.most:
                    raise Unfit
                if value.is_complex() or value.dim() > 5:
                    raise Unfit
                if value.numel() and value.dtype != torch.bool:
                    wide = value.detach().double().abs().max().item()
                    if not wide <= (500.0 if value.dtype in HALVES else 1e4 if value.is_floating_point() else 2.0**40):
                        raise Unfit

    def keep(self, rule: str, exact: bool, mutation: bool) -> None:
        world = self.worlds[0]
        if not mutation:
            tensor = world[self.result]
            numbers = not tensor.is_floating_point()
            exact = numbers or (exact and (rule == MOVES or rule == ROUNDS and tensor.dtype not in HALVES))
            self.values[self.result] = Value(tensor, exact)
            return
        target = self.source.body[-1].split("[")[0].split(".")[0].split(" ")[0]
        storage = world[target].untyped_storage().data_ptr()
        for name, value in list(self.values.items()):
            tensor = world[name]
            if tensor.untyped_storage().data_ptr() == storage and tensor.is_floating_point():
                same = exact and (rule == MOVES or rule == ROUNDS and tensor.dtype not in HALVES)
                self.values[name] = Value(tensor, value.exact and same)
            else:
                self.values[name] = Value(tensor, value.exact)

    def finish(self) -> Source:
        """Returns what nothing else reads, and two others."""
        names = [name for name in self.values if name not in self.used and name.startswith("v")][-7:]
        others = [name for name in self.values if name not in names]
        names += self.pick.sample(others, min(len(others), 2))
        found = self.source.with_(results=tuple(dict.fromkeys(names)))
        return found if not found.gradient or differentiable(found) else found.with_(gradient=False)


def differentiable(source: Source) -> bool:
    """Whether eager mode can compute gradients of it, at every size."""
    names = source.load()
    for n, size in enumerate(source.sizes):
        torch.manual_seed(n)
        made = [x.requires_grad_() if x.is_floating_point() else x for x in names["inputs"](*size)]
        outputs = [x for x in names["program"](*made) if x.requires_grad]
        leaves = [x for x in made if x.requires_grad]
        try:
            if outputs and leaves:
                torch.autograd.grad(outputs, leaves, [torch.ones_like(x) for x in outputs], allow_unused=True)
        except RuntimeError:
            return False
    return True


def sizes(pick: random.Random, count: int, largest: int) -> tuple[tuple[int, int], ...]:
    """Pairs, of which the first has neither 0 nor 1, as compiled code meets it first in most programs."""
    usual = [n for n in POSITIVE if 1 < n <= largest]
    first = (pick.choice(usual), pick.choice(usual))
    found = [first]
    while len(found) < count:
        special = pick.random()
        pair = (pick.choice(usual), pick.choice(usual))
        if special < 0.2:
            pair = (pick.choice((0, 1)), pair[1])
        elif special < 0.3:
            pair = (pair[0], pick.choice((0, 1)))
        elif special < 0.4:
            pair = (pair[0], pair[0])
        found.append(pair)
    if pick.random() < 0.1:
        pick.shuffle(found)
    return tuple(dict.fromkeys(found))


def generate(
    pick: random.Random,
    statements: tuple[int, int] = (20, 60),
    sizes_each: tuple[int, int] = (2, 4),
    largest: int = 67,
    most: int = 20_000,
    given: tuple[tuple[int, int], ...] = (),
    families: tuple[tuple[Family, int], ...] = FAMILIES,
) -> Source:
    """A program of that many statements (fewer where too little fits together). ``given``: its sizes."""
    gradient = pick.random() < 0.4
    generator = Generator(pick, given or sizes(pick, pick.randint(*sizes_each), largest), gradient, most, families)
    wanted = pick.randint(*statements)
    while len(generator.source.body) < wanted and generator.tries < 12 * wanted + 20:
        generator.step()
    return generator.finish()
