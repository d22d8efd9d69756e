"""Unit tests share helpers that lie next to them, and one process in which Triton kernels are interpreted."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("TRITON_INTERPRET", "1")  # before anything imports triton
sys.path.insert(0, str(Path(__file__).parent))
