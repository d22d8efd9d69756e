"""The wheel with another PyTorch: ``make test-torch V=2.15.0``, or another Python: ``V=2.13.0 P=python3.12``.

An environment outside of the repository gets that PyTorch, the wheel, and everything else in the versions of
``constraints.txt``. Then run ``make smoke``'s program, the probes of all patches (``symshape patches --probe``), and a
tenth of the suite. Few versions of PyTorch have a build without CUDA on PyPI: the others need some 5 GB on disk, as
``import torch`` asks for the libraries of CUDA. What was installed is used again.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "test" / "support"))

from project_wheel import build_wheel  # noqa: E402

OF_TORCH = ("torch", "triton", "setuptools", "sympy")  # whose versions PyTorch decides


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", help="of PyTorch: 2.15.0")
    parser.add_argument("--python", default=sys.executable, help="of the environment: python3.12")
    parser.add_argument("--folder", type=Path, default=None, help="of the environment; by default a temporary one")
    parser.add_argument("--share", type=int, default=10, help="one test in so many is run")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args(argv)
    name = f"symshape-torch-{given.version}-{Path(given.python).name}"
    folder: Path = given.folder or Path(tempfile.gettempdir()) / name
    if folder.resolve().is_relative_to(ROOT):
        parser.error("the environment must be outside of the repository")
    install(folder, given.version, given.python)
    failed = [name for name, command in checks(folder, given.share, given.jobs) if not run(name, command, folder)]
    print(f"torch {given.version}: " + (f"failed: {', '.join(failed)}" if failed else "all passed"))
    return 1 if failed else 0


def install(folder: Path, version: str, interpreter: str = sys.executable) -> None:
    """PyTorch first, then the wheel and the tools of the tests, in the versions of the constraints."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([interpreter, "-m", "venv", str(folder)], check=True)
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    kept = [line for line in lines if line.split("==")[0] not in OF_TORCH]
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join([*kept, f"torch=={version}", ""]))
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", str(constraints)]
    subprocess.run([*pip, f"torch=={version}"], check=True)
    tools = ["pytest", "pytest-xdist", "hypothesis", "expecttest", "lit", "filecheck", "transformers", "accelerate"]
    ours = ["torch-mlir", "numpy", "sympy", "islpy", "llvmlite", "triton", "z3-solver", "setuptools>=77"]
    subprocess.run([*pip, *ours, *tools], check=True)
    with tempfile.TemporaryDirectory() as build:
        # Without dependencies: the range of versions that the metadata allows is what this is to find out.
        wheel = build_wheel(Path(build))
        subprocess.run([*pip, "--no-deps", "--force-reinstall", str(wheel)], check=True)


def checks(folder: Path, share: int, jobs: int) -> list[tuple[str, list[str]]]:
    bin_ = folder / "bin"
    suite = [str(bin_ / "pytest"), "-p", "tenth", "--share", str(share), "-n", str(jobs), "--dist", "worksteal"]
    return [
        ("smoke", [str(bin_ / "python"), "-m", "symshape.tools.smoke"]),
        ("probes", [str(bin_ / "symshape"), "patches", "--probe"]),
        ("suite", [*suite, "-p", "no:cacheprovider", str(ROOT / "test")]),
    ]


def run(name: str, command: list[str], folder: Path) -> bool:
    """Outside of the checkout, so that the wheel is imported and not the tree."""
    print(f"--- {name}", flush=True)
    paths = os.pathsep.join([str(ROOT / "test" / "support"), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    path = os.pathsep.join([str(folder / "bin"), os.environ.get("PATH", "")])
    environment = os.environ | {"PYTHONPATH": paths, "PATH": path, "SYMSHAPE_CACHE": "0"}
    return subprocess.run(command, cwd=folder, env=environment, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
