"""Measurements of what pdla gains and costs. Each module is a program; the main one is `python -m benchmarks.bench`."""
