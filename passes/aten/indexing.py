"""Rules of the ops that read at data-dependent places, and of those that join, pad and repeat."""

from __future__ import annotations

from symshape.passes.aten.elementwise import Rule

RULES: dict[str, Rule] = {}
