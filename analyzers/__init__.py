"""I/O signatures: template matching per rank, then over the ranks."""

if __name__ != "pdla.analyzers":
    raise ImportError("import pdla.analyzers, not analyzers")
