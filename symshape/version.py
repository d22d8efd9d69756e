"""The version of the package, in a module that imports nothing: the tools that never load torch print it."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
