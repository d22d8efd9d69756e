"""Equal layers of a model: compiled once, as functions of their own."""
