"""MLIR text to object files, for this processor or an instruction-set level."""
