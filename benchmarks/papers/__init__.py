"""The numbers that five papers state, and what the simulator gives for them (docs/papers.md)."""
