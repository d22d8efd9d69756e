"""Identifies the code that is measured: the commit of a checkout and a digest of uncommitted changes."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from symshape.errors import OptionError

# Writing measurements must not count as a change of the code.
_RESULTS = ":(exclude)bench/results"
_NEXT = "run it in a checkout of symshape's repository"


def current(root: Path) -> str:
    """The short hash of HEAD, followed by ``+`` and a digest if the working tree differs from it.

    OptionError if ``root`` is not the top folder of a checkout. A subfolder of some other checkout, for example a
    site-packages folder inside of one, is rejected too."""
    if inside := _git(root, "rev-parse", "--show-prefix").strip():
        raise OptionError(f"{root} is {inside} of another checkout", next_step=_NEXT)
    head = _git(root, "rev-parse", "--short=10", "HEAD").strip()
    changed = _git(root, "diff", "HEAD", "--", ".", _RESULTS)
    for name in _git(root, "ls-files", "--others", "--exclude-standard", "--", ".", _RESULTS).splitlines():
        changed += name + (root / name).read_text(encoding="utf-8", errors="replace")
    return f"{head}+{hashlib.sha256(changed.encode()).hexdigest()[:8]}" if changed else head


def of_file(root: Path, path: Path) -> str:
    """The short hash of the commit that last changed a file; "" if no commit has it."""
    return _git(root, "log", "-1", "--format=%h", "--", str(path)).strip()


def _git(root: Path, *arguments: str) -> str:
    """The output of a git command. OptionError if git is missing or fails."""
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", "") or str(error)
        raise OptionError(f"git {arguments[0]} fails: {reason.strip()}", next_step=_NEXT) from error
    return done.stdout
