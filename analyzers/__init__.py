"""Find I/O signatures by template matching: first within each rank, then over the ranks."""

if __name__ != "pdla.analyzers":
    raise ImportError("import pdla.analyzers, not analyzers")
