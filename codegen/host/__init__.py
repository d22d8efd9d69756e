"""The host program: sizes, checks, allocation, launches, calls; the guard stub; the guard tree of many entries."""
