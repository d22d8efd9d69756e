"""Settings that must be made before a test imports anything."""

import os

os.environ.setdefault("TRITON_INTERPRET", "1")  # triton reads it when it is imported, which transformers does too
