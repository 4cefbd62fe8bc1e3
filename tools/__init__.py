"""Programs of the Makefile, and storage for tests and benchmarks."""
