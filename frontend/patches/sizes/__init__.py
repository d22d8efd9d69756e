"""No 0/1 specialisation: sizes 0 and 1 are symbols like all others."""
