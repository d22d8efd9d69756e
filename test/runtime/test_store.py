"""The cache's directory: an entry is read whole or not at all, after kills and damage, beside other processes."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from symshape.errors import CacheError
from symshape.runtime import store as module
from symshape.runtime.store import Cache, open_cache, pack, unpack
from symshape.tools import cache_report

KEYS = [f"{i:064x}" for i in range(4)]
# Writes entries whose content says which key and which turn they are of, as fast as it can; says when it is at work.
WRITER = """
import sys
from pathlib import Path
from symshape.runtime.store import Cache
cache, turn = Cache(Path(sys.argv[1])), 0
print("ready", flush=True)
while True:
    turn += 1
    for i in range(4):
        key = f"{i:064x}"
        word = f"{key}-{turn};".encode()
        cache.put(key, {"first": word * 3000, "second": word})
        if turn % 7 == 0:
            cache.remove(key)
        if turn % 50 == 0:
            cache.clear()
"""


def _is_whole(key: str, sections: dict[str, bytes]) -> bool:
    word = sections["second"]
    return word.startswith(key.encode()) and sections["first"] == word * 3000


def _writer(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def test_what_is_written_is_read(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "graphs")
    assert cache.get(KEYS[0]) is None
    assert cache.put(KEYS[0], {"a": b"1", "empty": b"", "b": bytes(range(256))})
    assert cache.get(KEYS[0]) == {"a": b"1", "empty": b"", "b": bytes(range(256))}
    assert cache.put(KEYS[0], {"a": b"2"}) and cache.put(KEYS[1], {})
    assert Cache(tmp_path / "graphs").get(KEYS[0]) == {"a": b"2"} and cache.get(KEYS[1]) == {}
    assert {entry.key for entry in cache.entries()} == {KEYS[0], KEYS[1]}
    assert stat.S_IMODE((tmp_path / "graphs").stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "graphs").iterdir()} == {0o600}
    assert cache.clear() == 2 and not list((tmp_path / "graphs").iterdir())


def test_no_damage_is_ever_read(tmp_path: Path) -> None:
    cache, sections = Cache(tmp_path), {"code": b"machine code", "text": b"{}"}
    data = pack(KEYS[0], sections)
    damaged = [data[:i] + bytes([data[i] ^ 1 << i % 8]) + data[i + 1 :] for i in range(len(data))]
    damaged += [data[:i] for i in range(len(data))]
    damaged += [data + b"\0", pack(KEYS[1], sections), data.replace(b"cache 1", b"cache 2"), b"something else"]
    assert unpack(KEYS[0], data) == sections
    assert not any(unpack(KEYS[0], one) is not None for one in damaged)
    file = tmp_path / f"{KEYS[0]}.entry"
    for one in damaged[:: len(damaged) // 12]:
        file.write_bytes(one)
        assert cache.get(KEYS[0]) is None and not file.exists()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(data)
    file.symlink_to(elsewhere)
    assert cache.get(KEYS[0]) is None and not file.is_symlink() and elsewhere.exists()


def test_the_least_recently_used_leave(tmp_path: Path) -> None:
    size = len(pack(KEYS[0], {"a": bytes(1000)}))
    cache = Cache(tmp_path, limit=3 * size)
    for age, key in enumerate(KEYS[:3]):
        assert cache.put(key, {"a": bytes(1000)})
        os.utime(tmp_path / f"{key}.entry", (0, 1000 + age))
    assert cache.get(KEYS[0]) is not None  # now the most recently used one
    assert cache.put(KEYS[3], {"a": bytes(1000)})
    assert {entry.key for entry in cache.entries()} == {KEYS[0], KEYS[3]}
    assert not cache.put(KEYS[1], {"a": bytes(4 * size)})  # never fits
    abandoned = tmp_path / ".writing-x"
    abandoned.write_bytes(b"half an ent")
    cache.evict()
    assert abandoned.exists()
    os.utime(abandoned, (0, time.time() - 7200))
    cache.evict()
    assert not abandoned.exists()


def test_a_directory_in_other_hands_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYMSHAPE_CACHE", "1")
    open_, foreign, file = tmp_path / "open", tmp_path / "foreign", tmp_path / "file"
    open_.mkdir()
    open_.chmod(0o777)
    foreign.mkdir()
    file.write_bytes(b"")
    module._warn_once.cache_clear()
    for directory, what in ((open_, "other users can write"), (foreign, "belongs to another"), (file, "exists")):
        monkeypatch.setenv("SYMSHAPE_CACHE_DIR", str(directory))
        with monkeypatch.context() as patched, pytest.warns(UserWarning, match=f"nothing is cached on disk: .*{what}"):
            if directory is foreign:
                patched.setattr(os, "geteuid", lambda: os.getuid() + 1)
            assert open_cache("graphs") is None
        with monkeypatch.context() as patched, warnings.catch_warnings():
            warnings.simplefilter("error")  # it has been said
            if directory is foreign:
                patched.setattr(os, "geteuid", lambda: os.getuid() + 1)
            assert open_cache("graphs") is None
    monkeypatch.setenv("SYMSHAPE_CACHE_DIR", str(tmp_path / "new" / "one"))
    assert open_cache("graphs") is not None
    monkeypatch.setenv("SYMSHAPE_CACHE", "0")
    assert open_cache("graphs") is None
    with pytest.raises(CacheError, match="chmod go-w"):
        Cache(open_ / "graphs")


def test_a_user_without_a_home_has_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that is run as a user whom no table has."""

    def unknown(user: int) -> None:
        raise KeyError(user)

    for name in ("HOME", "XDG_CACHE_HOME", "SYMSHAPE_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SYMSHAPE_CACHE", "1")
    monkeypatch.setattr("pwd.getpwuid", unknown)
    module._warn_once.cache_clear()
    with pytest.warns(UserWarning, match="no home directory\n.*set SYMSHAPE_CACHE_DIR"):
        assert open_cache("graphs") is None
    for action in (cache_report.show, cache_report.clear):
        with pytest.raises(CacheError, match="no home directory"):
            action()


def test_what_may_not_be_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setenv("SYMSHAPE_CACHE_DIR", str(tmp_path))
    cache = Cache(tmp_path / "graphs", limit=300)
    assert cache.put(KEYS[0], {})
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", forbidden)
        assert cache.put(KEYS[1], {"large": bytes(100)})
        assert len(cache.entries()) == 2
        with pytest.raises(CacheError, match=f"{KEYS[1]}.*: {os.strerror(errno.EACCES)}"):
            cache_report.clear()
    assert cache_report.clear().endswith("2 entries removed")


def test_a_writer_can_be_killed_at_any_moment(tmp_path: Path) -> None:
    cache, found = Cache(tmp_path), 0
    for turn in range(12):
        process = _writer(tmp_path)
        time.sleep(0.003 * turn)
        process.send_signal(signal.SIGKILL)
        process.wait()
        for key in KEYS:
            sections = cache.get(key)
            found += sections is not None
            assert sections is None or _is_whole(key, sections)
        for file in tmp_path.iterdir():  # a name stands for a whole file, or the file has another name
            assert file.suffix == ".entry" or file.name.startswith(".writing-")
    assert found


def test_processes_do_not_disturb_each_other(tmp_path: Path) -> None:
    processes = [_writer(tmp_path) for _ in range(2)]
    cache, found, end = Cache(tmp_path), 0, time.monotonic() + 1.5
    try:
        while time.monotonic() < end:
            for key in KEYS:
                sections = cache.get(key)
                found += sections is not None
                assert sections is None or _is_whole(key, sections)
            assert all(process.poll() is None for process in processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert found
