"""Programs of the Makefile, and what tests and benchmarks share of storage."""
