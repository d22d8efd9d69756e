"""Reads PyTorch's tracer: shape environment, fake tensors, AOTAutograd. Imports nothing else of the frontend."""
