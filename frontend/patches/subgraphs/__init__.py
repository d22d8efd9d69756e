"""Branches, loops, scans, checkpoints, and regions that are traced once."""
