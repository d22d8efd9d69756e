"""PyTorch to IR: all that runs while PyTorch traces."""
