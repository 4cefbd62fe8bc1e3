"""Simulated storage."""
