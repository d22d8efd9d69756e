"""MLIR text to object files, for this processor or a level of instructions."""
