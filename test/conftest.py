"""Settings that must be made before a test imports anything."""

import os

os.environ.setdefault("TRITON_INTERPRET", "1")  # triton reads it when it is imported, which transformers does too
os.environ["SYMSHAPE_CACHE"] = "0"  # what a test compiles must be compiled; the cache's own tests switch it on
