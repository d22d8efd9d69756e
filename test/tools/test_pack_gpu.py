"""The archive that takes the project to a machine with a GPU: versions, sizes, metadata, and what is in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import PathDistribution
from pathlib import Path

import pack_gpu
import pytest

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20


def test_versions_are_those_of_the_constraints() -> None:
    text = "# versions\ntorch==2.13.0\nTorch-MLIR==1  # a comment\nislpy==2\n"
    assert pack_gpu.versions(text, ["torch-mlir", "islpy"]) == ["Torch-MLIR==1", "islpy==2"]
    with pytest.raises(KeyError, match="lit"):
        pack_gpu.versions(text, ["lit"])
    ours = pack_gpu.versions((ROOT / "constraints.txt").read_text())
    assert [line.split("==")[0] for line in ours] == list(pack_gpu.PACKAGES)


def test_what_is_too_large_is_refused() -> None:
    assert pack_gpu.check_size(3 * MIB, MIB, most_mib=4) == "3.0 MiB packed + 1.0 MiB of files, of 4 MiB"
    with pytest.raises(pack_gpu.TooLarge, match=r"3\.0 MiB packed \+ 1\.0 MiB of files, of 4 MiB"):
        pack_gpu.check_size(3 * MIB + 1, MIB, most_mib=4)


def test_the_tree_is_what_git_would_take_along(tmp_path: Path) -> None:
    run = lambda *command: subprocess.run(["git", "-C", str(tmp_path), *command], check=True)  # noqa: E731
    run("init", "--quiet")
    for name, size in (("tracked", 100), ("new", 20), ("ignored", 3000), (".gitignore", 0)):
        (tmp_path / name).write_bytes(b"x" * size)
    (tmp_path / ".gitignore").write_text("ignored\n")
    (tmp_path / "link").symlink_to("ab")
    run("add", "tracked", ".gitignore")
    assert pack_gpu.tree_bytes(tmp_path) == 100 + 20 + len("ignored\n") + len("ab")
    (tmp_path / "tracked").unlink()
    assert pack_gpu.tree_bytes(tmp_path) == 20 + len("ignored\n") + len("ab")


def test_the_metadata_names_the_backend(tmp_path: Path) -> None:
    pack_gpu.write_metadata(tmp_path, (ROOT / "pyproject.toml").read_text())
    (folder,) = tmp_path.iterdir()
    found = PathDistribution(folder)
    (backend,) = found.entry_points.select(group="torch_dynamo_backends")
    assert (found.metadata["Name"], backend.name, backend.value) == (
        "symshape",
        "symshape",
        "symshape.backend:symshape_backend",
    )
    assert found.entry_points.select(group="console_scripts", name="symshape-opt")


def test_the_same_files_are_the_same_archive(tmp_path: Path) -> None:
    for name in ("one", "two"):
        site = tmp_path / name / "package"
        site.mkdir(parents=True)
        (site / "code.so").write_bytes(b"\xe8\x00\x01\x02\x03" * 1000)
        pack_gpu.pack(tmp_path / name, tmp_path / f"{name}.tar.xz")
    assert (tmp_path / "one.tar.xz").read_bytes() == (tmp_path / "two.tar.xz").read_bytes()
    with tarfile.open(tmp_path / "one.tar.xz") as tar:
        tar.extractall(tmp_path / "out", filter="data")
    assert (tmp_path / "out" / "package" / "code.so").read_bytes() == b"\xe8\x00\x01\x02\x03" * 1000


@pytest.mark.long
def test_the_archive_fits_and_its_packages_are_found(tmp_path: Path) -> None:
    """With downloads. What has machine code is imported if there is a Python of that version with NumPy."""
    archive = tmp_path / "site.tar.xz"
    command = [sys.executable, str(ROOT / "bench" / "pack_gpu.py"), "--out", str(archive)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert archive.stat().st_size + pack_gpu.tree_bytes(ROOT) <= pack_gpu.MOST_MIB * MIB
    site = tmp_path / "site"
    with tarfile.open(archive) as tar:
        tar.extractall(site, filter="data")
    names = {"torch_mlir", "islpy", "lit", "filecheck", "expecttest"}
    assert names <= {path.name.removesuffix(".py") for path in site.iterdir()}
    assert not (site / pack_gpu.LEFT_OUT[0]).exists()
    python = shutil.which("python3.12")
    environment = os.environ | {"PYTHONPATH": str(site)}
    imports = "; ".join(f"import {name}" for name in sorted(names)) + "; from torch_mlir import ir; ir.Context()"
    if python is None or subprocess.run([python, "-c", "import numpy"], capture_output=True, check=False).returncode:
        pytest.skip("the archive is right as far as can be seen: no python3.12 with NumPy to import it with")
    done = subprocess.run([python, "-c", imports], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
