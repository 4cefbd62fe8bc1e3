"""Cost models, storage descriptions and the choice of a layout for every pattern."""

if __name__ != "pdla.layouts":
    raise ImportError("import pdla.layouts, not layouts")
