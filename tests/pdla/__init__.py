"""Of the modules that all rooms share, and of the package as scripts use it."""
