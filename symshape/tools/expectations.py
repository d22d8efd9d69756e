"""``symshape-opt --verify-diagnostics``: compares reported diagnostics with the comments of a test file.

``// expected-error@+1 {{text}}`` expects an error on the next line whose message contains the text, or matches it as a
regular expression. The position may be left out (this line), ``@+N``, ``@-N``, ``@above`` or ``@below`` (the nearest
line without an expectation), or ``@unknown`` (a diagnostic without a location).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from symshape.passes.framework.diagnostics import Diagnostic

_EXPECTATION = re.compile(
    r"expected-(?P<severity>error|warning|remark|note)(?:-re)?(?:@(?P<at>[+-]\d+|above|below|unknown))?\s*\{\{(?P<text>.*?)\}\}"
)


@dataclass(frozen=True)
class Expectation:
    """One ``expected-...`` comment. ``line`` is where the diagnostic must be, ``written_at`` where the comment is."""

    severity: str
    line: int  # 0: no location
    text: str
    written_at: int

    def matches(self, severity: str, line: int, message: str) -> bool:
        return severity == self.severity and line == self.line and (self.text in message or self._as_regex(message))

    def _as_regex(self, message: str) -> bool:
        try:
            return re.search(self.text, message) is not None
        except re.error:
            return False


def parse_expectations(text: str) -> list[Expectation]:
    """All expectations in a source text."""
    lines = text.split("\n")
    found = []
    for number, line in enumerate(lines, start=1):
        for match in _EXPECTATION.finditer(line):
            about = _line_of(match["at"] or "+0", number, lines)
            found.append(Expectation(match["severity"], about, match["text"], number))
    return found


def check(file: str, text: str, diagnostics: Sequence[Diagnostic]) -> list[str]:
    """Mismatches, formatted as ``file:line: error: ...``: unexpected diagnostics, then unmet expectations."""
    waiting = parse_expectations(text)
    complaints = []
    reported = [d for diagnostic in diagnostics for d in (diagnostic, *diagnostic.notes)]
    for d in reported:
        hit = next((e for e in waiting if e.matches(d.severity, d.location.line, d.message)), None)
        if hit is not None:
            waiting.remove(hit)
        elif d.severity != "note":  # notes may be left unmentioned
            complaints.append(f"{file}:{d.location.line}: error: unexpected {d.severity}: {d.message}")
    complaints += [
        f'{file}:{e.written_at}: error: expected {e.severity} "{e.text}" was not produced on line {e.line}'
        for e in waiting
    ]
    return complaints


def _line_of(at: str, number: int, lines: Sequence[str]) -> int:
    if at == "unknown":
        return 0
    if at not in ("above", "below"):
        return number + int(at)
    step = 1 if at == "below" else -1
    line = number + step
    while 1 <= line <= len(lines) and _EXPECTATION.search(lines[line - 1]):
        line += step
    return line
