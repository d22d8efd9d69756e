"""What AOTAutograd takes apart before there is IR: one flat table (``table.py``), one file for each family."""
