"""A digest of symshape's own code, a part of the cache key."""

from __future__ import annotations

import hashlib
import importlib
import os
import pkgutil
import zipfile
from collections.abc import Iterable, Iterator
from importlib.machinery import all_suffixes
from pathlib import Path
from zipimport import zipimporter

_SUFFIXES = tuple(all_suffixes())


def own_digest() -> str:
    """The digest of all modules of symshape; empty if none can be read."""
    return digest_of_modules(importlib.import_module(__name__.partition(".")[0]).__path__)


def digest_of_modules(package_path: Iterable[str]) -> str:
    """A digest of all modules of a package, with their paths: source, bytecode without source, extensions; in folders
    and in zip archives. "" if there are none (an importer of another kind), or if one cannot be read."""
    try:
        modules = sorted(module for root in package_path for module in _modules(root))
    except (OSError, zipfile.BadZipFile):
        return ""
    if not modules:
        return ""
    digest = hashlib.sha256()
    for name, data in modules:
        digest.update(f"{name}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()


def _modules(root: str) -> Iterator[tuple[str, bytes]]:
    """The modules below an entry of a package's path: each with its path there, which "/" separates."""
    importer = pkgutil.get_importer(root)
    if isinstance(importer, zipimporter):
        yield from _archived_modules(importer.archive, importer.prefix.replace(os.sep, "/"))
        return
    # In a checkout the folders of the package are links, which are followed.
    for folder, folders, names in os.walk(root, followlinks=True):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            if name.endswith(_SUFFIXES):
                file = os.path.join(folder, name)
                yield os.path.relpath(file, root).replace(os.sep, "/"), Path(file).read_bytes()


def _archived_modules(archive: str, prefix: str) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(archive) as opened:
        for name in opened.namelist():
            if name.startswith(prefix) and name.endswith(_SUFFIXES) and "/__pycache__/" not in name:
                yield name.removeprefix(prefix), opened.read(name)
