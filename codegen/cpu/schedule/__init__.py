"""Schedules a CPU kernel: its forms, the loop order, vectors, tiles, and units of work."""
