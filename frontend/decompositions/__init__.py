"""Decompositions that AOTAutograd applies before import: one flat table (``table.py``), one file for each family."""
