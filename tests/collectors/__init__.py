"""Recorders and importers."""
