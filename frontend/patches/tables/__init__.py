"""The rows of the table of changes to PyTorch, by what is being traced: each file is one flat list."""
