"""Traces as tables."""
