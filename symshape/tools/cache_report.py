"""``symshape cache``: lists or removes what the cache on disk holds."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from symshape.cache.records import from_json
from symshape.errors import CacheError
from symshape.runtime.store import KINDS, Cache, default_directory, is_enabled, limit_bytes
from symshape.tools.terminal import table

_MOST_ROWS = 40


@contextlib.contextmanager
def _errors_that_name_the_file() -> Iterator[None]:
    """Turns an OSError into a CacheError that names the file."""
    try:
        yield
    except OSError as error:
        raise CacheError(f"{error.filename}: {error.strerror}", next_step="look at whose it is: ls -la") from error


@_errors_that_name_the_file()
def show() -> str:
    """A listing of the cache: its directory, size, and entries, most recently used first. CacheError if the directory
    cannot be read."""
    lines = [f"{default_directory()} (at most {limit_bytes() >> 20} MiB of each kind)"]
    if not is_enabled():
        return "\n".join([*lines, "switched off: SYMSHAPE_CACHE=0"])
    for kind, cache in _caches():
        entries = cache.entries()
        size = sum(entry.size for entry in entries) / 2**20
        lines.append(f"\n{kind}: {len(entries)} entries, {size:.1f} MiB")
        rows = [
            [entry.key[:12], f"{entry.size / 1024:.0f} KiB", _age(entry.used), _what(cache, entry.key)]
            for entry in entries[:_MOST_ROWS]
        ]
        if rows:
            lines.append(table(["key", "size", "used", "what"], rows))
        if len(entries) > _MOST_ROWS:
            lines.append(f"... and {len(entries) - _MOST_ROWS} more")
    return "\n".join(lines)


@_errors_that_name_the_file()
def clear() -> str:
    """Removes all entries, even if the cache is disabled, and returns a line with their number. CacheError if a file
    cannot be removed."""
    removed = sum(cache.clear() for _, cache in _caches())
    return f"{default_directory()}: {removed} entries removed"


def _caches() -> Iterator[tuple[str, Cache]]:
    """The caches whose directory exists, with their kinds. Creates no directory."""
    for kind in KINDS:
        if (default_directory() / kind).is_dir():
            yield kind, Cache(default_directory() / kind)


def _age(used: float) -> str:
    """How long ago time ``used`` (seconds since the epoch) was, in words."""
    minutes = max(0.0, time.time() - used) / 60
    for unit, length in (("days", 24 * 60), ("hours", 60)):
        if minutes >= 2 * length:
            return f"{minutes / length:.0f} {unit} ago"
    return f"{minutes:.0f} minutes ago"


def _what(cache: Cache, key: str) -> str:
    """The contents of an entry, in a few words for the last column."""
    sections = cache.peek(key)
    if sections is None:
        return "damaged"
    if "choice" in sections:
        return f"fastest: {sections['choice'].decode()}"
    if "name" in sections:
        return f"machine code of {sections['name'].decode()}"
    try:
        about: Any = from_json(sections["about"])
    except (CacheError, KeyError, ValueError):
        return "of another version"
    counts = f"{about['kernels']} kernels, {about['library calls']} library calls"
    return f"{about['graph']} graph ({about['target']}): {counts}"
