"""Kernel fusion: read main as a graph, group nodes over one iteration space, write kernels and launches."""
