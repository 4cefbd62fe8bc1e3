"""Packages and dashboards."""
