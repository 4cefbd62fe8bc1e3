"""Replicas: built, published, verified, removed."""

if __name__ != "pdla.replicator":
    raise ImportError("import pdla.replicator, not replicator")
