"""``symshape reduce``: makes IR that fails small, and keeps the failure."""
