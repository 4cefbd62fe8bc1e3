"""Replicas: build, publish, verify and remove them; write-back; the daemon."""

if __name__ != "pdla.replicator":
    raise ImportError("import pdla.replicator, not replicator")
