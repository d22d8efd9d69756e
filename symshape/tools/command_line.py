"""What the command lines of the tools share: an argument that would silently do nothing is an error."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from symshape.errors import OptionError


class Once(argparse.Action):
    """Stores a value, as argparse does by default, but a second one is an error instead of taking the first one's
    place."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        seen = namespace.__dict__.setdefault("_seen", set())
        if option is not None and self.dest in seen:
            parser.error(f"argument {option}: given more than once")
        seen.add(self.dest)
        setattr(namespace, self.dest, values)


def given(args: argparse.Namespace, parser: argparse.ArgumentParser, names: Sequence[str]) -> list[str]:
    """Which of these options, named as on the command line, have another value than their default."""
    found = {option: action.dest for action in parser._actions for option in (action.option_strings or [action.dest])}
    return [name for name in names if getattr(args, found[name]) != parser.get_default(found[name])]


def forbid(options: Sequence[str], why: str, next_step: str) -> None:
    """OptionError where there is one."""
    if options:
        raise OptionError(
            f"{', '.join(options)} {'does' if len(options) == 1 else 'do'} nothing {why}", next_step=next_step
        )
