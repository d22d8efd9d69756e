"""Packs what a machine with a GPU lacks to run this checkout: make gpu-pack.

    python bench/pack_gpu.py [--python 3.12] [--out .gpu/site.tar.xz]

For x86-64 Linux, where PyTorch with CUDA, Triton and the common tools of tests are installed already, and nothing can
be fetched. `PACKAGES` are taken in the versions of constraints.txt, with their metadata and that of this project, whose
entry point makes `backend="symshape"` known. There:

    mkdir -p /tmp/site && tar -C /tmp/site -xJf .gpu/site.tar.xz && export PYTHONPATH=/tmp/site:$PWD

The archive and the checkout travel together: they must not be larger than `MOST_MIB`.
"""

from __future__ import annotations

import argparse
import lzma
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
MOST_MIB: Final = 56
# What the compiler and its tests import besides PyTorch, Triton, NumPy, transformers, llvmlite, pytest and hypothesis.
PACKAGES: Final = ("torch-mlir", "islpy", "lit", "filecheck", "expecttest")
# A command of torch-mlir's that nothing here calls; a fifth of the wheel.
LEFT_OUT: Final = ("torch_mlir/_mlir_libs/torch-mlir-opt",)
# Pip matches the tags of wheels exactly: these are the versions of glibc that wheels are built for.
_GLIBC: Final = ("2_39", "2_35", "2_34", "2_31", "2_28", "2_27", "2_24", "2_17", "2014", "1")


class TooLarge(Exception):
    """The archive and the checkout are larger than what may travel."""


def versions(constraints: str, packages: Iterable[str] = PACKAGES) -> list[str]:
    """``name==version`` of each package, of the text of constraints.txt. KeyError for one that is not pinned there."""
    lines = [line.split("#")[0].strip() for line in constraints.splitlines()]
    pinned = {line.split("==")[0].lower(): line for line in lines if "==" in line}
    return [pinned[name] for name in packages]


def tree_bytes(root: Path) -> int:
    """Of the files of a checkout that git tracks or would add."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
    files = {root / name for name in names if name}
    return sum(file.lstat().st_size for file in files if file.is_symlink() or file.is_file())


def check_size(archive: int, tree: int, most_mib: int = MOST_MIB) -> str:
    """A line that tells the sizes in MiB; TooLarge where their sum is larger than ``most_mib``."""
    sizes = f"{archive / 2**20:.1f} MiB packed + {tree / 2**20:.1f} MiB of files, of {most_mib} MiB"
    if archive + tree > most_mib << 20:
        raise TooLarge(sizes)
    return sizes


def install(site: Path, wanted: list[str], python: str) -> None:
    """Wheels of another Python than this one, unpacked into a folder; without what they require."""
    platforms = [f"--platform=manylinux{'_' if '_' in glibc else ''}{glibc}_x86_64" for glibc in _GLIBC]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    of = ["--no-deps", "--only-binary=:all:", "--implementation=cp", f"--python-version={python}", *platforms]
    subprocess.run([*pip, *of, f"--target={site}", *wanted], check=True)
    for name in LEFT_OUT:
        (site / name).unlink()


def write_metadata(site: Path, pyproject: str) -> None:
    """What an editable install would say of this project: its name, its version, its entry points."""
    project = tomllib.loads(pyproject)["project"]
    folder = site / f"{project['name']}-{project['version']}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n", encoding="utf-8"
    )
    groups = project["entry-points"] | {"console_scripts": project["scripts"]}
    lines = [line for group, of in groups.items() for line in (f"[{group}]", *(f"{k} = {v}" for k, v in of.items()))]
    (folder / "entry_points.txt").write_text("\n".join([*lines, ""]), encoding="utf-8")


def pack(site: Path, archive: Path) -> None:
    """The folder as .tar.xz: the same bytes for the same files. Jumps of x86 code are made absolute before they are
    compressed, which takes a twentieth off."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    filters = [{"id": lzma.FILTER_X86}, {"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 64 << 20}]
    with lzma.open(archive, "wb", filters=filters) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for file in sorted(site.rglob("*")):
            tar.add(file, file.relative_to(site), recursive=False, filter=_anonymous)


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.mtime = entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default="3.12", help="the version of Python there")
    parser.add_argument("--out", type=Path, default=ROOT / ".gpu" / "site.tar.xz")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder) / "site"
        install(site, versions((ROOT / "constraints.txt").read_text(encoding="utf-8")), options.python)
        write_metadata(site, (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
        pack(site, options.out)
    print(f"{options.out}: {check_size(options.out.stat().st_size, tree_bytes(ROOT))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
