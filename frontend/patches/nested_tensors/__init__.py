"""Nested tensors of the jagged layout."""
