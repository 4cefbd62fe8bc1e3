"""Clusters, costs and layouts."""
