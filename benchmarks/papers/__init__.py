"""The numbers that five papers state, and the simulator's numbers for them (docs/papers.md)."""
