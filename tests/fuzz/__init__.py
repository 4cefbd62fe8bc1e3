"""Fuzzers of what pdla reads."""
