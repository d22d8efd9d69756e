"""MLIR passes, one per file. ``stages.py`` lists them in order."""
