"""Traces for other tools: one module for each format (docs/exports.md)."""
