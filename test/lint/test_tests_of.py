"""``test/tests_of.py`` finds the tests of a file: by name, by imports, by the files that import it, by history."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

_spec = importlib.util.spec_from_file_location("tests_of", Path(__file__).parents[1] / "tests_of.py")
assert _spec is not None and _spec.loader is not None
module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(module)

FILES = {
    "passes/fuse.py": "from symshape.passes import plan\n",
    "passes/plan.py": "",
    "runtime/plan.py": "",
    "test/passes/fuse-scans.mlir": "",
    "test/passes/test_plan.py": "",
    "test/runtime/test_plan.py": "",
    "test/programs/test_fused.py": "from symshape.passes.plan import plan\n",
    "test/programs/test_other.py": "",
}


def _commit(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for arguments in (["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "change"]):
        subprocess.run(["git", *arguments], cwd=root, check=True)


def test_tests_are_found(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    for name, text in FILES.items():
        _commit(tmp_path, {name: text})
    _commit(tmp_path, {"passes/plan.py": "# new\n", "test/programs/test_other.py": "# new\n"})
    found = module.tests_of("passes/plan.py", tmp_path)
    assert [path for path, _ in found[:3]] == [
        "test/passes/test_plan.py", "test/programs/test_fused.py", "test/passes/fuse-scans.mlir",
    ]  # fmt: skip
    assert dict(found)["test/programs/test_other.py"] == "changed with it in 1 commits"
    assert "test/runtime/test_plan.py" not in dict(found)
