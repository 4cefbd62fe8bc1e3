"""Traces in memory: their tables, their file views as loops, and the accesses that these expand to."""
