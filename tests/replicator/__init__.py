"""Replicas: built, verified, published, written back."""
