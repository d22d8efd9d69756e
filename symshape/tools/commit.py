"""Which code is measured: the commit of a checkout, and what is changed since."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from symshape.errors import OptionError

# What a run writes is no change of the code.
_RESULTS = ":(exclude)bench/results"
_NEXT = "run it in a checkout of symshape's repository"


def current(root: Path) -> str:
    """The commit's short hash; where the working tree differs, with ``+`` and a digest of the difference.

    OptionError where ``root`` is no checkout: a folder in one, such as where packages are installed, is none."""
    if inside := _git(root, "rev-parse", "--show-prefix").strip():
        raise OptionError(f"{root} is {inside} of another checkout", next_step=_NEXT)
    head = _git(root, "rev-parse", "--short=10", "HEAD").strip()
    changed = _git(root, "diff", "HEAD", "--", ".", _RESULTS)
    for name in _git(root, "ls-files", "--others", "--exclude-standard", "--", ".", _RESULTS).splitlines():
        changed += name + (root / name).read_text(encoding="utf-8", errors="replace")
    return f"{head}+{hashlib.sha256(changed.encode()).hexdigest()[:8]}" if changed else head


def of_file(root: Path, path: Path) -> str:
    """The commit that last changed a file; "" where none has it."""
    return _git(root, "log", "-1", "--format=%h", "--", str(path)).strip()


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", "") or str(error)
        raise OptionError(f"git {arguments[0]} fails: {reason.strip()}", next_step=_NEXT) from error
    return done.stdout
