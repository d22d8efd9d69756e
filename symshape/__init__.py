"""symshape: one compile serves every size."""
