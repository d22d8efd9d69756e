"""Object files of the runtime's own code, made of LLVM text once and then kept on disk."""

from __future__ import annotations

import hashlib

import llvmlite

from symshape.machine import instruction_sets
from symshape.runtime.cpu.machine_code import object_code
from symshape.runtime.store import open_cache


def kept_object(name: str, text: str, level: str) -> bytes:
    """The object file of a module for a level, from the disk where an earlier process has left it there. ``name``: what
    the cache report calls it. OptionError for a level that this processor has not."""
    processor = instruction_sets.processor(level)
    kept = open_cache("code")
    key = hashlib.sha256("\0".join((llvmlite.__version__, *processor, text)).encode()).hexdigest()
    found = kept.get(key) if kept else None
    if found is not None and "object" in found:
        return found["object"]
    made = object_code(text, level, as_written=True)  # all of LLVM's passes would take three times as long
    if kept:
        kept.put(key, {"name": name.encode(), "object": made})
    return made
