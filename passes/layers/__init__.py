"""Equal layers of a model: one is compiled for all."""
