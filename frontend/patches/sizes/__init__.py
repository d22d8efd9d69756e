"""Sizes 0 and 1 without specialisation."""
