"""The store on disk: bytes by key, safe against crashes and concurrent processes.

An entry is one file. It is written under a temporary name and then renamed: at any moment a name is a complete file or
none, whichever process is killed. Nothing is flushed (fsync): damage by a power failure is detected by the checksum,
like any other damage. A file that is not exactly what was written for its key is removed, and counts as no entry.

Entries hold machine code, so the directory must be private: it must belong to this user, and others must not be able to
write to it. Its folders are accessible to this user alone.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import stat
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from symshape import knobs
from symshape.errors import CacheError

FORMAT: Final = b"symshape cache 1\n"
KINDS: Final = ("graphs", "autotune", "code")
SUFFIX: Final = ".entry"
_TEMPORARY: Final = ".writing-"
_HASH_BYTES: Final = hashlib.sha256().digest_size
# A writer that takes longer than this is gone.
_ABANDONED_SECONDS: Final = 3600.0
# What eviction leaves: it would else run at every write.
_KEPT_SHARE: Final = 0.9


def default_directory() -> Path:
    """``SYMSHAPE_CACHE_DIR``, else the folder ``symshape`` where this platform keeps a user's caches. CacheError for a
    user without a home: a container may be run as one that no table of users has."""
    if chosen := knobs.CACHE_DIR.read():
        return Path(chosen)
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or _home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = _home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or _home() / ".cache")
    return base / "symshape"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:
        raise CacheError("this user has no home directory", next_step=_ELSEWHERE) from error


def is_enabled() -> bool:
    """Whether the environment allows a cache: ``SYMSHAPE_CACHE=0`` does not."""
    return knobs.CACHE.read()


def limit_bytes() -> int:
    """The maximal size of a cache in bytes, from ``SYMSHAPE_CACHE_SIZE``."""
    return knobs.CACHE_SIZE.read() << 20


def open_cache(kind: str) -> Cache | None:
    """The entries of one of ``KINDS`` in the directory of this user; None where the environment switches
    it off, and, with a warning the first time, where there can be no safe directory."""
    if not is_enabled():
        return None
    try:
        return Cache(default_directory() / kind)
    except (CacheError, OSError) as error:
        _warn_once(str(error))
        return None


@functools.cache
def _warn_once(reason: str) -> None:
    warnings.warn(f"symshape: nothing is cached on disk: {reason}", stacklevel=4)


@dataclass(frozen=True)
class Listed:
    """An entry of the directory listing: its key, bytes, and when it was last used (seconds since 1970)."""

    key: str
    size: int
    used: float


class Cache:
    """The entries in one folder, which is created if needed. CacheError if it, or the directory that contains it, is
    not private."""

    def __init__(self, folder: Path, limit: int | None = None) -> None:
        self.folder, self.limit = folder, limit_bytes() if limit is None else limit
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        for path in (folder.parent, folder):
            _check_owner(path, path.stat())

    def get(self, key: str) -> dict[str, bytes] | None:
        """The sections of an entry, which is marked as used; None if there is no valid one."""
        path = self._path(key)
        try:
            data = _read_own(path)
            sections = None if data is None else unpack(key, data)
            if sections is None:
                path.unlink()
            else:
                os.utime(path)
        except OSError:
            return None  # not there, or another process has just removed it
        return sections

    def peek(self, key: str) -> dict[str, bytes] | None:
        """Like ``get``, without marking it as used or removing a damaged one."""
        try:
            data = _read_own(self._path(key))
        except OSError:
            return None
        return None if data is None else unpack(key, data)

    def put(self, key: str, sections: Mapping[str, bytes]) -> bool:
        """Writes an entry, replacing an existing one. False if the disk is full or read-only."""
        data = pack(key, sections)
        if len(data) > self.limit:
            return False
        try:
            handle, name = tempfile.mkstemp(prefix=_TEMPORARY, dir=self.folder)  # for this user alone
        except OSError:
            return False
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(name, self._path(key))
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(name)
            return False
        with contextlib.suppress(OSError):  # somebody has removed the folder meanwhile, or made it read-only
            self.evict()
        return True

    def remove(self, key: str) -> None:
        """Removes an entry, if it exists. OSError if that is not allowed."""
        self._path(key).unlink(missing_ok=True)

    def clear(self) -> int:
        """Removes every entry; how many there were. OSError where that is not allowed."""
        found = self.entries()
        for entry in found:
            self.remove(entry.key)
        self._remove_abandoned(0.0)
        return len(found)

    def entries(self) -> list[Listed]:
        """All entries, most recently used first. OSError if they cannot be listed."""
        found = [
            Listed(name.removesuffix(SUFFIX), status.st_size, status.st_mtime)
            for name, status in self._files()
            if name.endswith(SUFFIX)
        ]
        return sorted(found, key=lambda entry: -entry.used)

    def evict(self) -> None:
        """If the entries are larger than the limit, removes the least recently used ones; also temporary files of
        killed writers. Two processes may evict at once: files may be gone already."""
        entries = self.entries()
        total = sum(entry.size for entry in entries)
        if total > self.limit:
            for entry in reversed(entries):
                if total <= self.limit * _KEPT_SHARE:
                    break
                self.remove(entry.key)
                total -= entry.size
        self._remove_abandoned(_ABANDONED_SECONDS)

    def _remove_abandoned(self, age: float) -> None:
        for name, status in self._files():
            if name.startswith(_TEMPORARY) and time.time() - status.st_mtime >= age:
                (self.folder / name).unlink(missing_ok=True)

    def _files(self) -> Iterator[tuple[str, os.stat_result]]:
        with os.scandir(self.folder) as found:
            for item in found:
                with contextlib.suppress(OSError):
                    yield item.name, item.stat(follow_symlinks=False)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{SUFFIX}"


def _check_owner(path: Path, status: os.stat_result) -> None:
    if not hasattr(os, "geteuid"):
        return  # Windows: the folder inherits the rights of the user's profile
    if status.st_uid != os.geteuid():
        raise CacheError(f"{path} belongs to another user", next_step=_ELSEWHERE)
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise CacheError(f"other users can write to {path}", next_step=f"chmod go-w {path}; or {_ELSEWHERE}")


_ELSEWHERE: Final = "set SYMSHAPE_CACHE_DIR to a directory of your own, or SYMSHAPE_CACHE=0"


def _read_own(path: Path) -> bytes | None:
    """The bytes of a file of this user's; None for a link and for anybody else's."""
    if path.is_symlink():
        return None
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        mine = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
        return file.read() if mine and stat.S_ISREG(status.st_mode) else None


# --- the file: FORMAT, the checksum of all that follows, then the key and the sections, each with its name -----------


def pack(key: str, sections: Mapping[str, bytes]) -> bytes:
    """The bytes of an entry's file."""
    body = b"".join(
        map(_block, (key.encode(), *(part for name, data in sections.items() for part in (name.encode(), data))))
    )
    return FORMAT + hashlib.sha256(body).digest() + body


def _block(data: bytes) -> bytes:
    return len(data).to_bytes(8, "little") + data


def unpack(key: str, data: bytes) -> dict[str, bytes] | None:
    """The sections of a file that ``pack`` made for this key; None for any other bytes."""
    start = len(FORMAT) + _HASH_BYTES
    body = memoryview(data)[start:]
    if not data.startswith(FORMAT) or hashlib.sha256(body).digest() != data[len(FORMAT) : start]:
        return None
    blocks = []
    while body:
        end = 8 + int.from_bytes(body[:8], "little")
        blocks.append(bytes(body[8:end]))
        body = body[end:]
    if blocks[0] != key.encode():
        return None
    return {name.decode(): content for name, content in zip(blocks[1::2], blocks[2::2])}
