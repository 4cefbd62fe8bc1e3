"""Traces: recorded by pdla's own library, packed, and imported from other tools."""

if __name__ != "pdla.collectors":
    raise ImportError("import pdla.collectors, not collectors")
