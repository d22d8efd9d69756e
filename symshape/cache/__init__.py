"""Compiled graphs on disk: keys and records."""
