"""``symshape patches``: lists the patches of PyTorch, and probes whether the installed PyTorch supports them."""

from __future__ import annotations

import torch

from symshape.frontend.patches.registry import CURRENT, PATCHES, probe_all


def show() -> int:
    """Prints the table of patches. Returns exit status 0."""
    for patch in PATCHES:
        print(f"{patch.name}: {patch.why}")
        for label, text in patch.facts():
            print(f"    {label}: {text.replace('`', '')}")
    print(f"{len(PATCHES)} changes of PyTorch, in force only while it traces for symshape")
    return 0


def probe() -> int:
    """Runs all probes and prints those that fail. Returns exit status 1 if one fails, else 0."""
    wrong = {name: text for name, text in probe_all().items() if text}
    for name, text in wrong.items():
        print(f"{name}: {text}")
    print(f"PyTorch {torch.__version__}: {len(CURRENT) - len(wrong)} of {len(CURRENT)} patches find what they rely on")
    return 1 if wrong else 0
