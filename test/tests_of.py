"""Lists the tests of a file: ``python test/tests_of.py passes/fusion/group.py``.

Many files are tested through programs and IR, not by a test file of their own name. Listed are, the most telling first:
tests that have the file's name, tests that import it, tests with the name of a file that imports it (of the pass that
it is a part of), and tests that were changed in the same commits, by how often and by how few files a commit changed (a
clone without history has none of these).
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST = 12  # tests that are listed
_LARGE = 25  # files; commits that change more say little about any of them
_NAMED, _IMPORTED, _OF_USER = 1000.0, 100.0, 1.0  # changed with it: at most 1 for each commit


def tests_of(file: str, root: Path = ROOT) -> list[tuple[str, str]]:
    """The tests of a file of the repository, each with the reason, best first. ``file``: its path from the root."""
    files = _git(root, "ls-files", "*.py", "*.mlir", "*.test")
    tests = [path for path in files if path.startswith("test/") and _is_test(path)]
    users = [path for path in files if not path.startswith("test/") and _imports(root / path, file)]
    scores: dict[str, float] = defaultdict(float)
    reasons: dict[str, list[str]] = defaultdict(list)
    found = [(path, _NAMED, "has its name") for path in tests if _has_name(path, file)]
    found += [(path, _OF_USER, f"has the name of {user}") for user in users for path in tests if _has_name(path, user)]
    found += [(path, _IMPORTED, "imports it") for path in tests if _imports(root / path, file)]
    of_folder = [path for path in tests if str(Path(path).parent) == _folder(file)]
    found += [(path, 0.0, "is of its folder") for path in of_folder if len(of_folder) <= MOST]
    found += [(path, score, f"changed with it in {count} commits") for path, score, count in _changed_with(file, root)]
    for path, score, reason in found:
        if path in tests and path != file:
            scores[path] += score
            reasons[path].append(reason)
    best = sorted(scores, key=lambda path: (-scores[path], path))[:MOST]
    return [(path, ", ".join(reasons[path])) for path in best]


def _is_test(path: str) -> bool:
    name = Path(path).name
    return name.startswith("test_") and name.endswith(".py") or name.endswith((".mlir", ".test"))


def _has_name(test: str, file: str) -> bool:
    """Whether a test of the same part is called after a file, perhaps with more behind it: ``fuse-kernels-scans``."""
    name = Path(test).stem.removeprefix("test_").replace("-", "_")
    return _folder(file) == str(Path(test).parent) and f"{name}_".startswith(f"{Path(file).stem}_")


def _folder(file: str) -> str:
    """The folder of ``test/`` that mirrors a file's."""
    return "test/tools" if file.startswith("symshape/tools/") else f"test/{Path(file).parts[0]}"


def _imports(user: Path, file: str) -> bool:
    module = file.removesuffix(".py").replace("/", ".")
    module = module if module.startswith("symshape.") else f"symshape.{module}"
    package, _, name = module.rpartition(".")
    imported = rf"(from|import) {re.escape(module)}\b|from {re.escape(package)} import (\([^)]*|[^\n]*)\b{name}\b"
    return user.suffix == ".py" and re.search(imported, user.read_text()) is not None


def _changed_with(file: str, root: Path) -> Iterator[tuple[str, float, int]]:
    """Test, score and number of commits, for each test that was changed in a commit that changed the file."""
    scores: dict[str, float] = defaultdict(float)
    counts: dict[str, int] = defaultdict(int)
    commits = _git(root, "log", "--no-merges", "--follow", "--format=%H", "--", file)
    for line in commits:
        changed = _git(root, "show", "--format=", "--name-only", line)
        for path in changed if len(changed) <= _LARGE else ():
            scores[path] += 1 / len(changed)
            counts[path] += 1
    for path, score in scores.items():
        yield path, score, counts[path]


def _git(root: Path, *arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


if __name__ == "__main__":
    if len(sys.argv) != 2 or not (ROOT / sys.argv[1]).is_file():
        sys.exit("usage: python test/tests_of.py FILE, a path from the root of the repository")
    for test, reason in tests_of(sys.argv[1]):
        print(f"{test:50} {reason}")
