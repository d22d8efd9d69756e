"""``symshape reduce``: reduces failing IR to a small module that still fails in the same way."""
