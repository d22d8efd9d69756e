"""What answers questions: each solver in its own words, from the same text."""
